package writeback

import (
	"maps"
	"slices"
	"strings"

	"github.com/pailfs/pailfs/oss"
)

// anyVersion is the ETag of a directory's marker that may be there: its version does
// not matter.
const anyVersion = "*"

// apply is the only way in which a state changes, live and in a replay. Records
// were validated before they were written, so it cannot fail; one that speaks of
// what is not there changes nothing.
func (st *state) apply(r record) {
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

func (r *identityRecord) apply(st *state) { st.Identity = r.Identity }

func (r *bootRecord) apply(st *state) {
	st.Boot = r.ID
	for _, id := range slices.Sorted(maps.Keys(st.Ops)) {
		if op := st.Ops[id]; op.Begun {
			st.undo(op)
		}
	}
}

func (r *groupRecord) apply(st *state) {
	for _, part := range r.Records {
		part.apply(st)
	}
}

func (r *createdRecord) apply(st *state) {
	st.key(r.At.Key, r.At.Base)
	st.NextFile = max(st.NextFile, r.File+1)
	st.Files[r.File] = &fileState{
		ID: r.File, Dir: r.At.Dir, Name: r.At.Name, Key: r.At.Key, Linked: true,
		Symlink: r.Symlink, Staged: true, Attr: r.Attr,
	}
	st.tally.touch(r.File)
	st.setName(r.At.Dir, r.At.Name, name{Kind: nameFile, File: r.File, Key: r.At.Key})
}

func (r *openedRecord) apply(st *state) {
	st.key(r.At.Key, r.At.Base)
	st.NextFile = max(st.NextFile, r.File+1)
	st.Files[r.File] = &fileState{
		ID: r.File, Dir: r.At.Dir, Name: r.At.Name, Key: r.At.Key, Linked: true, Symlink: r.Symlink,
		Size: r.At.Base.Size, Object: r.At.Base, Origin: r.At.Base, Published: r.At.Base,
		Attr: r.Attr, PubAttr: r.Attr,
	}
	st.tally.touch(r.File)
	st.setName(r.At.Dir, r.At.Name, name{Kind: nameFile, File: r.File, Key: r.At.Key})
}

func (r *takenRecord) apply(st *state) {
	if f := st.Files[r.File]; f != nil {
		// What was committed is the object: no record holds what is staged now.
		f.Staged, f.BaseGen, f.Inline, f.Partial, f.Vouched = true, f.Gen, 0, nil, nil
		f.Size, f.Stamp = r.Size, r.Stamp
		st.tally.touch(r.File)
	}
}

func (r *closedRecord) apply(st *state) {
	f := st.Files[r.File]
	if f == nil {
		return
	}
	if f.suspect() {
		// What the disk lost is a part of it still.
		f.Suspect = r.Gen
	}
	f.Gen, f.Size, f.Stamp = r.Gen, r.Size, r.Stamp
	st.tally.touch(r.File)
	if r.HasInline {
		f.Durable, f.Inline, f.Vouched = r.Gen, r.Gen, nil
	}
	if !f.Linked {
		return
	}
	if op := st.Ops[st.Keys[f.Key].Pending]; r.Keep && op != nil && op.Kind == opPut && op.File == f.ID {
		st.renewed = append(st.renewed, op.ID)
		return
	}
	st.want(opPut, f.Key, f.Dir, f.Name, f.ID, r.At, false)
	st.mend(f)
}

func (r *durableRecord) apply(st *state) {
	if f := st.Files[r.File]; f != nil {
		f.Durable = max(f.Durable, r.Gen)
		st.tally.touch(r.File)
		if f.Durable >= f.Gen {
			f.Vouched = nil
		}
	}
}

func (r *suspectRecord) apply(st *state) {
	f := st.Files[r.File]
	if f == nil {
		return
	}
	f.Suspect = r.Gen
	st.tally.touch(r.File)
	switch op := st.Ops[st.keptOf[f.ID]]; {
	case op != nil && !op.Begun:
		st.loseKept(f, op)
	case r.Aside && f.Linked:
		st.lose(f)
		st.detach(f)
	}
}

func (r *emptiedRecord) apply(st *state) {
	if f := st.Files[r.File]; f != nil {
		f.Suspect = 0
		st.tally.touch(r.File)
	}
}

func (r *attrRecord) apply(st *state) {
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
func (st *state) describeAgain(f *fileState, at int64) {
	if f.Linked && f.hasContent() {
		committed := st.lastCommit(f)
		st.want(opPut, f.Key, f.Dir, f.Name, f.ID, at, false)
		st.keepCommit(f, committed)
	}
}

func (r *renamedRecord) apply(st *state) {
	f := st.Files[r.File]
	if f == nil || !f.Linked {
		return
	}
	dir, base, key := f.Dir, f.Name, f.Key
	committed := st.lastCommit(f)
	if n, ok := st.lookup(r.To.Dir, r.To.Name); ok && n.Kind == nameFile {
		if old := st.Files[n.File]; old != nil {
			old.Linked = false
			st.displace(old)
		}
	}
	st.key(r.To.Key, r.To.Base)
	f.Dir, f.Name, f.Key = r.To.Dir, r.To.Name, r.To.Key
	st.displace(f)
	st.comeBack(f)
	st.setName(f.Dir, f.Name, name{Kind: nameFile, File: f.ID, Key: f.Key})
	st.vacate(dir, base, key, r.Time)
	if !f.hasContent() {
		// What the bucket has there goes when the file is committed; until then a crash
		// leaves it.
		if k := st.Keys[f.Key]; st.Ops[k.Pending] != nil && st.Ops[k.Pending].Kind == opPut {
			st.cancel(k)
		}
		return
	}
	st.want(opPut, f.Key, f.Dir, f.Name, f.ID, r.Time, true)
	st.keepCommit(f, committed)
	st.mend(f)
	if source := f.source(); source != "" && source != key {
		// The copy comes from elsewhere: it must not be deleted before.
		if op := st.removal(source); op != nil {
			st.putOff(*op, r.Time)
		}
	}
}

func (r *unlinkedRecord) apply(st *state) {
	st.key(r.At.Key, r.At.Base)
	if n, ok := st.lookup(r.At.Dir, r.At.Name); ok && n.Kind == nameFile {
		if f := st.Files[n.File]; f != nil {
			f.Linked = false
			st.displace(f)
		}
	}
	st.vacate(r.At.Dir, r.At.Name, r.At.Key, r.Time)
}

func (r *madeDirRecord) apply(st *state) {
	k := st.key(r.At.Key, r.At.Base)
	if r.Exists && !k.Shown {
		// There may be a marker, or only objects below.
		k.Shown, k.Maybe = true, append(k.Maybe, intent{Kind: opMarker})
	}
	st.setName(r.At.Dir, r.At.Name, name{Kind: nameDirectory, Key: r.At.Key})
	st.want(opMarker, r.At.Key, join(r.At.Dir, r.At.Name), "", 0, r.Time, false)
}

func (r *removedDirRecord) apply(st *state) {
	if st.Keys[r.At.Key] == nil {
		// There may be a marker, or only objects below.
		st.Keys[r.At.Key] = &keyState{Remote: absent(r.At.Key), Maybe: []intent{{Kind: opMarker}}, Shown: true}
	}
	st.vacate(r.At.Dir, r.At.Name, r.At.Key, r.Time)
}

func (r *begunRecord) apply(st *state) {
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
	if f := st.Files[op.File]; f != nil && op.Kind == opPut && op.Gen >= f.BaseGen {
		st.tries(f, op.Key, r.Intent)
	}
}

func (r *doneRecord) apply(st *state) {
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
	if d, ok := st.Dirs[op.Key]; ok && op.Kind == opMarker && k.Pending == 0 {
		d.Pub = d.Attr
		st.Dirs[op.Key] = d
	}
	f := st.Files[op.File]
	st.tally.touch(op.File)
	if op.Kind == opPut && f != nil && op.Gen >= f.BaseGen {
		st.rebase(f, r.Object)
	}
	if op.Kind != opPut || f == nil || !f.Linked || f.Key != op.Key {
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

func (r *undoneRecord) apply(st *state) {
	if op := st.Ops[r.Op]; op != nil && op.Begun {
		st.undo(op)
	}
}

func (r *seenRecord) apply(st *state) {
	if k := st.Keys[r.Key]; k != nil {
		k.Remote, k.Maybe, k.Shown = r.Object, nil, true
	}
}

func (r *conflictedRecord) apply(st *state) {
	op := st.Ops[r.Op]
	if op == nil || op.Begun {
		return
	}
	k := st.Keys[op.Key]
	path, kept := join(op.Dir, op.Name), ""
	if n, ok := st.lookup(op.Dir, op.Name); op.Kind == opDelete && ok && (n.Kind != nameGone || n.Key != op.Key) {
		// The name means something new already. A file that is not committed yet compares
		// the key with what was believed before, and meets the same conflict.
		st.cancel(k)
		if n.Key != op.Key {
			st.dropKey(op.Key)
		}
		st.conflict(conflict{Path: path, At: r.Time})
		return
	}
	k.Remote, k.Maybe, k.Shown = r.Found, nil, true
	f := st.Files[op.File]
	dir, base := op.Dir, op.Name
	st.cancel(k)
	st.leaveName(dir, base)
	st.dropKey(op.Key)
	if op.Kind == opPut && f != nil && f.Linked {
		st.key(r.To.Key, r.To.Base)
		f.Dir, f.Name, f.Key = r.To.Dir, r.To.Name, r.To.Key
		st.displace(f)
		st.setName(f.Dir, f.Name, name{Kind: nameFile, File: f.ID, Key: f.Key})
		st.want(opPut, f.Key, f.Dir, f.Name, f.ID, r.Time, false)
		kept = join(f.Dir, f.Name)
	}
	st.conflict(conflict{Path: path, Kept: kept, At: r.Time})
}

func (r *adoptedRecord) apply(st *state) {
	if f := st.Files[r.File]; f != nil && f.Staged && f.PubGen == f.Gen {
		f.Staged, f.Object, f.Partial, f.Vouched = false, f.Published, nil, nil
		st.tally.touch(r.File)
		// It may have been renamed since it was published.
		st.displace(f)
		if f.Attr.Set || f.Attr.Mtime != 0 {
			f.Attr.Mtime, f.PubAttr.Mtime = f.Stamp, f.Stamp
		}
	}
}

func (r *revertedRecord) apply(st *state) {
	f := st.Files[r.File]
	if f == nil || !f.Staged || f.Gen != f.BaseGen {
		return
	}
	st.tally.touch(r.File)
	if f.Object.ETag != "" {
		f.Staged, f.Size, f.Partial, f.Vouched = false, f.Object.Size, nil, nil
		st.displace(f)
		return
	}
	if f.Linked {
		k := st.Keys[f.Key]
		there := k.Shown && k.Flight == 0 && len(k.Maybe) == 0 && k.present() || st.keptAt[f.Key] > 0
		if op := st.Ops[k.Pending]; there && (op == nil || op.Kind != opDelete) {
			// It was renamed over something, which is there still or will be.
			st.detach(f)
		} else {
			f.Linked = false
			st.vacate(f.Dir, f.Name, f.Key, r.Time)
		}
	}
	delete(st.Files, f.ID)
}

func (r *releasedRecord) apply(st *state) {
	if f := st.Files[r.File]; f != nil && !f.Linked {
		st.giveUp(st.Ops[st.keptOf[r.File]])
		delete(st.Files, r.File)
		st.tally.touch(r.File)
		st.forgetLoss(r.File)
	}
}

func (r *forgottenRecord) apply(st *state) {
	n, ok := st.lookup(r.Dir, r.Name)
	if !ok {
		return
	}
	delete(st.Files, n.File)
	st.tally.touch(n.File)
	st.leaveName(r.Dir, r.Name)
	st.dropKey(n.Key)
}

func (r *uploadBegunRecord) apply(st *state) { st.Uploads[r.Upload.ID] = r.Upload }
func (r *uploadEndedRecord) apply(st *state) { delete(st.Uploads, r.ID) }

func (r *lostRecord) apply(st *state) {
	f := st.Files[r.File]
	if f == nil {
		return
	}
	if f.Linked {
		st.detach(f)
	}
	st.giveUp(st.Ops[st.keptOf[r.File]])
	st.conflict(conflict{Path: r.Path, At: r.Time})
	delete(st.Files, r.File)
	st.tally.touch(r.File)
}

// apply sets the order back by what every record adds.
func (r *snapCounters) apply(st *state) {
	st.NextFile, st.NextOp, st.NextOrder = r.File, r.Op, r.Order-2
}

func (r *snapFile) apply(st *state) {
	f := r.File
	st.Files[f.ID] = &f
	st.tally.touch(f.ID)
	st.displace(&f)
}

func (r *snapName) apply(st *state) { st.setName(r.Dir, r.Name, r.Value) }

func (r *snapOp) apply(st *state) {
	op := r.Op
	st.Ops[op.ID] = &op
	st.tally.began(&op)
	st.queue.add(&op)
	st.recent.put(&op)
}

func (r *snapKey) apply(st *state) {
	k := r.State
	st.Keys[r.Key] = &k
}

func (r *snapConflict) apply(st *state) { st.conflict(r.Conflict) }

// hasContent reports whether there is something to publish.
func (f *fileState) hasContent() bool { return f.Gen > 0 || f.Object.ETag != "" }

// want makes an operation the next one of its key. One that has not begun goes, but
// newer content of the same file keeps its place.
func (st *state) want(kind opKind, key, dir, base string, file fileID, at int64, barrier bool) {
	k := st.Keys[key]
	known := k.Flight == 0 && len(k.Maybe) == 0 && st.keptAt[key] == 0
	if op := st.Ops[k.Pending]; op != nil && kind == opPut && op.Kind == opPut && op.File == file && !barrier {
		st.follow(op, -1)
		if st.recent.yields(op) {
			st.queue.remove(op)
			op.Order = st.NextOrder
			st.queue.add(op)
		}
		op.After, op.Again = st.NextOrder, at
		op.Barrier = op.Barrier || k.present() || !known
		st.recent.put(op)
		st.renewed = append(st.renewed, op.ID)
		return
	}
	st.cancel(k)
	switch {
	case kind == opDelete && known && !k.present():
		return
	case kind == opMarker && known && k.present() && !st.Dirs[key].changed():
		return
	}
	if f := st.Files[file]; kind == opPut && known && !f.Staged && f.Object.Same(k.Remote) && f.Attr == f.PubAttr && !f.XAttrs.Changed() {
		// It is there already.
		return
	}
	op := &operation{
		ID: st.NextOp, Order: st.NextOrder, After: st.NextOrder, Kind: kind, Key: key, Dir: dir, Name: base, File: file, At: at, Again: at,
		Barrier: barrier || kind == opDelete || kind == opPut && (k.present() || !known),
	}
	if kind == opPut {
		st.placeOfLoss(op)
	}
	st.NextOp++
	st.Ops[op.ID] = op
	st.tally.began(op)
	st.queue.add(op)
	st.recent.put(op)
	k.Pending = op.ID
}

// vacate makes a name mean nothing. The deletion of its key comes after all else
// that the record brings.
func (st *state) vacate(dir, base, key string, at int64) {
	k := st.Keys[key]
	if !k.Shown && k.Flight == 0 && len(k.Maybe) == 0 && st.keptAt[key] == 0 && key[len(key)-1] != '/' {
		// Nobody has ever seen it. Of a directory the tree shows what was below it.
		st.cancel(k)
		delete(st.Keys, key)
		st.dropName(dir, base)
		return
	}
	st.setName(dir, base, name{Kind: nameGone, Key: key})
	opDir, opName := dir, base
	if key[len(key)-1] == '/' {
		opDir, opName = join(dir, base), ""
	}
	st.cancel(k)
	st.after = append(st.after, func() {
		if n, ok := st.lookup(dir, base); ok && n.Kind == nameGone {
			st.wantGone(key, opDir, opName, at)
		}
	})
}

func (st *state) wantGone(key, dir, base string, at int64) {
	st.want(opDelete, key, dir, base, 0, at, true)
}

// cancel drops the operation of a key that has not begun.
func (st *state) cancel(k *keyState) {
	if op := st.Ops[k.Pending]; op != nil {
		st.drop(op)
	}
	k.Pending = 0
}

func (st *state) drop(op *operation) {
	delete(st.Ops, op.ID)
	st.tally.ended(op, st.Ops)
	st.queue.remove(op)
	st.recent.remove(op)
	st.follow(op, -1)
	st.unkeep(op)
	st.dropped = append(st.dropped, op.ID)
	// Names that waited for it may be the base tree's now.
	dir, base := op.at()
	st.named = append(st.named, nameID{dir, base})
}

// undo puts an operation that had begun back in its place, unless another one took
// it.
func (st *state) undo(op *operation) {
	k := st.Keys[op.Key]
	k.Flight = 0
	op.Begun, op.Gen = false, 0
	if st.Kept[op.ID] {
		if f := st.Files[op.File]; f != nil && f.suspect() {
			st.loseKept(f, op)
		}
		return
	}
	if k.Pending != 0 || st.keptAt[op.Key] > 0 {
		st.drop(op)
		return
	}
	k.Pending = op.ID
}

// detach takes a file from its name, which the base tree shows from now on.
func (st *state) detach(f *fileState) {
	f.Linked = false
	st.displace(f)
	st.leaveName(f.Dir, f.Name)
	if k := st.Keys[f.Key]; k != nil {
		st.cancel(k)
		st.dropKey(f.Key)
	}
}

func (st *state) conflict(c conflict) {
	st.Conflicts = append(st.Conflicts, c)
	if n := len(st.Conflicts) - maxConflicts; n > 0 {
		st.Conflicts = slices.Clone(st.Conflicts[n:])
	}
}

// displace notes that the content of f may be the object of another key.
func (st *state) displace(f *fileState) {
	if !f.displacedNow() {
		return
	}
	for _, key := range f.heldKeys() {
		if st.displaced[key] == nil {
			st.displaced[key] = make(map[fileID]bool)
		}
		st.displaced[key][f.ID] = true
	}
	if st.displacing++; st.displacing > maxDisplacing {
		st.displacing = 0
		for key := range st.displaced {
			st.displacedAt(key)
		}
	}
}

// maxDisplacing is how often a file may be displaced before those that are no longer are
// looked for.
const maxDisplacing = 100_000

// displacedAt returns the files that may need the object at key: others are forgotten.
func (st *state) displacedAt(key string) map[fileID]bool {
	files := st.displaced[key]
	for id := range files {
		if f := st.Files[id]; f == nil || !f.displacedNow() {
			delete(files, id)
		}
	}
	if len(files) == 0 {
		delete(st.displaced, key)
	}
	return files
}

// depends returns the files whose content, or what they lack of it, is the version that
// key holds, but whose own key is another, or which have none any more.
func (st *state) depends(key string) []fileID {
	var files []fileID
	for id := range st.displacedAt(key) {
		if f := st.Files[id]; f.elsewhere(key, st.Keys[key], f.Linked || st.keptOf[id] != 0) {
			files = append(files, id)
		}
	}
	slices.Sort(files)
	return files
}

// at returns the name that op is about.
func (op *operation) at() (dir, base string) {
	if op.Name != "" || op.Dir == "" {
		return op.Dir, op.Name
	}
	return parent(op.Dir), op.Dir[strings.LastIndexByte(op.Dir, '/')+1:]
}

func join(dir, base string) string {
	switch {
	case dir == "":
		return base
	case base == "":
		return dir
	}
	return dir + "/" + base
}

// absent is what a key holds that holds nothing.
func absent(key string) oss.Object { return oss.Object{Key: key} }
