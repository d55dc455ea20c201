package writeback

import (
	"fmt"
	"maps"
	"slices"

	"github.com/pailfs/pailfs/oss"
)

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

// keptFor returns the publication before which op, a removal, must not be carried out: the key
// holds the object that a renamed file was published as under its old name, and there is no other
// of it until that publication ends. It is nil if there is none.
func (st *state) keptFor(op *operation) *operation {
	k := st.Keys[op.Key]
	if op.Kind != opDelete || k == nil {
		return nil
	}
	for _, id := range slices.Sorted(maps.Keys(st.displacedAt(op.Key))) {
		f := st.Files[id]
		// What a request whose end is not known may have made there may be the file's, too.
		if left := f.leftBehind(); left.Key != op.Key || !sameBytes(left, k.Remote) && len(k.Maybe) == 0 {
			continue
		}
		to := st.Keys[f.Key]
		if to == nil {
			continue
		}
		for _, id := range []uint64{to.Pending, to.Flight} {
			if put := st.Ops[id]; put != nil && put.Kind == opPut && put.File == f.ID {
				return put
			}
		}
	}
	return nil
}

// lastCopy reports whether op, a removal, has to wait for kept although the order would let it
// pass: kept comes later, was written again for example, or cannot be carried out as things are.
// What is before op and can be is left to the order. s.mu is held.
func (s *Space) lastCopy(op, kept *operation) bool {
	if kept == nil || kept.Order >= op.Order {
		return kept != nil
	}
	st := s.standing(kept)
	return st.failing || st.absent
}

// heldRemoval is a removal that waits for a publication that may come later in the order: what
// becomes of one becomes of the other.
type heldRemoval struct{ gone, put *operation }

// path is the name that goes.
func (h heldRemoval) path() string { return join(h.gone.Dir, h.gone.Name) }

// error says which publication h waits for, and why that is not carried out, if that is known.
func (h heldRemoval) error(cause error) error {
	fresh := join(h.put.Dir, h.put.Name)
	if cause == nil {
		return fmt.Errorf("%q is the only object of %q, which cannot be published yet", h.path(), fresh)
	}
	return fmt.Errorf("%q is the only object of %q, which cannot be published: %w", h.path(), fresh, cause)
}
