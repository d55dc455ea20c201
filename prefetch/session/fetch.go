package session

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/pailfs/pailfs/oss"
	"github.com/pailfs/pailfs/prefetch/budget"
)

// NextResolve returns an entry whose objects are to be looked up, or nil. The
// streams take turns. [Book.Resolved] must follow.
func (b *Book) NextResolve() *Entry {
	for range len(b.order) {
		if b.turn >= len(b.order) {
			b.turn = 0
		}
		st := b.order[b.turn]
		b.turn++
		h := st.unresolved.head(func(h *holder) bool { return h.entry.state == Requested && !h.entry.busy })
		if h == nil {
			continue
		}
		st.unresolved.pop()
		h.entry.state, h.entry.busy = Resolving, true
		return h.entry
	}
	return nil
}

// Resolved tells what an entry means and what it costs, in bytes of the budget,
// or why that cannot be told. The objects beyond the first were charged with extra bytes to
// [Entry.Payer]; the book gives them back. What was too much for that is streamed.
func (b *Book) Resolved(e *Entry, objects []oss.Object, cost, extra int64, err error) {
	e.busy = false
	b.pay(e, extra)
	if !e.Held() {
		b.pay(e, 0) // it was given up meanwhile
		return
	}
	if _, exceeded := errors.AsType[*budget.Exceeded](err); exceeded {
		b.pay(e, 0)
		b.setState(e, Streamed)
		return
	}
	if err != nil {
		b.pay(e, 0)
		b.setState(e, Failed)
		e.Err = Brief(err)
		return
	}
	e.Objects, e.Bytes, e.cost, e.Err = objects, 0, cost, nil
	for _, o := range objects {
		e.Bytes += o.Size
	}
	for _, h := range e.holders {
		h.stream.learn(cost)
	}
	if cost > b.cfg.Budget {
		b.setState(e, Streamed)
		return
	}
	b.setState(e, Waiting)
}

// learn takes a size into the stream's average.
func (st *stream) learn(cost int64) {
	if st.size == 0 {
		st.size = float64(cost)
		return
	}
	st.size += (float64(cost) - st.size) / 16
}

// NextFetch returns the entry that is to be fetched next, whose bytes are then
// charged, or nil if there is none or no room. Whoever reads already comes first.
// Among the others the session that has least comes first, and within a stream
// the order is that of the announcements; who comes first and finds no room is
// waited for, so that no one is starved by smaller files of others.
// [Book.Fetched] must follow.
func (b *Book) NextFetch() *Entry {
	for _, st := range b.order {
		if h := st.urgent.head(b.pending); h != nil && h.entry.state == Waiting && b.charged+h.entry.cost <= b.cfg.Budget {
			st.urgent.pop()
			return b.admit(h.entry)
		}
	}
	var best *holder
	var from *fifo
	n := len(b.order)
	for i := range n {
		st := b.order[(b.turn+i)%n]
		q := &st.queue
		h := q.head(b.pending)
		if h == nil {
			q = &st.urgent
			h = q.head(b.pending)
		}
		if h == nil || h.entry.state != Waiting {
			continue
		}
		if best == nil || cmp.Compare(st.session.charged, best.stream.session.charged) < 0 {
			best, from = h, q
		}
	}
	if best == nil || b.charged+best.entry.cost > b.cfg.Budget {
		return nil
	}
	from.pop()
	if n > 0 {
		b.turn = (b.turn + 1) % n
	}
	return b.admit(best.entry)
}

// pending tells whether a holder's entry is still to be fetched. One for which the
// budget has become too small is streamed.
func (b *Book) pending(h *holder) bool {
	if h.entry.state == Waiting && h.entry.cost > b.cfg.Budget {
		b.setState(h.entry, Streamed)
	}
	return h.entry.state <= Waiting
}

func (b *Book) admit(e *Entry) *Entry {
	e.charge, e.busy = e.cost, true
	e.charger.charged += e.charge
	b.charged += e.charge
	b.setState(e, Fetching)
	return e
}

// Fetched tells what became of a fetch. unheld says that the cache cannot hold
// the entry at present: it is then read as it comes.
func (b *Book) Fetched(e *Entry, unheld bool, err error) {
	e.busy = false
	switch {
	case unheld:
		b.uncharge(e)
		b.setState(e, Streamed)
	case err != nil:
		b.uncharge(e)
		e.Err = Brief(err)
		b.setState(e, Failed)
	default:
		b.setState(e, Ready)
	}
}

// Lost tells that the cache had to give up bytes of an entry that was ready. It is
// fetched again when there is room.
func (b *Book) Lost(e *Entry) {
	if e.state != Ready || !e.Held() {
		return
	}
	b.uncharge(e)
	b.setState(e, Waiting)
	h := e.heir()
	h.stream.enqueue(h, h.active)
}

// TakeGone returns the entries that nobody holds any more. Each is still charged
// until [Book.Freed] is told that its bytes may go.
func (b *Book) TakeGone() []*Entry {
	gone := b.gone
	b.gone = nil
	return gone
}

// Freed tells that nothing of an entry that is gone is protected any more.
func (b *Book) Freed(e *Entry) {
	b.uncharge(e)
	b.pay(e, 0)
}

// pay notes that so much is charged for the objects of e, and gives back what was.
func (b *Book) pay(e *Entry, extra int64) {
	b.cfg.Ledger.Give(e.payer, budget.Names, e.extra)
	e.extra = extra
}

func (b *Book) uncharge(e *Entry) {
	b.charged -= e.charge
	if e.charger != nil {
		e.charger.charged -= e.charge
	}
	e.charge = 0
}

// setState changes the state and counts anew what is outstanding.
func (b *Book) setState(e *Entry, s State) {
	e.state = s
	for _, h := range e.holders {
		h.stream.settle(h)
	}
}

// Check returns an error if the book contradicts itself. Tests call it after
// every step.
func (b *Book) Check() error {
	var charged int64
	perSession := map[*session]int64{}
	seen := map[*Entry]bool{}
	count := func(e *Entry) {
		if !seen[e] {
			seen[e] = true
			charged += e.charge
			perSession[e.charger] += e.charge
		}
	}
	for path, e := range b.entries {
		if e.name != path || len(e.holders) == 0 {
			return fmt.Errorf("entry %q has %d holders", path, len(e.holders))
		}
		want := int64(0)
		if e.state == Fetching || e.state == Ready {
			want = e.cost
		}
		if e.charge != want {
			return fmt.Errorf("entry %q is %s and charged %d of %d", path, e.state, e.charge, e.cost)
		}
		for _, h := range e.holders {
			if h.gone || h.stream.holders[h.use] != h {
				return fmt.Errorf("entry %q has a holder that is gone", path)
			}
		}
		if b.sessions[e.charger.id] != e.charger {
			return fmt.Errorf("entry %q is charged to a session that has ended", path)
		}
		count(e)
	}
	for _, e := range b.gone {
		count(e)
	}
	if charged > b.charged {
		return fmt.Errorf("entries are charged %d bytes, the book says %d", charged, b.charged)
	}
	for _, s := range b.sorted() {
		for _, st := range s.sorted() {
			outstanding := 0
			for _, h := range st.holders {
				if !h.active && h.entry.state != Failed {
					outstanding++
				}
				if b.entries[h.use.name] != h.entry {
					return fmt.Errorf("holder of %q holds another entry", h.use.name)
				}
			}
			if outstanding != st.outstanding {
				return fmt.Errorf("stream %d has %d outstanding, the book says %d", st.index, outstanding, st.outstanding)
			}
		}
		if s.charged < perSession[s] {
			return fmt.Errorf("session %s is charged %d bytes, its entries %d", s.id, s.charged, perSession[s])
		}
	}
	return nil
}
