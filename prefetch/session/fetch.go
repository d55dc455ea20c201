package session

import (
	"errors"

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
	e.pay(b.cfg.Ledger, extra)
	if !e.Held() {
		e.pay(b.cfg.Ledger, 0) // it was given up meanwhile
		return
	}
	if _, exceeded := errors.AsType[*budget.Exceeded](err); exceeded {
		e.pay(b.cfg.Ledger, 0)
		e.setState(Streamed)
		return
	}
	if err != nil {
		e.pay(b.cfg.Ledger, 0)
		e.setState(Failed)
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
	if e.cost > b.shares.most(e.tenant) {
		e.setState(Streamed)
		return
	}
	e.setState(Waiting)
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
// charged, or nil if there is none or no room. The users share the room (see shares.choose).
// Among the sessions of one of them, who comes first and finds no room is waited for, so that
// no one is starved by smaller files of others.
// [Book.Fetched] must follow.
func (b *Book) NextFetch() *Entry {
	for {
		wants := b.next()
		w := b.shares.choose(wants)
		if w.holder != nil {
			w.from.pop()
			b.turn = (b.turn + 1) % len(b.order)
			w.entry.admit()
			return w.entry
		}
		if !b.shares.concede(wants) {
			return nil
		}
	}
}

// concede gives up what nobody would ever owe a user: an entry that is larger than its share,
// when it has nothing left to let go. It is streamed. It reports whether there was one.
func (s *shares) concede(wants []want) (conceded bool) {
	for _, w := range wants {
		if t := w.entry.tenant; t.charged == 0 && s.missing(w.entry) > t.share {
			w.entry.setState(Streamed)
			conceded = true
		}
	}
	return conceded
}

// pending tells whether a holder's entry is still to be fetched. One for which the
// budget has become too small is streamed.
func (h *holder) pending() bool {
	if h.entry.state == Waiting && h.entry.cost > h.entry.tenant.of.most(h.entry.tenant) {
		h.entry.setState(Streamed)
	}
	return h.entry.state <= Waiting
}

// admit charges the entry, which is fetched next.
func (e *Entry) admit() {
	e.charge, e.busy = e.cost, true
	e.charger.charged += e.charge
	e.tenant.of.charge(e.tenant, e)
	e.counted = true
	e.setState(Fetching)
}

// Fetched tells what became of a fetch. unheld says that the cache cannot hold
// the entry at present: it is then read as it comes.
func (b *Book) Fetched(e *Entry, unheld bool, err error) {
	e.busy = false
	switch {
	case unheld:
		e.uncharge()
		e.setState(Streamed)
	case err != nil:
		e.uncharge()
		e.Err = Brief(err)
		e.setState(Failed)
	default:
		e.setState(Ready)
	}
}

// Lost tells that the cache had to give up bytes of an entry that was ready. It is
// fetched again when there is room.
func (b *Book) Lost(e *Entry) {
	if e.state != Ready || !e.Held() {
		return
	}
	e.uncharge()
	e.setState(Waiting)
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
	e.uncharge()
	e.pay(b.cfg.Ledger, 0)
}

// pay notes that so much is charged for the objects of e, and gives back what was.
func (e *Entry) pay(ledger *budget.Ledger, extra int64) {
	ledger.Give(e.tenant.user, budget.Names, e.extra)
	e.extra = extra
}

func (e *Entry) uncharge() {
	if e.charger != nil {
		e.charger.charged -= e.charge
	}
	e.charge = 0
	if e.counted {
		e.counted = false
		e.tenant.of.discharge(e.tenant, e)
	}
}

// setState changes the state and counts anew what is outstanding.
func (e *Entry) setState(s State) {
	if e.state == Waiting {
		e.tenant.waits(-1)
	}
	if s == Waiting {
		e.tenant.waits(1)
	}
	e.state = s
	for _, h := range e.holders {
		h.stream.settle(h)
	}
}

// waits notes that one entry more of the user waits for room, or one less.
func (t *tenant) waits(n int) {
	t.waiting += n
	t.of.stale = true
}
