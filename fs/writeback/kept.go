package writeback

import (
	"errors"
	"io/fs"

	"github.com/pailfs/pailfs/fs/writeback/internal/order"
	"github.com/pailfs/pailfs/fs/writeback/internal/state"
)

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
func (s *Space) keeping(r *state.Renamed) state.Record {
	op, from := s.mu.Replaced(r.To.Key, r.File)
	if op == nil {
		return r
	}
	w := s.mu.writing[op.File]
	written := w != nil && w.opens > 0
	if !written && !s.mu.Files[op.File].IsSuspect() && (!s.keepsEnough(op) || !s.mu.Files[r.File].HasContent()) {
		return &state.Group{Records: []state.Record{&state.Kept{Op: op.ID}, r}}
	}
	return &state.Group{Records: []state.Record{r, &state.Placed{Op: s.mu.NextOp, Order: from}}}
}

// keepsEnough reports whether op would be kept beside too many others, or too much. s.mu
// is held.
func (s *Space) keepsEnough(op *order.Operation) bool {
	room := int64(maxKeptBytes)
	if s.cfg.StagingSize > 0 {
		room = s.cfg.StagingSize / keptShare
	}
	room -= s.mu.StagedSize(op)
	for id := range s.mu.Kept {
		room -= s.mu.StagedSize(s.mu.Ops[id])
	}
	return room < 0 || len(s.mu.Kept) >= maxKept
}

// giveUpKept gives the place of op to what has its name now. s.mu is held.
func (s *Space) giveUpKept(op order.Operation) {
	r := &state.Group{Records: []state.Record{&state.Kept{Op: op.ID, Over: true}}}
	if next := s.mu.NextOf(&op); next != nil {
		r.Records = append(r.Records, &state.Placed{Op: next.ID, Order: op.Order})
	}
	s.record(r)
	s.log.Info("a file that was replaced before it was published cannot be: what was closed since waits for what has its name now",
		"path", order.Join(op.Dir, op.Name), "key", op.Key)
}

// restless reports whether a replaced file that err kept from being published may never
// be: it is changed still, under no name, or cannot be read.
func (s *Space) restless(op *order.Operation, run *opRun, err error) bool {
	var failed *fs.PathError
	return errors.Is(err, errUnfinished) || errors.Is(err, errUnsteady) && run.unsteady+1 >= maxUnsteady ||
		errors.As(err, &failed) && failed.Path == s.path(op.File)
}

// releaseUnkept forgets the files of which nothing is kept any more.
func (s *Space) releaseUnkept() {
	s.mu.Lock()
	var files []*File
	for _, id := range s.mu.Unkept {
		if st := s.mu.Files[id]; st != nil && !st.Linked && s.mu.KeptOf[id] == 0 {
			files = append(files, s.file(id))
		}
	}
	s.mu.Unkept = s.mu.Unkept[:0]
	s.mu.Unlock()
	for _, f := range files {
		s.released(f)
	}
}
