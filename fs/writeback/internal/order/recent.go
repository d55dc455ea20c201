package order

import "container/heap"

// Recent finds what was committed last in a directory, above it or below it: that is asked
// each time that something is written again, and must not take the longer the more is
// pending. It follows from the operations.
type Recent struct {
	dirs map[string]*recentDir
	ops  map[uint64]*recentOp
}

// NewRecent returns one that knows of nothing.
func NewRecent() Recent {
	return Recent{dirs: make(map[string]*recentDir), ops: make(map[uint64]*recentOp)}
}

// empty reports whether no operation is left, nor anything of one but the root.
func (r *Recent) empty() bool { return len(r.ops) == 0 && len(r.dirs) <= 1 }

// recentOp is an operation as it is in the heaps, lasted being its last commit.
type recentOp struct {
	op     *Operation
	dir    *recentDir
	lasted uint64
	slot   int
	// barrier says in which heap it is.
	barrier bool
}

// recentDir has the operations of one directory, those that are barriers by themselves.
type recentDir struct {
	path            string
	up              *recentDir
	plain, barriers top[*recentOp]
	// below are the directories directly below it that have operations, or directories
	// that do.
	below top[*recentDir]
	// lasted is the last commit of a barrier in it or below it.
	lasted uint64
	slot   int
}

func (x *recentOp) rank() uint64 { return x.lasted }

func (x *recentOp) at() *int { return &x.slot }

func (d *recentDir) rank() uint64 { return d.lasted }

func (d *recentDir) at() *int { return &d.slot }

// Lasted returns when op was committed last.
func (op *Operation) Lasted() uint64 { return max(op.Order, op.After) }

// Put takes note of op, which is new or was changed.
func (r *Recent) Put(op *Operation) {
	if x := r.ops[op.ID]; x != nil && x.barrier == op.Barrier {
		x.lasted = op.Lasted()
		heap.Fix(x.dir.heapOf(x), x.slot)
		x.dir.raise()
		return
	}
	r.Remove(op)
	x := &recentOp{op: op, dir: r.dir(op.Dir), lasted: op.Lasted(), barrier: op.Barrier}
	r.ops[op.ID] = x
	heap.Push(x.dir.heapOf(x), x)
	x.dir.raise()
}

// Remove forgets op, if it is known.
func (r *Recent) Remove(op *Operation) {
	x := r.ops[op.ID]
	if x == nil {
		return
	}
	delete(r.ops, op.ID)
	heap.Remove(x.dir.heapOf(x), x.slot)
	x.dir.raise()
	for d := x.dir; d.up != nil && len(d.plain)+len(d.barriers)+len(d.below) == 0; d = d.up {
		heap.Remove(&d.up.below, d.slot)
		delete(r.dirs, d.path)
	}
}

// dir returns the directory at path.
func (r *Recent) dir(path string) *recentDir {
	d := r.dirs[path]
	if d == nil {
		d = &recentDir{path: path}
		r.dirs[path] = d
		if path != "" {
			d.up = r.dir(Parent(path))
			heap.Push(&d.up.below, d)
		}
	}
	return d
}

func (d *recentDir) heapOf(x *recentOp) *top[*recentOp] {
	if x.barrier {
		return &d.barriers
	}
	return &d.plain
}

// raise brings up to date what is known of d and the directories above.
func (d *recentDir) raise() {
	for ; d != nil; d = d.up {
		lasted := max(d.barriers.first(), d.below.first())
		if lasted == d.lasted {
			return
		}
		if d.lasted = lasted; d.up != nil {
			heap.Fix(&d.up.below, d.slot)
		}
	}
}

// Beside reports whether what is wanted was committed after the moment, in dir or above it.
func (r *Recent) Beside(dir string, after uint64, wanted func(*Operation) bool) bool {
	of := func(x *recentOp) bool { return wanted(x.op) }
	for ; ; dir = Parent(dir) {
		if d := r.dirs[dir]; d != nil && (d.plain.some(after, of) || d.barriers.some(after, of)) {
			return true
		}
		if dir == "" {
			return false
		}
	}
}

// Barrier reports whether a barrier that is wanted was committed after the moment.
func (r *Recent) Barrier(after uint64, wanted func(*Operation) bool) bool {
	return r.dirs[""] != nil && r.dirs[""].barrier(after, wanted)
}

func (d *recentDir) barrier(after uint64, wanted func(*Operation) bool) bool {
	return d.barriers.some(after, func(x *recentOp) bool { return wanted(x.op) }) ||
		d.below.some(after, func(x *recentDir) bool { return x.barrier(after, wanted) })
}

// barrierBelow reports whether a barrier was committed after the moment in a directory below dir.
func (r *Recent) barrierBelow(dir string, after uint64) bool {
	d := r.dirs[dir]
	return d != nil && d.below.first() > after
}

// barrierApart reports whether a barrier was committed after the moment in a directory that is
// neither dir, nor above it, nor below it.
func (r *Recent) barrierApart(dir string, after uint64) bool {
	for dir != "" {
		toward := dir
		dir = Parent(dir)
		if d := r.dirs[dir]; d != nil && d.below.some(after, func(x *recentDir) bool { return x.path != toward }) {
			return true
		}
	}
	return false
}

// Yields reports whether op, whose content was committed again, leaves its place: what
// replaces something below its directory was committed since, and nothing beside it,
// above or elsewhere waits for it.
func (r *Recent) Yields(op *Operation) bool {
	other := func(x *Operation) bool { return x.Key != op.Key }
	return r.barrierBelow(op.Dir, op.Order) && !r.barrierApart(op.Dir, op.Order) && !r.Beside(op.Dir, op.Order, other)
}

// top is a heap with the highest rank first, whose members know where they are.
type top[T interface {
	rank() uint64
	at() *int
}] []T

func (h top[T]) Len() int { return len(h) }

func (h top[T]) Less(i, j int) bool { return h[i].rank() > h[j].rank() }

func (h top[T]) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	*h[i].at(), *h[j].at() = i, j
}

func (h *top[T]) Push(x any) {
	t := x.(T)
	*t.at() = len(*h)
	*h = append(*h, t)
}

func (h *top[T]) Pop() any {
	last := len(*h) - 1
	x := (*h)[last]
	clear((*h)[last:])
	*h = (*h)[:last]
	return x
}

// first returns the highest rank, 0 if there is nothing.
func (h top[T]) first() uint64 {
	if len(h) == 0 {
		return 0
	}
	return h[0].rank()
}

// some reports whether one of those of a rank above least is wanted. It looks at those alone.
func (h top[T]) some(least uint64, wanted func(T) bool) bool { return h.from(0, least, wanted) }

func (h top[T]) from(i int, least uint64, wanted func(T) bool) bool {
	return i < len(h) && h[i].rank() > least && (wanted(h[i]) || h.from(2*i+1, least, wanted) || h.from(2*i+2, least, wanted))
}
