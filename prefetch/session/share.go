package session

import (
	"cmp"
	"hash/maphash"
	"slices"

	"github.com/pailfs/pailfs/oss"
	"github.com/pailfs/pailfs/prefetch/budget"
)

// shares say how much of the budget each user is charged, and may have.
type shares struct {
	// budget is how many bytes may be charged at once, and cost what an object is charged.
	budget int64
	cost   func(oss.Object) int64
	ledger *budget.Ledger
	// charged is the sum of what the tenants are charged, for entries too that are gone
	// and not yet freed; others what of it is of those who are not privileged. stale says that
	// their shares have to be looked at again.
	charged int64
	others  int64
	tenants map[budget.User]*tenant
	stale   bool
	seed    maphash.Seed
}

func newShares(cfg Config) *shares {
	return &shares{budget: cfg.Budget, cost: cfg.Cost, ledger: cfg.Ledger, tenants: make(map[budget.User]*tenant), seed: maphash.MakeSeed()}
}

// tenant is a user who has sessions, or of whom something is charged.
type tenant struct {
	of   *shares
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

func (s *shares) versionOf(o oss.Object) version {
	type means struct {
		key, etag string
		size      int64
	}
	return version(maphash.Comparable(s.seed, means{o.Key, o.ETag, o.Size}))
}

// tenant returns a user's tenant, and makes it if there is none.
func (s *shares) tenant(u budget.User) *tenant {
	t := s.tenants[u]
	if t == nil {
		t = &tenant{of: s, user: u, privileged: s.ledger.Privileged(u), objects: make(map[version]int32), changed: 1}
		s.tenants[u] = t
	}
	return t
}

// leaves forgets a tenant of whom nothing is left.
func (s *shares) leaves(t *tenant) {
	if t.sessions == 0 && len(t.objects) == 0 {
		delete(s.tenants, t.user)
	}
	s.stale = true
}

// charge charges the tenant what an entry means and it does not have yet.
func (s *shares) charge(t *tenant, e *Entry) {
	for _, o := range e.Objects {
		v := s.versionOf(o)
		if t.objects[v]++; t.objects[v] == 1 {
			s.count(t, s.cost(o))
		}
	}
	t.changed++
	s.stale = true
}

// discharge is the reverse of charge.
func (s *shares) discharge(t *tenant, e *Entry) {
	for _, o := range e.Objects {
		v := s.versionOf(o)
		if t.objects[v]--; t.objects[v] == 0 {
			delete(t.objects, v)
			s.count(t, -s.cost(o))
		}
	}
	t.changed++
	s.leaves(t)
}

// count changes what a tenant is charged.
func (s *shares) count(t *tenant, bytes int64) {
	t.charged += bytes
	s.charged += bytes
	if !t.privileged {
		s.others += bytes
	}
}

// missing returns what an entry that waits would be charged.
func (s *shares) missing(e *Entry) int64 {
	t := e.tenant
	if e.missing.at == t.changed {
		return e.missing.bytes
	}
	bytes := e.cost
	for _, o := range e.Objects {
		if t.objects[s.versionOf(o)] > 0 {
			bytes -= s.cost(o)
		}
	}
	e.missing.at, e.missing.bytes = t.changed, bytes
	return bytes
}

// shared is how much all have together who are not privileged, at most.
func (s *shares) shared() int64 { return s.budget / 4 * 3 }

// most is how much a tenant may have when nobody else has any.
func (s *shares) most(t *tenant) int64 {
	if t.privileged {
		return s.budget
	}
	return s.shared()
}

// left returns how much more a tenant can have now. It may be negative.
func (s *shares) left(t *tenant) int64 {
	left := s.budget - s.charged
	if t.privileged {
		return left
	}
	return min(left, s.shared()-s.others)
}

// setShares says what each tenant may have while others wait: as much as every other who
// wants more, and what those leave who do not. A quarter is for the privileged, if they
// want it. All shares together are no more than the budget.
func (s *shares) setShares() {
	if !s.stale {
		return
	}
	s.stale = false
	var all, privileged, others []*tenant
	for _, t := range s.tenants {
		all = append(all, t)
		if t.privileged {
			privileged = append(privileged, t)
		} else {
			others = append(others, t)
		}
	}
	each := max(level(s.budget, all), level(s.budget-s.shared(), privileged))
	room := s.budget
	for _, t := range privileged {
		t.share = each
		room -= t.demand(each)
	}
	each = level(min(room, s.shared()), others)
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
		w := want{st.urgent.head((*holder).pending), &st.urgent}
		urgent := w.holder != nil && w.entry.state == Waiting && b.shares.missing(w.entry) <= b.shares.left(w.entry.tenant)
		if !urgent {
			if h := st.queue.head((*holder).pending); h != nil {
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
func (s *shares) choose(wants []want) want {
	s.setShares()
	beyond := func(w want) bool { return w.entry.tenant.charged+s.missing(w.entry) > w.entry.tenant.share }
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
		case s.missing(w.entry) <= s.left(w.entry.tenant):
			return w
		case !over:
			owed = true
		}
	}
	return want{}
}
