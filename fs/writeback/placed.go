package writeback

import (
	"maps"
	"slices"
)

// placedRecord gives an operation the place of one that had begun and is undone, whose
// file was committed again meanwhile: what came in between waits for it.
type placedRecord struct{ Op, Order uint64 }

func (*placedRecord) kind() recordKind { return kindPlaced }
func (r *placedRecord) walk(c *coder) {
	c.uint(&r.Op)
	c.uint(&r.Order)
}

func (r *placedRecord) apply(st *state) {
	if op := st.Ops[r.Op]; op != nil && !op.Begun {
		st.place(op, r.Order)
	}
}

// place gives op, which has not begun, an earlier place.
func (st *state) place(op *operation, order uint64) {
	if op.Order <= order {
		return
	}
	st.follow(op, -1)
	st.queue.remove(op)
	op.Order = order
	st.queue.add(op)
	st.recent.put(op)
	st.follow(op, 1)
}

// succession returns the record that gives the place of op, which has begun, to newer
// content of its file; nil if there is none, or nothing waits for that.
func (st *state) succession(op *operation) record {
	next := st.Ops[st.Keys[op.Key].Pending]
	if id := st.keptOf[op.File]; id != 0 && id != op.ID {
		next = st.Ops[id]
	}
	if !op.Begun || op.Kind != opPut || next == nil || next.Kind != opPut || next.Key != op.Key || next.File != op.File || next.Order <= op.Order || st.Kept[op.ID] || st.recent.yields(op) {
		return nil
	}
	return &placedRecord{Op: next.ID, Order: op.Order}
}

// successions returns the records that say so of all that has begun, when a run of the
// daemon has ended.
func (st *state) successions() []record {
	var all []record
	for _, id := range slices.Sorted(maps.Keys(st.Ops)) {
		if r := st.succession(st.Ops[id]); r != nil {
			all = append(all, r)
		}
	}
	return all
}

// undoing returns the record that says that the request of op failed, perhaps after the
// deed.
func (st *state) undoing(op *operation) record {
	undone := &undoneRecord{Op: op.ID}
	if r := st.succession(op); r != nil {
		return &groupRecord{Records: []record{r, undone}}
	}
	return undone
}
