package state

import (
	"container/heap"
	"slices"

	"github.com/pailfs/pailfs/fs/writeback/internal/order"
)

// Tally counts what status, metrics and the committer ask of a state, where that changes: a
// look at all that is pending would hold Space.mu for a second with a million files. It follows
// from the state; [State.recount] is where a file is counted anew.
type Tally struct {
	// Files is what is counted of each file.
	Files map[order.FileID]Weight
	// DirtyFiles are the uploads and copies that are due, of files that are there, DirtyBytes
	// what is staged of those.
	DirtyFiles int
	DirtyBytes int64
	// records is about how many bytes a journal needs to say what the files are.
	records int64
	// Suspects are the files whose last generation the disk lost.
	Suspects map[order.FileID]bool
	// Oldest finds since when the oldest operation waits.
	Oldest oldest
	// touched are the files that the record which is being applied has changed, counted
	// those that were counted since somebody looked.
	touched, Counted []order.FileID
}

// Weight is what is counted of one file.
type Weight struct {
	// own is [File.own] if that is to be published, in bytes, puts how many operations
	// do that, record what the journal needs.
	own    int64
	record int32
	puts   uint16
	there  bool
}

// NewTally returns one that has counted nothing.
func NewTally() Tally {
	return Tally{Files: make(map[order.FileID]Weight), Suspects: make(map[order.FileID]bool)}
}

// touch has a file counted when the record was applied.
func (t *Tally) touch(id order.FileID) { t.touched = append(t.touched, id) }

// Began counts an operation that is new.
func (t *Tally) Began(op *order.Operation) {
	t.Oldest.add(op)
	t.puts(op, 1)
}

// ended does not count an operation any more; ops are the others.
func (t *Tally) ended(op *order.Operation, ops map[uint64]*order.Operation) {
	t.Oldest.remove(ops)
	t.puts(op, -1)
}

func (t *Tally) puts(op *order.Operation, by int) {
	if op.Kind != order.Put {
		return
	}
	w := t.Files[op.File]
	if w.there {
		t.DirtyFiles += by
		t.DirtyBytes += int64(by) * w.own
	}
	w.puts = uint16(int(w.puts) + by)
	t.Files[op.File] = w
	t.touch(op.File)
}

// recount counts the files that the last record has changed.
func (st *State) recount() {
	for _, id := range st.Tally.touched {
		st.Tally.Set(id, st.Files[id])
	}
	st.Tally.Counted = append(st.Tally.Counted, st.Tally.touched...)
	st.Tally.touched = st.Tally.touched[:0]
}

// Set counts a file as it is; f is nil if it is gone.
func (t *Tally) Set(id order.FileID, f *File) {
	w := t.Files[id]
	if w.there {
		t.DirtyFiles -= int(w.puts)
		t.DirtyBytes -= int64(w.puts) * w.own
		t.records -= int64(w.record)
	}
	w = weightOf(f, w.puts)
	if w.there {
		t.DirtyFiles += int(w.puts)
		t.DirtyBytes += int64(w.puts) * w.own
		t.records += int64(w.record)
	}
	if w == (Weight{}) {
		delete(t.Files, id)
	} else {
		t.Files[id] = w
	}
	if f != nil && f.IsSuspect() {
		t.Suspects[id] = true
	} else {
		delete(t.Suspects, id)
	}
}

// weightOf returns what is counted of a file that as many operations publish.
func weightOf(f *File, puts uint16) Weight {
	w := Weight{puts: puts, there: f != nil}
	if f == nil {
		return w
	}
	if f.Staged && puts > 0 {
		w.own = f.Own()
	}
	w.record = f.recordSize()
	return w
}

// recordSize is about how many bytes a journal needs to say what f is.
func (f *File) recordSize() int32 {
	size := int64(300)
	for _, p := range []*Partial{f.Partial, f.Vouched} {
		if p != nil {
			size += 200 + int64(len(p.Local))
		}
	}
	if f.XAttrs != nil {
		size += int64(len(f.XAttrs.Given) + len(f.XAttrs.Pub))
	}
	if f.Inline == f.Gen && f.Staged {
		size += f.Size
	}
	return int32(min(max(size, 0), 1<<30))
}

// Live is about how many bytes a journal has that says no more than st.
func (st *State) Live() int64 {
	return st.Tally.records + 200*int64(len(st.Ops)+len(st.Keys))
}

// oldest finds the operation that was wanted first. What has ended stays until it is met, or
// until there is more of that than of the others.
type oldest struct {
	heap waits
	gone int
}

// wait is since when an operation waits, in nanoseconds since 1970.
type wait struct {
	at int64
	id uint64
}

func (o *oldest) add(op *order.Operation) { heap.Push(&o.heap, wait{op.At, op.ID}) }

// remove notes that one of them has ended; ops are the others.
func (o *oldest) remove(ops map[uint64]*order.Operation) {
	if o.gone++; o.gone > 64 && o.gone > len(o.heap)/2 {
		o.heap = slices.DeleteFunc(o.heap, func(w wait) bool { return ops[w.id] == nil })
		heap.Init(&o.heap)
		o.gone = 0
	}
}

// Since returns when the first of ops was wanted, and false if there is none.
func (o *oldest) Since(ops map[uint64]*order.Operation) (int64, bool) {
	for len(o.heap) > 0 && ops[o.heap[0].id] == nil {
		heap.Pop(&o.heap)
		o.gone--
	}
	if len(o.heap) == 0 {
		return 0, false
	}
	return o.heap[0].at, true
}

// waits is a heap with what waits longest first.
type waits []wait

func (h waits) Len() int { return len(h) }

func (h waits) Less(i, j int) bool { return h[i].at < h[j].at }

func (h waits) Swap(i, j int) { h[i], h[j] = h[j], h[i] }

func (h *waits) Push(x any) { *h = append(*h, x.(wait)) }

func (h *waits) Pop() any {
	last := len(*h) - 1
	x := (*h)[last]
	*h = (*h)[:last]
	return x
}
