package writeback

import (
	"strings"

	"github.com/pailfs/pailfs/fs/writeback/internal/attrs"
	"github.com/pailfs/pailfs/oss"
)

// fileID names a file of a staging directory for ever: staged/<id> are its bytes.
type fileID = uint64

// generation counts the commits of one file: closes and fsyncs after a change.
type generation = uint64

// nameKind says what a name of the space means.
type nameKind uint8

const (
	// nameFile is a file or a symlink of the space.
	nameFile nameKind = iota + 1
	// nameDirectory is a directory that was made here.
	nameDirectory
	// nameGone hides what the base tree shows.
	nameGone
)

// name is what the space says of one name.
type name struct {
	Kind nameKind
	// File is the file, for nameFile.
	File fileID
	// Key is the key of the name in the bucket; that of a directory ends with a
	// slash.
	Key string
}

// nameID is a name in a directory.
type nameID struct{ dir, name string }

// fileState is what survives of a file. Two of them with the same fields are the
// same: nothing but apply changes one.
type fileState struct {
	ID fileID
	// Dir and Name say where the file is, if Linked, and Key the key there.
	Dir, Name, Key string
	Linked         bool
	// Symlink says that the content is the target of a symbolic link.
	Symlink bool

	// Gen is the last committed generation, Size and Stamp the size and the time of
	// the last write of the staged file at that moment, in nanoseconds since 1970.
	Gen   generation
	Size  int64
	Stamp int64
	// Durable is the last generation that survives the loss of power, Suspect one
	// that did not.
	Durable, Suspect generation
	// Inline is a generation whose content is in its record. Nothing else may be on
	// the disk.
	Inline generation

	// Staged says that the content is the file staged/<ID>, and not Object.
	// BaseGen is the generation at which it became staged: without a commit since,
	// recovery goes back to Object, or to nothing.
	Staged  bool
	BaseGen generation
	Object  oss.Object
	// Partial, if set, says which bytes the staged file lacks, and who has them.
	Partial *partial
	// Vouched is what Partial was at the last durable generation, if another was committed
	// since: the loss of power may take what only Partial has.
	Vouched *partial
	// Origin is the object that the file was made from, if any.
	Origin oss.Object

	// Published is the object that generation PubGen became, PubCRC its CRC-64.
	PubGen    generation
	Published oss.Object
	PubCRC    uint64

	// Attr are the attributes, PubAttr those that the bucket has.
	Attr, PubAttr attrs.Attrs
	// XAttrs are the extended ones, nil if none were given here and the object had none.
	XAttrs *attrs.XAttrs
}

// opKind is what an operation does to its key.
type opKind uint8

const (
	// opPut makes the key hold the content of a file: by upload, or by copy where
	// the content is an object.
	opPut opKind = iota + 1
	// opDelete removes the key.
	opDelete
	// opMarker makes an empty object that keeps a directory.
	opMarker
)

func (k opKind) String() string {
	switch k {
	case opPut:
		return "upload"
	case opDelete:
		return "delete"
	default:
		return "mkdir"
	}
}

// operation is one pending publication. A key has at most one that has not begun,
// and one that has, beside those that are kept.
type operation struct {
	ID    uint64
	Order uint64
	Kind  opKind
	Key   string
	// Dir is the directory of the key's name, Name the name; for people and for the
	// order.
	Dir, Name string
	File      fileID
	// After is beyond Order if the content was committed again before the operation
	// began: those behind it still wait for it, and it waits for what came before the
	// last commit. It is below Order if a file that comes after a lost one got another
	// name, see lastCommit.
	After uint64
	// At is when it was wanted first, Again last, in nanoseconds since 1970.
	At, Again int64
	// Barrier says that it waits for everything earlier.
	Barrier bool
	// Begun says that a request may have been sent; Gen is the generation in it.
	Begun bool
	Gen   generation
}

// intent is what a begun operation may have done to its key.
type intent struct {
	Kind opKind
	Size int64
	CRC  uint64
}

// keyState is what is believed of a key of the bucket.
type keyState struct {
	// Remote is the version there; without an ETag there is none.
	Remote oss.Object
	// Maybe are changes of ours that may have happened since.
	Maybe []intent
	// Shown says that the base tree may show something there.
	Shown bool
	// Pending and Flight are operations, or 0.
	Pending, Flight uint64
}

func (k *keyState) present() bool { return k.Remote.ETag != "" }

// upload is a multipart upload of ours that is neither completed nor aborted. An ID
// that begins with askedUpload stands for one that was asked for, and may have begun.
type upload struct {
	Key, ID string
	File    fileID
	// Options is a sum of the options that the upload was begun with: they cannot be
	// changed.
	Options uint64
	// PartSize is the size of the first parts, see layout; 0 if nobody can go on with
	// the upload but who began it, and negative if the parts are those of a plan, see planSum.
	PartSize int64
}

// askedUpload begins the name of an upload whose own is not known (yet).
const askedUpload = "?"

// asked says that the name of u is not known.
func (u *upload) asked() bool { return strings.HasPrefix(u.ID, askedUpload) }

// conflict is one change that somebody else's met.
type conflict struct {
	Path string
	// Kept is where ours is, "" if it was a deletion that was not carried out.
	Kept string
	At   int64
}

// identity is what a staging directory belongs to.
type identity struct{ Endpoint, Bucket, Prefix string }

// maxConflicts is how many conflicts are remembered.
const maxConflicts = 100

// state is everything that survives. It is changed by apply alone.
type state struct {
	// Identity is whose changes these are, Boot the run of the machine in which the
	// last records were written.
	Identity identity
	Boot     string

	NextFile, NextOp, NextOrder uint64

	Files     map[fileID]*fileState
	Names     map[string]map[string]name
	Ops       map[uint64]*operation
	Keys      map[string]*keyState
	Uploads   map[string]upload
	Conflicts []conflict
	// Losses are closed files that did not survive the loss of power and precede what is
	// to be published, by their id.
	Losses map[fileID]*loss
	// Dirs are the attributes that directories were given, by their key.
	Dirs map[string]dirAttr
	// Kept are publications of files whose names others have taken since, see kept.go.
	Kept map[uint64]bool

	// ordered has Names by key, for those directories that were listed.
	ordered orderedNames
	// queue has the operations in order, recent by directory. They follow from Ops.
	queue  opQueue
	recent recent
	// displaced has every file whose content is the object of another key, by that key,
	// and perhaps others. displacing counts those that were added since these were looked for.
	displaced  map[string]map[fileID]bool
	displacing int
	// preceded is how many operations each of Losses precedes; all that was committed
	// from lastLoss on is later. mended are those of which one came or went since
	// somebody looked.
	preceded map[fileID]int
	// keptOf has the operations of Kept by file, keptAt counts them by key. unkept are the
	// files of those that ended since somebody looked.
	keptOf   map[fileID]uint64
	keptAt   map[string]int
	unkept   []fileID
	lastLoss uint64
	mended   []fileID
	// dropped are the operations that ended since somebody looked.
	dropped []uint64
	// named are the names that changed since somebody looked.
	named []nameID
	// left are the directories of which a name was left to the base tree since somebody
	// looked.
	left []string
	// renewed are the operations that got newer content since somebody looked.
	renewed []uint64
	// tally counts what status tells.
	tally tally
	// after is what comes after the rest of the record that is being applied.
	after []func()
}

func newState() *state {
	return &state{
		NextFile: 1, NextOp: 1, NextOrder: 1,
		Files: make(map[fileID]*fileState), Names: make(map[string]map[string]name),
		Ops: make(map[uint64]*operation), Keys: make(map[string]*keyState), Uploads: make(map[string]upload),
		Losses: make(map[fileID]*loss), Dirs: make(map[string]dirAttr), preceded: make(map[fileID]int), displaced: make(map[string]map[fileID]bool),
		ordered: make(orderedNames), tally: newTally(),
		Kept: make(map[uint64]bool), keptOf: make(map[fileID]uint64), keptAt: make(map[string]int),
		recent: newRecent(),
	}
}

// lookup returns what the space says of a name, if anything.
func (st *state) lookup(dir, base string) (name, bool) {
	n, ok := st.Names[dir][base]
	return n, ok
}

func (st *state) setName(dir, base string, n name) {
	st.named = append(st.named, nameID{dir, base})
	names := st.Names[dir]
	if names == nil {
		names = make(map[string]name)
		st.Names[dir] = names
	}
	st.ordered.replace(dir, base, names[base], n)
	if old, ok := names[base]; ok && old.Kind == nameDirectory && n.Kind != nameDirectory {
		delete(st.Dirs, old.Key)
	}
	if old, ok := names[base]; ok && old.Key != n.Key {
		// A file where a directory was, or the other way round.
		st.dropKey(old.Key)
		if k := st.Keys[n.Key]; k != nil {
			// What was hidden must be hidden again when this name goes.
			k.Shown = true
		}
	}
	names[base] = n
}

// dropKey forgets what is believed of a key that no name means any more, unless
// something is still to be done there: then the end of that does.
func (st *state) dropKey(key string) {
	if k := st.Keys[key]; k != nil && k.Pending == 0 && k.Flight == 0 && st.keptAt[key] == 0 {
		delete(st.Keys, key)
	}
}

// leaveName forgets a name of which the base tree may say something.
func (st *state) leaveName(dir, base string) {
	st.dropName(dir, base)
	st.left = append(st.left, dir)
}

// dropName forgets a name.
func (st *state) dropName(dir, base string) {
	names := st.Names[dir]
	if n := names[base]; n.Kind == nameDirectory {
		delete(st.Dirs, n.Key)
	}
	st.ordered.replace(dir, base, names[base], name{})
	delete(names, base)
	if len(names) > 0 {
		return
	}
	delete(st.Names, dir)
	delete(st.ordered, dir)
	if dir != "" {
		// What hides or replaces the directory may have waited for this.
		st.named = append(st.named, nameID{parent(dir), dir[strings.LastIndexByte(dir, '/')+1:]})
	}
}

// key returns what is believed of a key, which begins with base.
func (st *state) key(key string, base oss.Object) *keyState {
	k := st.Keys[key]
	if k == nil {
		k = &keyState{Remote: base, Shown: base.ETag != ""}
		st.Keys[key] = k
	}
	return k
}

// suspect reports whether the disk lost the last generation.
func (f *fileState) suspect() bool { return f.Suspect == f.Gen && f.Gen > 0 }
