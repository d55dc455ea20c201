package state

import (
	"maps"
	"slices"

	"github.com/pailfs/pailfs/fs/writeback/internal/order"
)

// Placed gives an operation the place of one that had begun and is undone, whose
// file was committed again meanwhile: what came in between waits for it.
type Placed struct{ Op, Order uint64 }

func (*Placed) kind() recordKind { return kindPlaced }

func (r *Placed) walk(c *coder) {
	c.uint(&r.Op)
	c.uint(&r.Order)
}

func (r *Placed) apply(st *State) {
	if op := st.Ops[r.Op]; op != nil && !op.Begun {
		st.place(op, r.Order)
	}
}

// place gives op, which has not begun, an earlier place.
func (st *State) place(op *order.Operation, order uint64) {
	if op.Order <= order {
		return
	}
	st.follow(op, -1)
	st.Queue.Remove(op)
	op.Order = order
	st.Queue.Add(op)
	st.recent.Put(op)
	st.follow(op, 1)
}

// succession returns the record that gives the place of op, which has begun, to newer
// content of its file; nil if there is none, or nothing waits for that.
func (st *State) succession(op *order.Operation) Record {
	next := st.Ops[st.Keys[op.Key].Pending]
	if id := st.KeptOf[op.File]; id != 0 && id != op.ID {
		next = st.Ops[id]
	}
	if !op.Begun || op.Kind != order.Put || next == nil || next.Kind != order.Put || next.Key != op.Key || next.File != op.File || next.Order <= op.Order || st.Kept[op.ID] || st.recent.Yields(op) {
		return nil
	}
	return &Placed{Op: next.ID, Order: op.Order}
}

// Successions returns the records that say so of all that has begun, when a run of the
// daemon has ended.
func (st *State) Successions() []Record {
	var all []Record
	for _, id := range slices.Sorted(maps.Keys(st.Ops)) {
		if r := st.succession(st.Ops[id]); r != nil {
			all = append(all, r)
		}
	}
	return all
}

// Undoing returns the record that says that the request of op failed, perhaps after the
// deed.
func (st *State) Undoing(op *order.Operation) Record {
	undone := &Undone{Op: op.ID}
	if r := st.succession(op); r != nil {
		return &Group{Records: []Record{r, undone}}
	}
	return undone
}
