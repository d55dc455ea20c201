package writeback

import (
	"container/heap"
	"slices"
)

// tally counts what status, metrics and the committer ask of a state, where that changes: a
// look at all that is pending would hold Space.mu for a second with a million files. It follows
// from the state; [state.recount] is where a file is counted anew.
type tally struct {
	// files is what is counted of each file.
	files map[fileID]weight
	// dirtyFiles are the uploads and copies that are due, of files that are there, dirtyBytes
	// what is staged of those.
	dirtyFiles int
	dirtyBytes int64
	// records is about how many bytes a journal needs to say what the files are.
	records int64
	// suspects are the files whose last generation the disk lost.
	suspects map[fileID]bool
	// oldest finds since when the oldest operation waits.
	oldest oldest
	// touched are the files that the record which is being applied has changed, counted
	// those that were counted since somebody looked.
	touched, counted []fileID
}

// weight is what is counted of one file.
type weight struct {
	// own is [fileState.own] if that is to be published, in bytes, puts how many operations
	// do that, record what the journal needs.
	own    int64
	record int32
	puts   uint16
	there  bool
}

func newTally() tally {
	return tally{files: make(map[fileID]weight), suspects: make(map[fileID]bool)}
}

// touch has a file counted when the record was applied.
func (t *tally) touch(id fileID) { t.touched = append(t.touched, id) }

// began counts an operation that is new.
func (t *tally) began(op *operation) {
	t.oldest.add(op)
	t.puts(op, 1)
}

// ended does not count an operation any more; ops are the others.
func (t *tally) ended(op *operation, ops map[uint64]*operation) {
	t.oldest.remove(ops)
	t.puts(op, -1)
}

func (t *tally) puts(op *operation, by int) {
	if op.Kind != opPut {
		return
	}
	w := t.files[op.File]
	if w.there {
		t.dirtyFiles += by
		t.dirtyBytes += int64(by) * w.own
	}
	w.puts = uint16(int(w.puts) + by)
	t.files[op.File] = w
	t.touch(op.File)
}

// recount counts the files that the last record has changed.
func (st *state) recount() {
	for _, id := range st.tally.touched {
		st.tally.set(id, st.Files[id])
	}
	st.tally.counted = append(st.tally.counted, st.tally.touched...)
	st.tally.touched = st.tally.touched[:0]
}

// set counts a file as it is; f is nil if it is gone.
func (t *tally) set(id fileID, f *fileState) {
	w := t.files[id]
	if w.there {
		t.dirtyFiles -= int(w.puts)
		t.dirtyBytes -= int64(w.puts) * w.own
		t.records -= int64(w.record)
	}
	w = weightOf(f, w.puts)
	if w.there {
		t.dirtyFiles += int(w.puts)
		t.dirtyBytes += int64(w.puts) * w.own
		t.records += int64(w.record)
	}
	if w == (weight{}) {
		delete(t.files, id)
	} else {
		t.files[id] = w
	}
	if f != nil && f.suspect() {
		t.suspects[id] = true
	} else {
		delete(t.suspects, id)
	}
}

// weightOf returns what is counted of a file that as many operations publish.
func weightOf(f *fileState, puts uint16) weight {
	w := weight{puts: puts, there: f != nil}
	if f == nil {
		return w
	}
	if f.Staged && puts > 0 {
		w.own = f.own()
	}
	w.record = f.recordSize()
	return w
}

// recordSize is about how many bytes a journal needs to say what f is.
func (f *fileState) recordSize() int32 {
	size := int64(300)
	for _, p := range []*partial{f.Partial, f.Vouched} {
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

// live is about how many bytes a journal has that says no more than st.
func (st *state) live() int64 {
	return st.tally.records + 200*int64(len(st.Ops)+len(st.Keys))
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

func (o *oldest) add(op *operation) { heap.Push(&o.heap, wait{op.At, op.ID}) }

// remove notes that one of them has ended; ops are the others.
func (o *oldest) remove(ops map[uint64]*operation) {
	if o.gone++; o.gone > 64 && o.gone > len(o.heap)/2 {
		o.heap = slices.DeleteFunc(o.heap, func(w wait) bool { return ops[w.id] == nil })
		heap.Init(&o.heap)
		o.gone = 0
	}
}

// since returns when the first of ops was wanted, and false if there is none.
func (o *oldest) since(ops map[uint64]*operation) (int64, bool) {
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

func (h waits) Len() int           { return len(h) }
func (h waits) Less(i, j int) bool { return h[i].at < h[j].at }
func (h waits) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *waits) Push(x any)        { *h = append(*h, x.(wait)) }

func (h *waits) Pop() any {
	last := len(*h) - 1
	x := (*h)[last]
	*h = (*h)[:last]
	return x
}
