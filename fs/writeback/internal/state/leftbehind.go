package state

import (
	"maps"
	"slices"

	"github.com/pailfs/pailfs/fs/writeback/internal/order"
	"github.com/pailfs/pailfs/oss"
)

// A file that is published has an object under its name. When it gets another name, that object
// is all that the bucket has of it until it is published there. So the removal of the old key
// comes after that, however often the file is renamed, and whatever fails: a staged file may
// go with its machine.

// PutOff has the removal of a key wanted anew, after all that is wanted already. It stands in
// one group with the renaming of a file that is to be published before it.
type PutOff struct {
	Key  string
	Time int64
}

func (*PutOff) kind() recordKind { return kindPutOff }

func (r *PutOff) walk(c *coder) {
	c.string(&r.Key)
	c.int(&r.Time)
}

func (r *PutOff) apply(st *State) {
	if op := st.removal(r.Key); op != nil {
		st.putOff(*op, r.Time)
	}
}

// putOff has a removal wanted anew, after all else that the record brings, unless another file gets
// the name by the same record: then nothing is to be removed.
func (st *State) putOff(gone order.Operation, at int64) {
	st.after = append(st.after, func() {
		if now := st.removal(gone.Key); now != nil && now.ID == gone.ID {
			st.wantGone(gone.Key, gone.Dir, gone.Name, at)
			return
		}
		// Journals are there whose numbers of operations count one here.
		k := st.Keys[gone.Key]
		if known := k.Flight == 0 && len(k.Maybe) == 0 && st.KeptAt[gone.Key] == 0; k.Present() || !known {
			st.NextOp++
		}
	})
}

// removal returns the removal of a key that has not begun, nil if there is none.
func (st *State) removal(key string) *order.Operation {
	k := st.Keys[key]
	if k == nil {
		return nil
	}
	if op := st.Ops[k.Pending]; op != nil && op.Kind == order.Delete {
		return op
	}
	return nil
}

// LeftBehind returns the object that a file was published as under another name, none if there
// is no such.
func (f *File) LeftBehind() oss.Object {
	if !f.Linked || f.Published.Key == f.Key {
		return oss.Object{}
	}
	return f.Published
}

// PuttingOff returns what puts off the removal of the object that f has left behind, as it is
// renamed once more, to the key to; nothing if there is no such.
func (st *State) PuttingOff(f *File, to string, at int64) []Record {
	left := f.LeftBehind()
	if left.ETag == "" || left.Key == to || st.removal(left.Key) == nil {
		return nil
	}
	return []Record{&PutOff{Key: left.Key, Time: at}}
}

// Together returns one record of r and those that are to happen with it.
func Together(r Record, with []Record) Record {
	if len(with) == 0 {
		return r
	}
	group, is := r.(*Group)
	if !is {
		group = &Group{Records: []Record{r}}
	}
	group.Records = append(group.Records, with...)
	return group
}

// KeptFor returns the publication before which op, a removal, must not be carried out: the key
// holds the object that a renamed file was published as under its old name, and there is no other
// of it until that publication ends. It is nil if there is none.
func (st *State) KeptFor(op *order.Operation) *order.Operation {
	k := st.Keys[op.Key]
	if op.Kind != order.Delete || k == nil {
		return nil
	}
	for _, id := range slices.Sorted(maps.Keys(st.displacedAt(op.Key))) {
		f := st.Files[id]
		// What a request whose end is not known may have made there may be the file's, too.
		if left := f.LeftBehind(); left.Key != op.Key || !SameBytes(left, k.Remote) && len(k.Maybe) == 0 {
			continue
		}
		to := st.Keys[f.Key]
		if to == nil {
			continue
		}
		for _, id := range []uint64{to.Pending, to.Flight} {
			if put := st.Ops[id]; put != nil && put.Kind == order.Put && put.File == f.ID {
				return put
			}
		}
	}
	return nil
}
