package writeback

import (
	"errors"
	"io/fs"
	"maps"
	"slices"
)

// keptRecord keeps a publication whose file is about to lose its name to another one:
// something that was committed since waits for it. It has its own place in the order,
// and what takes the name a later one. Over, it is given up.
type keptRecord struct {
	Op   uint64
	Over bool
}

func (*keptRecord) kind() recordKind { return kindKept }
func (r *keptRecord) walk(c *coder) {
	c.uint(&r.Op)
	c.bool(&r.Over)
}

func (r *keptRecord) apply(st *state) {
	op := st.Ops[r.Op]
	switch {
	case op == nil || op.Kind != opPut:
	case r.Over:
		st.giveUp(op)
	case !st.Kept[op.ID]:
		st.Kept[op.ID] = true
		st.keptOf[op.File] = op.ID
		st.keptAt[op.Key]++
		if k := st.Keys[op.Key]; k.Pending == op.ID {
			k.Pending = 0
		}
	}
}

const (
	// maxKept is how many replaced files are kept at once. They may have a keptShare of
	// what staged files may occupy, or maxKeptBytes where that is not bounded: what is
	// saved again and again while the object store cannot be reached must not fill the
	// disk with all that it replaces.
	maxKept      = 1000
	keptShare    = 4
	maxKeptBytes = 32 << 30
)

// keeping returns r, which moves a file, with what keeps the publication that is due
// where it goes, if something waits for that. Where there are too many already, or
// somebody still writes to what is replaced, which may never end, the file that is
// moved gets its place instead, as if it had been written over it; and where the disk has
// lost what is replaced. s.mu is held.
func (s *Space) keeping(r *renamedRecord) record {
	op, from := s.mu.replaced(r.To.Key, r.File)
	if op == nil {
		return r
	}
	w := s.mu.writing[op.File]
	written := w != nil && w.opens > 0
	if !written && !s.mu.Files[op.File].suspect() && (!s.keepsEnough(op) || !s.mu.Files[r.File].hasContent()) {
		return &groupRecord{Records: []record{&keptRecord{Op: op.ID}, r}}
	}
	return &groupRecord{Records: []record{r, &placedRecord{Op: s.mu.NextOp, Order: from}}}
}

// keepsEnough reports whether op would be kept beside too many others, or too much. s.mu
// is held.
func (s *Space) keepsEnough(op *operation) bool {
	room := int64(maxKeptBytes)
	if s.cfg.StagingSize > 0 {
		room = s.cfg.StagingSize / keptShare
	}
	room -= s.mu.stagedSize(op)
	for id := range s.mu.Kept {
		room -= s.mu.stagedSize(s.mu.Ops[id])
	}
	return room < 0 || len(s.mu.Kept) >= maxKept
}

// stagedSize returns how many bytes the staged file of op has.
func (st *state) stagedSize(op *operation) int64 {
	if f := st.Files[op.File]; f != nil && f.Staged {
		return max(f.Size, 0)
	}
	return 0
}

// replaced returns the publication at key without which something must not appear
// that was committed later, when the file by is moved there, and its place; nil if there
// is none.
func (st *state) replaced(key string, by fileID) (op *operation, from uint64) {
	k := st.Keys[key]
	if k == nil {
		return nil, 0
	}
	if op = st.Ops[k.Pending]; op == nil {
		op = st.Ops[k.Flight]
	}
	if op == nil || op.Kind != opPut || op.File == by {
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
	case k.present() && k.Flight == 0 && len(k.Maybe) == 0 && (f.Staged && f.PubGen == f.Gen && k.Remote.Same(f.Published) || !f.Staged && k.Remote.Same(f.Object)):
		// Its content is there, and only its attributes are not.
		return nil, 0
	}
	from = op.Order
	if x := st.Ops[k.Flight]; x != nil && x.Kind == opPut && x.File == op.File {
		// Should that fail, op is to have its place.
		from = min(from, x.Order)
	}
	waits := func(x *operation) bool {
		return x.Key != key && x.Kind != opMarker && (x.Kind != opPut || x.File != by)
	}
	// Where the disk lost something else goes on.
	if st.recent.beside(op.Dir, from, waits) || !f.suspect() && st.recent.barrier(from, waits) {
		return op, from
	}
	return nil, 0
}

// isObject reports whether the committed content of f, or what it lacks of it, is the object
// that key holds.
func (f *fileState) isObject(key string) bool {
	if f.Staged && f.Partial != nil && f.Partial.Base.Key == key {
		return true
	}
	return f.Object.Key == key && f.Object.ETag != "" && (!f.Staged || f.Gen == f.BaseGen)
}

// comeBack gives up what is kept where f has gone, if that has come back to the object
// that its content is.
func (st *state) comeBack(f *fileState) {
	if st.keptAt[f.Key] == 0 || !f.isObject(f.Key) {
		return
	}
	for _, id := range slices.Sorted(maps.Keys(st.Kept)) {
		if op := st.Ops[id]; op.Key == f.Key && !op.Begun {
			st.giveUp(op)
		}
	}
}

// unkeep notes that op has ended.
func (st *state) unkeep(op *operation) {
	if !st.Kept[op.ID] {
		return
	}
	delete(st.Kept, op.ID)
	delete(st.keptOf, op.File)
	if st.keptAt[op.Key]--; st.keptAt[op.Key] == 0 {
		delete(st.keptAt, op.Key)
	}
	st.unkept = append(st.unkept, op.File)
}

// giveUp drops op, if it is one that is kept.
func (st *state) giveUp(op *operation) {
	if op != nil && st.Kept[op.ID] {
		st.drop(op)
		st.dropUnnamed(op)
	}
}

// dropUnnamed forgets the key of op, which has ended, if its name means something else
// by now.
func (st *state) dropUnnamed(op *operation) {
	dir, base := op.at()
	if n, ok := st.lookup(dir, base); !ok || n.Key != op.Key {
		st.dropKey(op.Key)
	}
}

// nextOf returns what is published next where op, which is kept, is: another one that is,
// or what has the name now; nil if that is nothing.
func (st *state) nextOf(op *operation) *operation {
	var next *operation
	for id := range st.Kept {
		if x := st.Ops[id]; x.Key == op.Key && x.Order > op.Order && (next == nil || x.Order < next.Order) {
			next = x
		}
	}
	if next == nil {
		next = st.Ops[st.Keys[op.Key].Pending]
	}
	if next == nil || next.Kind != opPut {
		return nil
	}
	return next
}

// loseKept drops op, which is kept, for its file f is lost. What has the name now gets its
// place, if that is to be published.
func (st *state) loseKept(f *fileState, op *operation) {
	next := st.nextOf(op)
	if next == nil {
		st.lose(f)
	}
	st.giveUp(op)
	if next != nil {
		st.place(next, op.Order)
	}
}

// giveUpKept gives the place of op to what has its name now. s.mu is held.
func (s *Space) giveUpKept(op operation) {
	r := &groupRecord{Records: []record{&keptRecord{Op: op.ID, Over: true}}}
	if next := s.mu.nextOf(&op); next != nil {
		r.Records = append(r.Records, &placedRecord{Op: next.ID, Order: op.Order})
	}
	s.record(r)
	s.log.Info("a file that was replaced before it was published cannot be: what was closed since waits for what has its name now",
		"path", join(op.Dir, op.Name), "key", op.Key)
}

// restless reports whether a replaced file that err kept from being published may never
// be: it is changed still, under no name, or cannot be read.
func (s *Space) restless(op *operation, run *opRun, err error) bool {
	var failed *fs.PathError
	return errors.Is(err, errUnfinished) || errors.Is(err, errUnsteady) && run.unsteady+1 >= maxUnsteady ||
		errors.As(err, &failed) && failed.Path == s.path(op.File)
}

// releaseUnkept forgets the files of which nothing is kept any more.
func (s *Space) releaseUnkept() {
	s.mu.Lock()
	var files []*File
	for _, id := range s.mu.unkept {
		if st := s.mu.Files[id]; st != nil && !st.Linked && s.mu.keptOf[id] == 0 {
			files = append(files, s.file(id))
		}
	}
	s.mu.unkept = s.mu.unkept[:0]
	s.mu.Unlock()
	for _, f := range files {
		s.released(f)
	}
}
