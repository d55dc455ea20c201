package state

import (
	"fmt"

	"github.com/pailfs/pailfs/fs/writeback/internal/order"
)

// Loss is a closed file that did not survive the loss of power, and was not published.
// What was closed after it and must not appear without it, latest in the directory
// above or _SUCCESS beside it, waits until it is written again, or the lost file is.
type Loss struct {
	// Dir and Name say where the file was.
	Dir, Name string
	// Order was its place among what is published; what was committed last before Until
	// waits.
	Order, Until uint64
	// At is when it was to be published first, in nanoseconds since 1970, Size how large
	// it was, in bytes, Barrier whether it was to replace something: by these others
	// might have overtaken it.
	At, Size int64
	Barrier  bool
}

// Precedes reports whether op comes after l in the order of publication: it was
// committed after l, before l was lost, and is beside it or above. What has l's own
// name does not wait for itself.
func (l *Loss) Precedes(op *order.Operation) bool {
	return op.After < l.Until && op.Lasted() > l.Order && order.Within(l.Dir, op.Dir) && (op.Dir != l.Dir || op.Name != l.Name)
}

// Err says why what l precedes is not published.
func (l *Loss) Err() error {
	return fmt.Errorf("%q, which was closed before it, did not survive the loss of power: write either again, or give up what was lost with pailfs staged discard", order.Join(l.Dir, l.Name))
}

// lose notes that f, which still has its name, is lost.
func (st *State) lose(f *File) {
	k := st.Keys[f.Key]
	if k == nil {
		return
	}
	op := st.Ops[k.Pending]
	if id := st.KeptOf[f.ID]; id != 0 {
		op = st.Ops[id]
	}
	if op != nil && op.Kind == order.Put {
		st.addLoss(f.ID, Loss{Dir: f.Dir, Name: f.Name, Order: op.Order, Until: st.NextOrder, At: op.At, Size: f.Size, Barrier: op.Barrier})
	}
}

func (st *State) addLoss(id order.FileID, l Loss) {
	st.Losses[id] = &l
	st.LastLoss = max(st.LastLoss, l.Until)
	n := 0
	for op := range st.Queue.All() {
		if l.Precedes(op) {
			n++
		}
	}
	st.preceded[id] = n
	st.mended = append(st.mended, id)
}

// follow counts op, which came or went, among those that losses precede.
func (st *State) follow(op *order.Operation, by int) {
	if op.After >= st.LastLoss {
		return
	}
	for id, l := range st.Losses {
		if l.Precedes(op) {
			st.preceded[id] += by
			st.mended = append(st.mended, id)
		}
	}
}

// forgetLosses drops the losses that precede nothing: whatever comes now is later.
func (st *State) forgetLosses() {
	for _, id := range st.mended {
		if st.preceded[id] == 0 {
			st.forgetLoss(id)
		}
	}
	st.mended = nil
}

func (st *State) forgetLoss(id order.FileID) {
	delete(st.Losses, id)
	delete(st.preceded, id)
}

// lastCommit returns when f was committed if its publication comes after a lost file,
// else 0. A new name or mode is no new content: keepCommit lets it go on waiting.
func (st *State) lastCommit(f *File) uint64 {
	op := st.pendingPut(f)
	if op == nil || op.After >= st.LastLoss {
		return 0
	}
	for _, l := range st.Losses {
		if l.Precedes(op) {
			return op.After
		}
	}
	return 0
}

// keepCommit gives the publication of f the time that lastCommit returned.
func (st *State) keepCommit(f *File, after uint64) {
	if op := st.pendingPut(f); op != nil && after != 0 {
		op.After = after
		st.recent.Put(op)
		st.follow(op, 1)
	}
}

// pendingPut returns the publication of f that has not begun, or nil.
func (st *State) pendingPut(f *File) *order.Operation {
	k := st.Keys[f.Key]
	if k == nil {
		return nil
	}
	if op := st.Ops[k.Pending]; op != nil && op.Kind == order.Put && op.File == f.ID {
		return op
	}
	return nil
}

// Aside returns the record that takes its name from f, which is lost. A file that was
// renamed and then changed goes back to the object that it was: nothing else has that
// content, and its removal under the old name is due. fresh is an id that no file has.
func (st *State) Aside(f *File, fresh order.FileID, at int64) Record {
	lost := &Suspect{File: f.ID, Gen: f.Gen, Aside: true}
	from, k := st.Keys[f.Object.Key], st.Keys[f.Key]
	if f.Object.ETag == "" || f.Object.Key == f.Key || from == nil || k == nil || st.KeptOf[f.ID] != 0 {
		return lost
	}
	gone := st.Ops[from.Pending]
	if gone == nil || gone.Kind != order.Delete || !from.Remote.Same(f.Object) {
		return lost
	}
	dir, base := gone.Target()
	if n, ok := st.Lookup(dir, base); !ok || n.Kind != NameGone || n.Key != f.Object.Key {
		return lost
	}
	back := &Opened{File: fresh, Symlink: f.Symlink, Attr: f.PubAttr, At: Place{Dir: dir, Name: base, Key: f.Object.Key, Base: f.Object}}
	had := ""
	if f.XAttrs != nil {
		had = f.XAttrs.Pub
	}
	group := append([]Record{lost}, back.With(had)...)
	return &Group{Records: append(group,
		&Renamed{File: fresh, To: Place{Dir: f.Dir, Name: f.Name, Key: f.Key, Base: k.Remote}, Time: at})}
}

// placeOfLoss gives op, which is new and publishes what has the name of a lost file, the
// place of that in the order: what waits for the loss must not hold op back.
func (st *State) placeOfLoss(op *order.Operation) {
	for _, l := range st.Losses {
		if l.Dir == op.Dir && l.Name == op.Name && op.Order > l.Order && !st.keptFrom(op.Key, l.Order) {
			op.Order, op.At, op.Barrier = l.Order, l.At, op.Barrier || l.Barrier
		}
	}
}

// keptFrom reports whether anything is kept at key from that place on.
func (st *State) keptFrom(key string, order uint64) bool {
	if st.KeptAt[key] == 0 {
		return false
	}
	for id := range st.Kept {
		if op := st.Ops[id]; op.Key == key && op.Order >= order {
			return true
		}
	}
	return false
}

// mend forgets that a file was lost in whose place f was written or renamed since. What
// waited for the loss comes after the publication of f, if that has the place.
func (st *State) mend(f *File) {
	op := st.pendingPut(f)
	for id, l := range st.Losses {
		if l.Dir == f.Dir && l.Name == f.Name && st.NextOrder > l.Until && (op == nil || op.Order <= l.Order) {
			st.forgetLoss(id)
		}
	}
}

// replaceLoss forgets that a file was lost where op, which came later, is published.
func (st *State) replaceLoss(op *order.Operation) {
	for id, l := range st.Losses {
		if op.Kind == order.Put && l.Dir == op.Dir && l.Name == op.Name && op.Order > l.Order {
			st.forgetLoss(id)
		}
	}
}

// snapLoss is a loss as compaction writes it.
type snapLoss struct {
	File order.FileID
	Loss Loss
}

func (*snapLoss) kind() recordKind { return kindSnapLoss }

func (r *snapLoss) walk(c *coder) {
	c.uint(&r.File)
	c.string(&r.Loss.Dir)
	c.string(&r.Loss.Name)
	c.uint(&r.Loss.Order)
	c.uint(&r.Loss.Until)
	c.int(&r.Loss.At)
	c.int(&r.Loss.Size)
	c.bool(&r.Loss.Barrier)
}

func (r *snapLoss) apply(st *State) { st.addLoss(r.File, r.Loss) }
