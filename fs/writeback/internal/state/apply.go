package state

import (
	"maps"
	"slices"

	"github.com/pailfs/pailfs/fs/writeback/internal/order"
	"github.com/pailfs/pailfs/oss"
)

// AnyVersion is the ETag of a directory's marker that may be there: its version does
// not matter.
const AnyVersion = "*"

// Apply is the only way in which a state changes, live and in a replay. Records
// were validated before they were written, so it cannot fail; one that speaks of
// what is not there changes nothing.
func (st *State) Apply(r Record) {
	r.apply(st)
	st.NextOrder++
	after := st.after
	st.after = nil
	for _, f := range after {
		f()
	}
	st.forgetLosses()
	st.recount()
	st.NextOrder++
}

func (r *Identified) apply(st *State) { st.Identity = r.Identity }

func (r *Boot) apply(st *State) {
	st.Boot = r.ID
	for _, id := range slices.Sorted(maps.Keys(st.Ops)) {
		if op := st.Ops[id]; op.Begun {
			st.undo(op)
		}
	}
}

func (r *Group) apply(st *State) {
	for _, part := range r.Records {
		part.apply(st)
	}
}

func (r *Created) apply(st *State) {
	st.key(r.At.Key, r.At.Base)
	st.NextFile = max(st.NextFile, r.File+1)
	st.Files[r.File] = &File{
		ID: r.File, Dir: r.At.Dir, Name: r.At.Name, Key: r.At.Key, Linked: true,
		Symlink: r.Symlink, Staged: true, Attr: r.Attr,
	}
	st.Tally.touch(r.File)
	st.setName(r.At.Dir, r.At.Name, Name{Kind: NameFile, File: r.File, Key: r.At.Key})
}

func (r *Opened) apply(st *State) {
	st.key(r.At.Key, r.At.Base)
	st.NextFile = max(st.NextFile, r.File+1)
	st.Files[r.File] = &File{
		ID: r.File, Dir: r.At.Dir, Name: r.At.Name, Key: r.At.Key, Linked: true, Symlink: r.Symlink,
		Size: r.At.Base.Size, Object: r.At.Base, Origin: r.At.Base, Published: r.At.Base,
		Attr: r.Attr, PubAttr: r.Attr,
	}
	st.Tally.touch(r.File)
	st.setName(r.At.Dir, r.At.Name, Name{Kind: NameFile, File: r.File, Key: r.At.Key})
}

func (r *Taken) apply(st *State) {
	if f := st.Files[r.File]; f != nil {
		// What was committed is the object: no record holds what is staged now.
		f.Staged, f.BaseGen, f.Inline, f.Partial, f.Vouched = true, f.Gen, 0, nil, nil
		f.Size, f.Stamp = r.Size, r.Stamp
		st.Tally.touch(r.File)
	}
}

func (r *Closed) apply(st *State) {
	f := st.Files[r.File]
	if f == nil {
		return
	}
	if f.IsSuspect() {
		// What the disk lost is a part of it still.
		f.Suspect = r.Gen
	}
	f.Gen, f.Size, f.Stamp = r.Gen, r.Size, r.Stamp
	st.Tally.touch(r.File)
	if r.HasInline {
		f.Durable, f.Inline, f.Vouched = r.Gen, r.Gen, nil
	}
	if !f.Linked {
		return
	}
	if op := st.Ops[st.Keys[f.Key].Pending]; r.Keep && op != nil && op.Kind == order.Put && op.File == f.ID {
		st.Renewed = append(st.Renewed, op.ID)
		return
	}
	st.want(order.Put, f.Key, f.Dir, f.Name, f.ID, r.At, false)
	st.mend(f)
}

func (r *Durable) apply(st *State) {
	if f := st.Files[r.File]; f != nil {
		f.Durable = max(f.Durable, r.Gen)
		st.Tally.touch(r.File)
		if f.Durable >= f.Gen {
			f.Vouched = nil
		}
	}
}

func (r *Suspect) apply(st *State) {
	f := st.Files[r.File]
	if f == nil {
		return
	}
	f.Suspect = r.Gen
	st.Tally.touch(r.File)
	switch op := st.Ops[st.KeptOf[f.ID]]; {
	case op != nil && !op.Begun:
		st.loseKept(f, op)
	case r.Aside && f.Linked:
		st.lose(f)
		st.detach(f)
	}
}

func (r *Emptied) apply(st *State) {
	if f := st.Files[r.File]; f != nil {
		f.Suspect = 0
		st.Tally.touch(r.File)
	}
}

func (r *SetAttr) apply(st *State) {
	f := st.Files[r.File]
	if f == nil {
		return
	}
	f.Attr = r.Attr
	if r.Stamp != 0 {
		f.Stamp = r.Stamp
	}
	st.describeAgain(f, r.At)
}

// describeAgain has the metadata of a file published.
func (st *State) describeAgain(f *File, at int64) {
	if f.Linked && f.HasContent() {
		committed := st.lastCommit(f)
		st.want(order.Put, f.Key, f.Dir, f.Name, f.ID, at, false)
		st.keepCommit(f, committed)
	}
}

func (r *Renamed) apply(st *State) {
	f := st.Files[r.File]
	if f == nil || !f.Linked {
		return
	}
	dir, base, key := f.Dir, f.Name, f.Key
	committed := st.lastCommit(f)
	if n, ok := st.Lookup(r.To.Dir, r.To.Name); ok && n.Kind == NameFile {
		if old := st.Files[n.File]; old != nil {
			old.Linked = false
			st.displace(old)
		}
	}
	st.key(r.To.Key, r.To.Base)
	f.Dir, f.Name, f.Key = r.To.Dir, r.To.Name, r.To.Key
	st.displace(f)
	st.comeBack(f)
	st.setName(f.Dir, f.Name, Name{Kind: NameFile, File: f.ID, Key: f.Key})
	st.vacate(dir, base, key, r.Time)
	if !f.HasContent() {
		// What the bucket has there goes when the file is committed; until then a crash
		// leaves it.
		if k := st.Keys[f.Key]; st.Ops[k.Pending] != nil && st.Ops[k.Pending].Kind == order.Put {
			st.cancel(k)
		}
		return
	}
	st.want(order.Put, f.Key, f.Dir, f.Name, f.ID, r.Time, true)
	st.keepCommit(f, committed)
	st.mend(f)
	if source := f.source(); source != "" && source != key {
		// The copy comes from elsewhere: it must not be deleted before.
		if op := st.removal(source); op != nil {
			st.putOff(*op, r.Time)
		}
	}
}

func (r *Unlinked) apply(st *State) {
	st.key(r.At.Key, r.At.Base)
	if n, ok := st.Lookup(r.At.Dir, r.At.Name); ok && n.Kind == NameFile {
		if f := st.Files[n.File]; f != nil {
			f.Linked = false
			st.displace(f)
		}
	}
	st.vacate(r.At.Dir, r.At.Name, r.At.Key, r.Time)
}

func (r *MadeDir) apply(st *State) {
	k := st.key(r.At.Key, r.At.Base)
	if r.Exists && !k.Shown {
		// There may be a marker, or only objects below.
		k.Shown, k.Maybe = true, append(k.Maybe, Intent{Kind: order.Marker})
	}
	st.setName(r.At.Dir, r.At.Name, Name{Kind: NameDirectory, Key: r.At.Key})
	st.want(order.Marker, r.At.Key, order.Join(r.At.Dir, r.At.Name), "", 0, r.Time, false)
}

func (r *RemovedDir) apply(st *State) {
	if st.Keys[r.At.Key] == nil {
		// There may be a marker, or only objects below.
		st.Keys[r.At.Key] = &Key{Remote: Absent(r.At.Key), Maybe: []Intent{{Kind: order.Marker}}, Shown: true}
	}
	st.vacate(r.At.Dir, r.At.Name, r.At.Key, r.Time)
}

func (r *Begun) apply(st *State) {
	op := st.Ops[r.Op]
	if op == nil || op.Begun {
		return
	}
	op.Begun, op.Gen = true, r.Gen
	k := st.Keys[op.Key]
	k.Flight = op.ID
	if k.Pending == op.ID {
		k.Pending = 0
	}
	if !slices.Contains(k.Maybe, r.Intent) {
		k.Maybe = append(k.Maybe, r.Intent)
	}
	if f := st.Files[op.File]; f != nil && op.Kind == order.Put && op.Gen >= f.BaseGen {
		st.tries(f, op.Key, r.Intent)
	}
}

func (r *Done) apply(st *State) {
	op := st.Ops[r.Op]
	if op == nil {
		return
	}
	k := st.Keys[op.Key]
	k.Remote, k.Maybe, k.Shown = r.Object, nil, true
	if k.Flight == op.ID {
		k.Flight = 0
	}
	if k.Pending == op.ID {
		k.Pending = 0
	}
	st.drop(op)
	st.replaceLoss(op)
	st.dropUnnamed(op)
	if d, ok := st.Dirs[op.Key]; ok && op.Kind == order.Marker && k.Pending == 0 {
		d.Pub = d.Attr
		st.Dirs[op.Key] = d
	}
	f := st.Files[op.File]
	st.Tally.touch(op.File)
	if op.Kind == order.Put && f != nil && op.Gen >= f.BaseGen {
		st.rebase(f, r.Object)
	}
	if op.Kind != order.Put || f == nil || !f.Linked || f.Key != op.Key {
		return
	}
	f.PubGen, f.Published, f.PubCRC = op.Gen, r.Object, r.CRC
	if k.Pending == 0 {
		f.PubAttr, f.XAttrs = f.Attr, f.XAttrs.Published()
	}
	if !f.Staged && f.Gen == op.Gen {
		f.Object = r.Object
	}
}

func (r *Undone) apply(st *State) {
	if op := st.Ops[r.Op]; op != nil && op.Begun {
		st.undo(op)
	}
}

func (r *Seen) apply(st *State) {
	if k := st.Keys[r.Key]; k != nil {
		k.Remote, k.Maybe, k.Shown = r.Object, nil, true
	}
}

func (r *Conflicted) apply(st *State) {
	op := st.Ops[r.Op]
	if op == nil || op.Begun {
		return
	}
	k := st.Keys[op.Key]
	path, kept := order.Join(op.Dir, op.Name), ""
	if n, ok := st.Lookup(op.Dir, op.Name); op.Kind == order.Delete && ok && (n.Kind != NameGone || n.Key != op.Key) {
		// The name means something new already. A file that is not committed yet compares
		// the key with what was believed before, and meets the same conflict.
		st.cancel(k)
		if n.Key != op.Key {
			st.dropKey(op.Key)
		}
		st.conflict(Conflict{Path: path, At: r.Time})
		return
	}
	k.Remote, k.Maybe, k.Shown = r.Found, nil, true
	f := st.Files[op.File]
	dir, base := op.Dir, op.Name
	st.cancel(k)
	st.leaveName(dir, base)
	st.dropKey(op.Key)
	if op.Kind == order.Put && f != nil && f.Linked {
		st.key(r.To.Key, r.To.Base)
		f.Dir, f.Name, f.Key = r.To.Dir, r.To.Name, r.To.Key
		st.displace(f)
		st.setName(f.Dir, f.Name, Name{Kind: NameFile, File: f.ID, Key: f.Key})
		st.want(order.Put, f.Key, f.Dir, f.Name, f.ID, r.Time, false)
		kept = order.Join(f.Dir, f.Name)
	}
	st.conflict(Conflict{Path: path, Kept: kept, At: r.Time})
}

func (r *Adopted) apply(st *State) {
	if f := st.Files[r.File]; f != nil && f.Staged && f.PubGen == f.Gen {
		f.Staged, f.Object, f.Partial, f.Vouched = false, f.Published, nil, nil
		st.Tally.touch(r.File)
		// It may have been renamed since it was published.
		st.displace(f)
		if f.Attr.Set || f.Attr.Mtime != 0 {
			f.Attr.Mtime, f.PubAttr.Mtime = f.Stamp, f.Stamp
		}
	}
}

func (r *Reverted) apply(st *State) {
	f := st.Files[r.File]
	if f == nil || !f.Staged || f.Gen != f.BaseGen {
		return
	}
	st.Tally.touch(r.File)
	if f.Object.ETag != "" {
		f.Staged, f.Size, f.Partial, f.Vouched = false, f.Object.Size, nil, nil
		st.displace(f)
		return
	}
	if f.Linked {
		k := st.Keys[f.Key]
		there := k.Shown && k.Flight == 0 && len(k.Maybe) == 0 && k.Present() || st.KeptAt[f.Key] > 0
		if op := st.Ops[k.Pending]; there && (op == nil || op.Kind != order.Delete) {
			// It was renamed over something, which is there still or will be.
			st.detach(f)
		} else {
			f.Linked = false
			st.vacate(f.Dir, f.Name, f.Key, r.Time)
		}
	}
	delete(st.Files, f.ID)
}

func (r *Released) apply(st *State) {
	if f := st.Files[r.File]; f != nil && !f.Linked {
		st.giveUp(st.Ops[st.KeptOf[r.File]])
		delete(st.Files, r.File)
		st.Tally.touch(r.File)
		st.forgetLoss(r.File)
	}
}

func (r *Forgotten) apply(st *State) {
	n, ok := st.Lookup(r.Dir, r.Name)
	if !ok {
		return
	}
	delete(st.Files, n.File)
	st.Tally.touch(n.File)
	st.leaveName(r.Dir, r.Name)
	st.dropKey(n.Key)
}

func (r *UploadBegun) apply(st *State) { st.Uploads[r.Upload.ID] = r.Upload }

func (r *UploadEnded) apply(st *State) { delete(st.Uploads, r.ID) }

func (r *Lost) apply(st *State) {
	f := st.Files[r.File]
	if f == nil {
		return
	}
	if f.Linked {
		st.detach(f)
	}
	st.giveUp(st.Ops[st.KeptOf[r.File]])
	st.conflict(Conflict{Path: r.Path, At: r.Time})
	delete(st.Files, r.File)
	st.Tally.touch(r.File)
}

// apply sets the order back by what every record adds.
func (r *snapCounters) apply(st *State) {
	st.NextFile, st.NextOp, st.NextOrder = r.File, r.Op, r.Order-2
}

func (r *SnapFile) apply(st *State) {
	f := r.File
	st.Files[f.ID] = &f
	st.Tally.touch(f.ID)
	st.displace(&f)
}

func (r *snapName) apply(st *State) { st.setName(r.Dir, r.Name, r.Value) }

func (r *snapOp) apply(st *State) {
	op := r.Op
	st.Ops[op.ID] = &op
	st.Tally.Began(&op)
	st.Queue.Add(&op)
	st.recent.Put(&op)
}

func (r *snapKey) apply(st *State) {
	k := r.State
	st.Keys[r.Key] = &k
}

func (r *snapConflict) apply(st *State) { st.conflict(r.Conflict) }

// HasContent reports whether there is something to publish.
func (f *File) HasContent() bool { return f.Gen > 0 || f.Object.ETag != "" }

// want makes an operation the next one of its key. One that has not begun goes, but
// newer content of the same file keeps its place.
func (st *State) want(kind order.Kind, key, dir, base string, file order.FileID, at int64, barrier bool) {
	k := st.Keys[key]
	known := k.Flight == 0 && len(k.Maybe) == 0 && st.KeptAt[key] == 0
	if op := st.Ops[k.Pending]; op != nil && kind == order.Put && op.Kind == order.Put && op.File == file && !barrier {
		st.follow(op, -1)
		if st.recent.Yields(op) {
			st.Queue.Remove(op)
			op.Order = st.NextOrder
			st.Queue.Add(op)
		}
		op.After, op.Again = st.NextOrder, at
		op.Barrier = op.Barrier || k.Present() || !known
		st.recent.Put(op)
		st.Renewed = append(st.Renewed, op.ID)
		return
	}
	st.cancel(k)
	switch {
	case kind == order.Delete && known && !k.Present():
		return
	case kind == order.Marker && known && k.Present() && !st.Dirs[key].changed():
		return
	}
	if f := st.Files[file]; kind == order.Put && known && !f.Staged && f.Object.Same(k.Remote) && f.Attr == f.PubAttr && !f.XAttrs.Changed() {
		// It is there already.
		return
	}
	op := &order.Operation{
		ID: st.NextOp, Order: st.NextOrder, After: st.NextOrder, Kind: kind, Key: key, Dir: dir, Name: base, File: file, At: at, Again: at,
		Barrier: barrier || kind == order.Delete || kind == order.Put && (k.Present() || !known),
	}
	if kind == order.Put {
		st.placeOfLoss(op)
	}
	st.NextOp++
	st.Ops[op.ID] = op
	st.Tally.Began(op)
	st.Queue.Add(op)
	st.recent.Put(op)
	k.Pending = op.ID
}

// vacate makes a name mean nothing. The deletion of its key comes after all else
// that the record brings.
func (st *State) vacate(dir, base, key string, at int64) {
	k := st.Keys[key]
	if !k.Shown && k.Flight == 0 && len(k.Maybe) == 0 && st.KeptAt[key] == 0 && key[len(key)-1] != '/' {
		// Nobody has ever seen it. Of a directory the tree shows what was below it.
		st.cancel(k)
		delete(st.Keys, key)
		st.dropName(dir, base)
		return
	}
	st.setName(dir, base, Name{Kind: NameGone, Key: key})
	opDir, opName := dir, base
	if key[len(key)-1] == '/' {
		opDir, opName = order.Join(dir, base), ""
	}
	st.cancel(k)
	st.after = append(st.after, func() {
		if n, ok := st.Lookup(dir, base); ok && n.Kind == NameGone {
			st.wantGone(key, opDir, opName, at)
		}
	})
}

func (st *State) wantGone(key, dir, base string, at int64) {
	st.want(order.Delete, key, dir, base, 0, at, true)
}

// cancel drops the operation of a key that has not begun.
func (st *State) cancel(k *Key) {
	if op := st.Ops[k.Pending]; op != nil {
		st.drop(op)
	}
	k.Pending = 0
}

func (st *State) drop(op *order.Operation) {
	delete(st.Ops, op.ID)
	st.Tally.ended(op, st.Ops)
	st.Queue.Remove(op)
	st.recent.Remove(op)
	st.follow(op, -1)
	st.unkeep(op)
	st.Dropped = append(st.Dropped, op.ID)
	// Names that waited for it may be the base tree's now.
	dir, base := op.Target()
	st.Named = append(st.Named, NameID{dir, base})
}

// undo puts an operation that had begun back in its place, unless another one took
// it.
func (st *State) undo(op *order.Operation) {
	k := st.Keys[op.Key]
	k.Flight = 0
	op.Begun, op.Gen = false, 0
	if st.Kept[op.ID] {
		if f := st.Files[op.File]; f != nil && f.IsSuspect() {
			st.loseKept(f, op)
		}
		return
	}
	if k.Pending != 0 || st.KeptAt[op.Key] > 0 {
		st.drop(op)
		return
	}
	k.Pending = op.ID
}

// detach takes a file from its name, which the base tree shows from now on.
func (st *State) detach(f *File) {
	f.Linked = false
	st.displace(f)
	st.leaveName(f.Dir, f.Name)
	if k := st.Keys[f.Key]; k != nil {
		st.cancel(k)
		st.dropKey(f.Key)
	}
}

func (st *State) conflict(c Conflict) {
	st.Conflicts = append(st.Conflicts, c)
	if n := len(st.Conflicts) - maxConflicts; n > 0 {
		st.Conflicts = slices.Clone(st.Conflicts[n:])
	}
}

// displace notes that the content of f may be the object of another key.
func (st *State) displace(f *File) {
	if !f.DisplacedNow() {
		return
	}
	for _, key := range f.heldKeys() {
		if st.Displaced[key] == nil {
			st.Displaced[key] = make(map[order.FileID]bool)
		}
		st.Displaced[key][f.ID] = true
	}
	if st.displacing++; st.displacing > maxDisplacing {
		st.displacing = 0
		for key := range st.Displaced {
			st.displacedAt(key)
		}
	}
}

// maxDisplacing is how often a file may be displaced before those that are no longer are
// looked for.
const maxDisplacing = 100_000

// displacedAt returns the files that may need the object at key: others are forgotten.
func (st *State) displacedAt(key string) map[order.FileID]bool {
	files := st.Displaced[key]
	for id := range files {
		if f := st.Files[id]; f == nil || !f.DisplacedNow() {
			delete(files, id)
		}
	}
	if len(files) == 0 {
		delete(st.Displaced, key)
	}
	return files
}

// Depends returns the files whose content, or what they lack of it, is the version that
// key holds, but whose own key is another, or which have none any more.
func (st *State) Depends(key string) []order.FileID {
	var files []order.FileID
	for id := range st.displacedAt(key) {
		if f := st.Files[id]; f.Elsewhere(key, st.Keys[key], f.Linked || st.KeptOf[id] != 0) {
			files = append(files, id)
		}
	}
	slices.Sort(files)
	return files
}

// Absent is what a key holds that holds nothing.
func Absent(key string) oss.Object { return oss.Object{Key: key} }
