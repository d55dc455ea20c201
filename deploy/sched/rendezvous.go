package sched

// Rendezvous hashing: every dataset, or every shard of one, ranks all nodes in an
// order of its own that hardly changes when nodes come and go. Cold data therefore
// returns to where it was warmed before, and different data warms different nodes. The
// hash is fixed (FNV-1a, mixed), so that a scheduler that starts anew ranks as before.

// hashOf returns the hash of a name.
func hashOf(name string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(name) {
		h = (h ^ uint64(name[i])) * 1099511628211
	}
	return h
}

// weight returns how much a key wants a node, both hashed.
func weight(key, node uint64) uint64 {
	x := key ^ (node*0x9e3779b97f4a7c15 + 0x7f4a7c15)
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	x *= 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}

// ranked is a node with what speaks for it: first the rank, then the weight.
type ranked struct {
	*node
	rank   float64
	weight uint64
}

// before reports whether a comes before b.
func (a ranked) before(b ranked) bool {
	return a.rank > b.rank || a.rank == b.rank && a.weight > b.weight
}

// ranking is a heap: it gives the best nodes first without sorting the rest, of which
// there are ten thousand.
type ranking []ranked

// best yields the nodes, best first, for as long as it is asked.
func (r ranking) best(yield func(ranked) bool) {
	for i := len(r)/2 - 1; i >= 0; i-- {
		r.sink(i)
	}
	for len(r) > 0 {
		first := r[0]
		last := len(r) - 1
		r[0] = r[last]
		r = r[:last]
		r.sink(0)
		if !yield(first) {
			return
		}
	}
}

// sink restores the heap below i.
func (r ranking) sink(i int) {
	for {
		child := 2*i + 1
		if child >= len(r) {
			return
		}
		if right := child + 1; right < len(r) && r[right].before(r[child]) {
			child = right
		}
		if !r[child].before(r[i]) {
			return
		}
		r[i], r[child] = r[child], r[i]
		i = child
	}
}
