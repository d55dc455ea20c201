package state

import (
	"maps"
	"slices"

	"github.com/pailfs/pailfs/fs/writeback/internal/order"
)

// Kept keeps a publication whose file is about to lose its name to another one:
// something that was committed since waits for it. It has its own place in the order,
// and what takes the name a later one. Over, it is given up.
type Kept struct {
	Op   uint64
	Over bool
}

func (*Kept) kind() recordKind { return kindKept }

func (r *Kept) walk(c *coder) {
	c.uint(&r.Op)
	c.bool(&r.Over)
}

func (r *Kept) apply(st *State) {
	op := st.Ops[r.Op]
	switch {
	case op == nil || op.Kind != order.Put:
	case r.Over:
		st.giveUp(op)
	case !st.Kept[op.ID]:
		st.Kept[op.ID] = true
		st.KeptOf[op.File] = op.ID
		st.KeptAt[op.Key]++
		if k := st.Keys[op.Key]; k.Pending == op.ID {
			k.Pending = 0
		}
	}
}

// StagedSize returns how many bytes the staged file of op has.
func (st *State) StagedSize(op *order.Operation) int64 {
	if f := st.Files[op.File]; f != nil && f.Staged {
		return max(f.Size, 0)
	}
	return 0
}

// Replaced returns the publication at key without which something must not appear
// that was committed later, when the file by is moved there, and its place; nil if there
// is none.
func (st *State) Replaced(key string, by order.FileID) (op *order.Operation, from uint64) {
	k := st.Keys[key]
	if k == nil {
		return nil, 0
	}
	if op = st.Ops[k.Pending]; op == nil {
		op = st.Ops[k.Flight]
	}
	if op == nil || op.Kind != order.Put || op.File == by {
		return nil, 0
	}
	f, mover := st.Files[op.File], st.Files[by]
	switch {
	case mover == nil || mover.isObject(key):
		// Nothing may replace the object that its content is.
		return nil, 0
	case f == nil || !f.Linked || f.Key != key:
		return nil, 0
	case f.Staged && f.Gen == f.BaseGen:
		// Nothing of it was committed.
		return nil, 0
	case k.Present() && k.Flight == 0 && len(k.Maybe) == 0 && (f.Staged && f.PubGen == f.Gen && k.Remote.Same(f.Published) || !f.Staged && k.Remote.Same(f.Object)):
		// Its content is there, and only its attributes are not.
		return nil, 0
	}
	from = op.Order
	if x := st.Ops[k.Flight]; x != nil && x.Kind == order.Put && x.File == op.File {
		// Should that fail, op is to have its place.
		from = min(from, x.Order)
	}
	waits := func(x *order.Operation) bool {
		return x.Key != key && x.Kind != order.Marker && (x.Kind != order.Put || x.File != by)
	}
	// Where the disk lost something else goes on.
	if st.recent.Beside(op.Dir, from, waits) || !f.IsSuspect() && st.recent.Barrier(from, waits) {
		return op, from
	}
	return nil, 0
}

// isObject reports whether the committed content of f, or what it lacks of it, is the object
// that key holds.
func (f *File) isObject(key string) bool {
	if f.Staged && f.Partial != nil && f.Partial.Base.Key == key {
		return true
	}
	return f.Object.Key == key && f.Object.ETag != "" && (!f.Staged || f.Gen == f.BaseGen)
}

// comeBack gives up what is kept where f has gone, if that has come back to the object
// that its content is.
func (st *State) comeBack(f *File) {
	if st.KeptAt[f.Key] == 0 || !f.isObject(f.Key) {
		return
	}
	for _, id := range slices.Sorted(maps.Keys(st.Kept)) {
		if op := st.Ops[id]; op.Key == f.Key && !op.Begun {
			st.giveUp(op)
		}
	}
}

// unkeep notes that op has ended.
func (st *State) unkeep(op *order.Operation) {
	if !st.Kept[op.ID] {
		return
	}
	delete(st.Kept, op.ID)
	delete(st.KeptOf, op.File)
	if st.KeptAt[op.Key]--; st.KeptAt[op.Key] == 0 {
		delete(st.KeptAt, op.Key)
	}
	st.Unkept = append(st.Unkept, op.File)
}

// giveUp drops op, if it is one that is kept.
func (st *State) giveUp(op *order.Operation) {
	if op != nil && st.Kept[op.ID] {
		st.drop(op)
		st.dropUnnamed(op)
	}
}

// dropUnnamed forgets the key of op, which has ended, if its name means something else
// by now.
func (st *State) dropUnnamed(op *order.Operation) {
	dir, base := op.Target()
	if n, ok := st.Lookup(dir, base); !ok || n.Key != op.Key {
		st.dropKey(op.Key)
	}
}

// NextOf returns what is published next where op, which is kept, is: another one that is,
// or what has the name now; nil if that is nothing.
func (st *State) NextOf(op *order.Operation) *order.Operation {
	var next *order.Operation
	for id := range st.Kept {
		if x := st.Ops[id]; x.Key == op.Key && x.Order > op.Order && (next == nil || x.Order < next.Order) {
			next = x
		}
	}
	if next == nil {
		next = st.Ops[st.Keys[op.Key].Pending]
	}
	if next == nil || next.Kind != order.Put {
		return nil
	}
	return next
}

// loseKept drops op, which is kept, for its file f is lost. What has the name now gets its
// place, if that is to be published.
func (st *State) loseKept(f *File, op *order.Operation) {
	next := st.NextOf(op)
	if next == nil {
		st.lose(f)
	}
	st.giveUp(op)
	if next != nil {
		st.place(next, op.Order)
	}
}
