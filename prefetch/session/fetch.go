package session

import (
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

// Resolved tells what an entry means, or why that cannot be told. The objects beyond the first were charged with extra bytes to
// [Entry.Payer]; the book gives them back. What was too much for that is streamed.
func (b *Book) Resolved(e *Entry, objects []oss.Object, extra int64, err error) {
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
	e.Objects, e.Bytes, e.cost, e.Err = objects, 0, 0, nil
	e.missing.at = 0
	for _, o := range objects {
		e.Bytes += o.Size
		e.cost += b.cfg.Cost(o)
	}
	for _, h := range e.holders {
		h.stream.learn(e.cost)
	}
	if e.cost > b.most(e.tenant) {
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
// charged, or nil if there is none or no room. The users share the room (see [Book.choose]).
// Among the sessions of one of them, who comes first and finds no room is waited for, so that
// no one is starved by smaller files of others.
// [Book.Fetched] must follow.
func (b *Book) NextFetch() *Entry {
	for {
		wants := b.next()
		w := b.choose(wants)
		if w.holder != nil {
			w.from.pop()
			b.turn = (b.turn + 1) % len(b.order)
			return b.admit(w.entry)
		}
		if !b.concede(wants) {
			return nil
		}
	}
}

// concede gives up what nobody would ever owe a user: an entry that is larger than its share,
// when it has nothing left to let go. It is streamed. It reports whether there was one.
func (b *Book) concede(wants []want) (conceded bool) {
	for _, w := range wants {
		if t := w.entry.tenant; t.charged == 0 && b.missing(w.entry) > t.share {
			b.setState(w.entry, Streamed)
			conceded = true
		}
	}
	return conceded
}

// pending tells whether a holder's entry is still to be fetched. One for which the
// budget has become too small is streamed.
func (b *Book) pending(h *holder) bool {
	if h.entry.state == Waiting && h.entry.cost > b.most(h.entry.tenant) {
		b.setState(h.entry, Streamed)
	}
	return h.entry.state <= Waiting
}

func (b *Book) admit(e *Entry) *Entry {
	e.charge, e.busy = e.cost, true
	e.charger.charged += e.charge
	b.charge(e.tenant, e)
	e.counted = true
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
	b.cfg.Ledger.Give(e.tenant.user, budget.Names, e.extra)
	e.extra = extra
}

func (b *Book) uncharge(e *Entry) {
	if e.charger != nil {
		e.charger.charged -= e.charge
	}
	e.charge = 0
	if e.counted {
		e.counted = false
		b.discharge(e.tenant, e)
	}
}

// setState changes the state and counts anew what is outstanding.
func (b *Book) setState(e *Entry, s State) {
	if e.state == Waiting {
		b.waits(e, -1)
	}
	if s == Waiting {
		b.waits(e, 1)
	}
	e.state = s
	for _, h := range e.holders {
		h.stream.settle(h)
	}
}

// waits notes that one entry more of a user waits for room, or one less.
func (b *Book) waits(e *Entry, n int) {
	e.tenant.waiting += n
	b.stale = true
}

// Check returns an error if the book contradicts itself. Tests call it after
// every step.
func (b *Book) Check() error {
	var charged []*Entry
	perSession := map[*session]int64{}
	seen := map[*Entry]bool{}
	count := func(e *Entry) {
		if !seen[e] {
			seen[e] = true
			if e.counted {
				charged = append(charged, e)
			}
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
		if e.charge != want || e.counted != (e.state == Fetching || e.state == Ready) {
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
	if err := b.checkTenants(charged); err != nil {
		return err
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
