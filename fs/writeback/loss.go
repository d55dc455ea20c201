package writeback

import "fmt"

// loss is a closed file that did not survive the loss of power, and was not published.
// What was closed after it and must not appear without it, latest in the directory
// above, waits until it is written again, or the lost file is.
type loss struct {
	// Dir and Path say where the file was.
	Dir, Path string
	// Order was its place among what is published; what was committed last before Until
	// waits.
	Order, Until uint64
}

// lose notes that f, which still has its name, is lost.
func (st *state) lose(f *fileState) {
	k := st.Keys[f.Key]
	if k == nil {
		return
	}
	if op := st.Ops[k.Pending]; op != nil && op.Kind == opPut {
		st.Losses[f.ID] = loss{Dir: f.Dir, Path: join(f.Dir, f.Name), Order: op.Order, Until: st.NextOrder}
	}
}

// aside returns the record that takes its name from f, which is lost. A file that was
// renamed and then changed goes back to the object that it was: nothing else has that
// content, and its removal under the old name is due. fresh is an id that no file has.
func (st *state) aside(f *fileState, fresh fileID, at int64) record {
	lost := &suspectRecord{File: f.ID, Gen: f.Gen, Aside: true}
	from, k := st.Keys[f.Object.Key], st.Keys[f.Key]
	if f.Object.ETag == "" || f.Object.Key == f.Key || from == nil || k == nil {
		return lost
	}
	gone := st.Ops[from.Pending]
	if gone == nil || gone.Kind != opDelete || !from.Remote.Same(f.Object) {
		return lost
	}
	dir, base := gone.at()
	if n, ok := st.lookup(dir, base); !ok || n.Kind != nameGone || n.Key != f.Object.Key {
		return lost
	}
	return &groupRecord{Records: []record{
		lost,
		&openedRecord{File: fresh, Symlink: f.Symlink, Attr: f.PubAttr, At: place{Dir: dir, Name: base, Key: f.Object.Key, Base: f.Object}},
		&renamedRecord{File: fresh, To: place{Dir: f.Dir, Name: f.Name, Key: f.Key, Base: k.Remote}, Time: at},
	}}
}

// regain lets go of those that wait for the file that was lost at path, and is
// published again by op.
func (st *state) regain(op *operation, path string) {
	for id, l := range st.Losses {
		if l.Path == path && op.After > l.Until {
			delete(st.Losses, id)
		}
	}
}

// lostBefore returns why op must not be carried out, if the loss of power took a file
// that it must follow. That is one below its directory or, if op replaces or removes
// something, in it.
func (st *state) lostBefore(op *operation) error {
	for _, l := range st.Losses {
		if op.After <= l.Order || op.After >= l.Until {
			continue
		}
		if op.Dir != l.Dir && within(l.Dir, op.Dir) || op.Dir == l.Dir && op.Barrier {
			return fmt.Errorf("%q, which was closed before it, did not survive the loss of power: write either again, or give up what was lost with pailfs staged discard", l.Path)
		}
	}
	return nil
}

// snapLoss is a loss as compaction writes it.
type snapLoss struct {
	File fileID
	Loss loss
}

func (*snapLoss) kind() recordKind { return kindSnapLoss }
func (r *snapLoss) walk(c *coder) {
	c.uint(&r.File)
	c.string(&r.Loss.Dir)
	c.string(&r.Loss.Path)
	c.uint(&r.Loss.Order)
	c.uint(&r.Loss.Until)
}

func (r *snapLoss) apply(st *state) { st.Losses[r.File] = r.Loss }
