package writeback

import "github.com/pailfs/pailfs/oss"

// A file that is published has an object under its name. When it gets another name, that object
// is all that the bucket has of it until it is published there. So the removal of the old key
// comes after that, however often the file is renamed, and whatever fails: a staged file may
// go with its machine.

// putOffRecord has the removal of a key wanted anew, after all that is wanted already. It stands in
// one group with the renaming of a file that is to be published before it.
type putOffRecord struct {
	Key  string
	Time int64
}

func (*putOffRecord) kind() recordKind { return kindPutOff }
func (r *putOffRecord) walk(c *coder) {
	c.string(&r.Key)
	c.int(&r.Time)
}

func (r *putOffRecord) apply(st *state) {
	if op := st.removal(r.Key); op != nil {
		st.putOff(*op, r.Time)
	}
}

// putOff has a removal wanted anew, after all else that the record brings, unless another file gets
// the name by the same record: then nothing is to be removed.
func (st *state) putOff(gone operation, at int64) {
	st.after = append(st.after, func() {
		if now := st.removal(gone.Key); now != nil && now.ID == gone.ID {
			st.wantGone(gone.Key, gone.Dir, gone.Name, at)
			return
		}
		// Journals are there whose numbers of operations count one here.
		k := st.Keys[gone.Key]
		if known := k.Flight == 0 && len(k.Maybe) == 0 && st.keptAt[gone.Key] == 0; k.present() || !known {
			st.NextOp++
		}
	})
}

// removal returns the removal of a key that has not begun, nil if there is none.
func (st *state) removal(key string) *operation {
	k := st.Keys[key]
	if k == nil {
		return nil
	}
	if op := st.Ops[k.Pending]; op != nil && op.Kind == opDelete {
		return op
	}
	return nil
}

// leftBehind returns the object that a file was published as under another name, none if there
// is no such.
func (f *fileState) leftBehind() oss.Object {
	if !f.Linked || f.Published.Key == f.Key {
		return oss.Object{}
	}
	return f.Published
}

// puttingOff returns what puts off the removal of the object that f has left behind, as it is
// renamed once more, to the key to; nothing if there is no such.
func (st *state) puttingOff(f *fileState, to string, at int64) []record {
	left := f.leftBehind()
	if left.ETag == "" || left.Key == to || st.removal(left.Key) == nil {
		return nil
	}
	return []record{&putOffRecord{Key: left.Key, Time: at}}
}

// renaming returns r, which renames f once more, with what puts off the removal of the object
// that it has left behind before. s.mu is held.
func (s *Space) renaming(r *renamedRecord, f *fileState) record {
	return together(s.keeping(r), s.mu.puttingOff(f, r.To.Key, r.Time))
}

// together returns one record of r and those that are to happen with it.
func together(r record, with []record) record {
	if len(with) == 0 {
		return r
	}
	group, is := r.(*groupRecord)
	if !is {
		group = &groupRecord{Records: []record{r}}
	}
	group.Records = append(group.Records, with...)
	return group
}

// lastCopy reports whether op, a removal, would take the only object of a file that was to be
// published elsewhere before it, and cannot be as things are. What can be goes before it by the
// order. s.mu is held.
func (s *Space) lastCopy(op *operation) bool {
	k := s.mu.Keys[op.Key]
	if op.Kind != opDelete || k == nil {
		return false
	}
	for id := range s.mu.displacedAt(op.Key) {
		f := s.mu.Files[id]
		if left := f.leftBehind(); left.Key != op.Key || !sameBytes(left, k.Remote) {
			continue
		}
		to := s.mu.Keys[f.Key]
		if to == nil {
			continue
		}
		for _, id := range []uint64{to.Pending, to.Flight} {
			put := s.mu.Ops[id]
			if put == nil || put.Kind != opPut || put.File != f.ID || put.Order > op.Order {
				continue
			}
			if st := s.standing(put); st.failing || st.absent {
				return true
			}
		}
	}
	return false
}
