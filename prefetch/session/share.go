package session

import (
	"cmp"
	"fmt"
	"hash/maphash"
	"slices"

	"github.com/pailfs/pailfs/oss"
	"github.com/pailfs/pailfs/prefetch/budget"
)

// tenant is a user who has sessions, or of whom something is charged.
type tenant struct {
	user budget.User
	// privileged says that it may have all there is.
	privileged bool
	sessions   int
	// waiting counts its entries that wait for room.
	waiting int
	// charged is the sum of what its objects cost, each once. objects counts the charged
	// entries that mean each, and changed how often that was changed, and once more.
	charged int64
	objects map[version]int32
	changed uint64
	// share is how much it may have while others wait.
	share int64
}

// version stands for an object's version: there may be many of them, with long keys. Two
// that were taken for one would be charged once. The size is part of it: a manifest may tell
// another than a listing, and what is given back has to be what was charged.
type version uint64

func (b *Book) versionOf(o oss.Object) version {
	type means struct {
		key, etag string
		size      int64
	}
	return version(maphash.Comparable(b.seed, means{o.Key, o.ETag, o.Size}))
}

// tenant returns a user's tenant, and makes it if there is none.
func (b *Book) tenant(u budget.User) *tenant {
	t := b.tenants[u]
	if t == nil {
		t = &tenant{user: u, privileged: b.cfg.Ledger.Privileged(u), objects: make(map[version]int32), changed: 1}
		b.tenants[u] = t
	}
	return t
}

// leaves forgets a tenant of whom nothing is left.
func (b *Book) leaves(t *tenant) {
	if t.sessions == 0 && len(t.objects) == 0 {
		delete(b.tenants, t.user)
	}
	b.stale = true
}

// charge charges the tenant what an entry means and it does not have yet.
func (b *Book) charge(t *tenant, e *Entry) {
	for _, o := range e.Objects {
		v := b.versionOf(o)
		if t.objects[v]++; t.objects[v] == 1 {
			b.count(t, b.cfg.Cost(o))
		}
	}
	t.changed++
	b.stale = true
}

// discharge is the reverse of charge.
func (b *Book) discharge(t *tenant, e *Entry) {
	for _, o := range e.Objects {
		v := b.versionOf(o)
		if t.objects[v]--; t.objects[v] == 0 {
			delete(t.objects, v)
			b.count(t, -b.cfg.Cost(o))
		}
	}
	t.changed++
	b.leaves(t)
}

// count changes what a tenant is charged.
func (b *Book) count(t *tenant, bytes int64) {
	t.charged += bytes
	b.charged += bytes
	if !t.privileged {
		b.others += bytes
	}
}

// missing returns what an entry that waits would be charged.
func (b *Book) missing(e *Entry) int64 {
	t := e.tenant
	if e.missing.at == t.changed {
		return e.missing.bytes
	}
	bytes := e.cost
	for _, o := range e.Objects {
		if t.objects[b.versionOf(o)] > 0 {
			bytes -= b.cfg.Cost(o)
		}
	}
	e.missing.at, e.missing.bytes = t.changed, bytes
	return bytes
}

// shared is how much all have together who are not privileged, at most.
func (b *Book) shared() int64 { return b.cfg.Budget / 4 * 3 }

// most is how much a tenant may have when nobody else has any.
func (b *Book) most(t *tenant) int64 {
	if t.privileged {
		return b.cfg.Budget
	}
	return b.shared()
}

// left returns how much more a tenant can have now. It may be negative.
func (b *Book) left(t *tenant) int64 {
	left := b.cfg.Budget - b.charged
	if t.privileged {
		return left
	}
	return min(left, b.shared()-b.others)
}

// setShares says what each tenant may have while others wait: as much as every other who
// wants more, and what those leave who do not. A quarter is for the privileged, if they
// want it. All shares together are no more than the budget.
func (b *Book) setShares() {
	if !b.stale {
		return
	}
	b.stale = false
	var all, privileged, others []*tenant
	for _, t := range b.tenants {
		all = append(all, t)
		if t.privileged {
			privileged = append(privileged, t)
		} else {
			others = append(others, t)
		}
	}
	each := max(level(b.cfg.Budget, all), level(b.cfg.Budget-b.shared(), privileged))
	room := b.cfg.Budget
	for _, t := range privileged {
		t.share = each
		room -= t.demand(each)
	}
	each = level(min(room, b.shared()), others)
	for _, t := range others {
		t.share = each
	}
}

// demand is how much a tenant has, or wants, of a share.
func (t *tenant) demand(share int64) int64 {
	if t.waiting > 0 {
		return share
	}
	return min(t.charged, share)
}

// level returns how much each of some tenants can have of a room, if those who want no more
// than they have leave the rest to the others.
func level(room int64, tenants []*tenant) int64 {
	var content []int64
	for _, t := range tenants {
		if t.waiting == 0 {
			content = append(content, t.charged)
		}
	}
	slices.Sort(content)
	left := int64(len(tenants))
	for _, has := range content {
		if has >= room/left {
			break
		}
		room -= has
		left--
	}
	return room / max(left, 1)
}

// want is the holder whose entry a tenant wants next, and the queue of which it is the head.
type want struct {
	*holder
	from *fifo
}

// next returns what each tenant wants next, in the order of the turns. Who reads already
// comes first if there is room. Then comes the session that has least, and within a stream
// the order is that of the announcements.
func (b *Book) next() []want {
	var wants []want
	at := make(map[*tenant]int)
	n := len(b.order)
	for i := range n {
		st := b.order[(b.turn+i)%n]
		w := want{st.urgent.head(b.pending), &st.urgent}
		urgent := w.holder != nil && w.entry.state == Waiting && b.missing(w.entry) <= b.left(w.entry.tenant)
		if !urgent {
			if h := st.queue.head(b.pending); h != nil {
				w = want{h, &st.queue}
			}
		}
		if w.holder == nil || w.entry.state != Waiting {
			continue
		}
		k, found := at[w.entry.tenant]
		switch {
		case !found:
			at[w.entry.tenant] = len(wants)
			wants = append(wants, w)
		case wants[k].from == &wants[k].stream.urgent && !urgent:
		case urgent && wants[k].from != &wants[k].stream.urgent || st.session.charged < wants[k].stream.session.charged:
			wants[k] = w
		}
	}
	return wants
}

// choose returns what is to be fetched next, or nothing. Those come first who stay within
// their share, and of those who have least. Who stays within it and finds no room is waited
// for by who would exceed it; else who finds none waits alone.
func (b *Book) choose(wants []want) want {
	b.setShares()
	beyond := func(w want) bool { return w.entry.tenant.charged+b.missing(w.entry) > w.entry.tenant.share }
	slices.SortStableFunc(wants, func(v, w want) int {
		if bv, bw := beyond(v), beyond(w); bv != bw {
			if bv {
				return 1
			}
			return -1
		}
		return cmp.Compare(v.entry.tenant.charged, w.entry.tenant.charged)
	})
	owed := false
	for _, w := range wants {
		over := beyond(w)
		switch {
		case over && owed:
			return want{}
		case b.missing(w.entry) <= b.left(w.entry.tenant):
			return w
		case !over:
			owed = true
		}
	}
	return want{}
}

// checkTenants returns an error if the tenants are charged less than their entries cost, some
// of which may be gone and on their way out.
func (b *Book) checkTenants(charged []*Entry) error {
	type has struct {
		cost    int64
		objects map[version]int32
		waiting int
	}
	found := make(map[*tenant]*has)
	for _, t := range b.tenants {
		found[t] = &has{objects: make(map[version]int32)}
	}
	for _, e := range charged {
		for _, o := range e.Objects {
			h, v := found[e.tenant], b.versionOf(o)
			if h.objects[v]++; h.objects[v] == 1 {
				h.cost += b.cfg.Cost(o)
			}
		}
	}
	for _, e := range b.entries {
		if e.state == Waiting {
			found[e.tenant].waiting++
		}
	}
	var sum, others int64
	for t, h := range found {
		for v, n := range h.objects {
			if n > t.objects[v] {
				return fmt.Errorf("user %d has %d charged entries of an object, the book says %d", t.user.UID, n, t.objects[v])
			}
		}
		if h.cost > t.charged || h.waiting != t.waiting {
			return fmt.Errorf("user %d is charged %d and has %d entries waiting, the book says %d and %d", t.user.UID, h.cost, h.waiting, t.charged, t.waiting)
		}
		sum += t.charged
		if !t.privileged {
			others += t.charged
		}
	}
	if sum != b.charged || others != b.others {
		return fmt.Errorf("all users are charged %d, the others %d of it, the book says %d and %d", sum, others, b.charged, b.others)
	}
	return nil
}
