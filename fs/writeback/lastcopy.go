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
	op := st.removal(r.Key)
	if op == nil {
		return
	}
	gone := *op
	st.after = append(st.after, func() { st.wantGone(gone.Key, gone.Dir, gone.Name, r.Time) })
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

// puttingOff returns what puts off the removal of the object that f has left behind, as r renames
// it once more; nothing if there is no such.
func (st *state) puttingOff(f *fileState, r *renamedRecord) []record {
	left := f.leftBehind()
	if left.ETag == "" || left.Key == r.To.Key || st.removal(left.Key) == nil {
		return nil
	}
	return []record{&putOffRecord{Key: left.Key, Time: r.Time}}
}

// renaming returns r, which renames f once more, with what puts off the removal of the object
// that it has left behind before. s.mu is held.
func (s *Space) renaming(r *renamedRecord, f *fileState) record {
	with := s.keeping(r)
	late := s.mu.puttingOff(f, r)
	switch group := with.(type) {
	case *groupRecord:
		group.Records = append(group.Records, late...)
	default:
		if len(late) > 0 {
			return &groupRecord{Records: append([]record{r}, late...)}
		}
	}
	return with
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
