package state

import (
	"strings"

	"github.com/pailfs/pailfs/fs/writeback/internal/attrs"
	"github.com/pailfs/pailfs/fs/writeback/internal/order"
	"github.com/pailfs/pailfs/oss"
)

// Hollow reports whether nothing is in dir that was made here, or renamed.
func (st *State) Hollow(dir string) bool {
	for _, n := range st.Names[dir] {
		if n.Kind != NameGone {
			return false
		}
	}
	return true
}

// NameKind says what a name of the space means.
type NameKind uint8

const (
	// NameFile is a file or a symlink of the space.
	NameFile NameKind = iota + 1
	// NameDirectory is a directory that was made here.
	NameDirectory
	// NameGone hides what the base tree shows.
	NameGone
)

// Name is what the space says of one name.
type Name struct {
	Kind NameKind
	// File is the file, for NameFile.
	File order.FileID
	// Key is the key of the name in the bucket; that of a directory ends with a
	// slash.
	Key string
}

// NameID is a name in a directory.
type NameID struct{ Dir, Name string }

// File is what survives of a file. Two of them with the same fields are the
// same: nothing but apply changes one.
type File struct {
	ID order.FileID
	// Dir and Name say where the file is, if Linked, and Key the key there.
	Dir, Name, Key string
	Linked         bool
	// Symlink says that the content is the target of a symbolic link.
	Symlink bool

	// Gen is the last committed generation, Size and Stamp the size and the time of
	// the last write of the staged file at that moment, in nanoseconds since 1970.
	Gen   order.Generation
	Size  int64
	Stamp int64
	// Durable is the last generation that survives the loss of power, Suspect one
	// that did not.
	Durable, Suspect order.Generation
	// Inline is a generation whose content is in its record. Nothing else may be on
	// the disk.
	Inline order.Generation

	// Staged says that the content is the file staged/<ID>, and not Object.
	// BaseGen is the generation at which it became staged: without a commit since,
	// recovery goes back to Object, or to nothing.
	Staged  bool
	BaseGen order.Generation
	Object  oss.Object
	// Partial, if set, says which bytes the staged file lacks, and who has them.
	Partial *Partial
	// Vouched is what Partial was at the last durable generation, if another was committed
	// since: the loss of power may take what only Partial has.
	Vouched *Partial
	// Origin is the object that the file was made from, if any.
	Origin oss.Object

	// Published is the object that generation PubGen became, PubCRC its CRC-64.
	PubGen    order.Generation
	Published oss.Object
	PubCRC    uint64

	// Attr are the attributes, PubAttr those that the bucket has.
	Attr, PubAttr attrs.Attrs
	// XAttrs are the extended ones, nil if none were given here and the object had none.
	XAttrs *attrs.XAttrs
}

// Intent is what a begun operation may have done to its key.
type Intent struct {
	Kind order.Kind
	Size int64
	CRC  uint64
}

// Key is what is believed of a key of the bucket.
type Key struct {
	// Remote is the version there; without an ETag there is none.
	Remote oss.Object
	// Maybe are changes of ours that may have happened since.
	Maybe []Intent
	// Shown says that the base tree may show something there.
	Shown bool
	// Pending and Flight are operations, or 0.
	Pending, Flight uint64
}

// Present reports whether the key is believed to hold a version.
func (k *Key) Present() bool { return k.Remote.ETag != "" }

// Upload is a multipart upload of ours that is neither completed nor aborted. An ID
// that begins with AskedUpload stands for one that was asked for, and may have begun.
type Upload struct {
	Key, ID string
	File    order.FileID
	// Options is a sum of the options that the upload was begun with: they cannot be
	// changed.
	Options uint64
	// PartSize is the size of the first parts, see layout; 0 if nobody can go on with
	// the upload but who began it, and negative if the parts are those of a plan, see planSum.
	PartSize int64
}

// AskedUpload begins the name of an upload whose own is not known (yet).
const AskedUpload = "?"

// Asked says that the name of u is not known.
func (u *Upload) Asked() bool { return strings.HasPrefix(u.ID, AskedUpload) }

// Conflict is one change that somebody else's met.
type Conflict struct {
	Path string
	// Kept is where ours is, "" if it was a deletion that was not carried out.
	Kept string
	At   int64
}

// Identity is what a staging directory belongs to.
type Identity struct{ Endpoint, Bucket, Prefix string }

// maxConflicts is how many conflicts are remembered.
const maxConflicts = 100

// State is everything that survives. It is changed by apply alone.
type State struct {
	// Identity is whose changes these are, Boot the run of the machine in which the
	// last records were written.
	Identity Identity
	Boot     string

	NextFile, NextOp, NextOrder uint64

	Files     map[order.FileID]*File
	Names     map[string]map[string]Name
	Ops       map[uint64]*order.Operation
	Keys      map[string]*Key
	Uploads   map[string]Upload
	Conflicts []Conflict
	// Losses are closed files that did not survive the loss of power and precede what is
	// to be published, by their id.
	Losses map[order.FileID]*Loss
	// Dirs are the attributes that directories were given, by their key.
	Dirs map[string]DirAttr
	// Kept are publications of files whose names others have taken since, see kept.go.
	Kept map[uint64]bool

	// Ordered has Names by key, for those directories that were listed.
	Ordered orderedNames
	// Queue has the operations in order, recent by directory. They follow from Ops.
	Queue  order.Queue
	recent order.Recent
	// Displaced has every file whose content is the object of another key, by that key,
	// and perhaps others. displacing counts those that were added since these were looked for.
	Displaced  map[string]map[order.FileID]bool
	displacing int
	// preceded is how many operations each of Losses precedes; all that was committed
	// from LastLoss on is later. mended are those of which one came or went since
	// somebody looked.
	preceded map[order.FileID]int
	// KeptOf has the operations of Kept by file, KeptAt counts them by key. Unkept are the
	// files of those that ended since somebody looked.
	KeptOf   map[order.FileID]uint64
	KeptAt   map[string]int
	Unkept   []order.FileID
	LastLoss uint64
	mended   []order.FileID
	// Dropped are the operations that ended since somebody looked.
	Dropped []uint64
	// Named are the names that changed since somebody looked.
	Named []NameID
	// Left are the directories of which a name was left to the base tree since somebody
	// looked.
	Left []string
	// Renewed are the operations that got newer content since somebody looked.
	Renewed []uint64
	// Tally counts what status tells.
	Tally Tally
	// after is what comes after the rest of the record that is being applied.
	after []func()
}

// NewState returns that of a directory that holds nothing.
func NewState() *State {
	return &State{
		NextFile: 1, NextOp: 1, NextOrder: 1,
		Files: make(map[order.FileID]*File), Names: make(map[string]map[string]Name),
		Ops: make(map[uint64]*order.Operation), Keys: make(map[string]*Key), Uploads: make(map[string]Upload),
		Losses: make(map[order.FileID]*Loss), Dirs: make(map[string]DirAttr), preceded: make(map[order.FileID]int), Displaced: make(map[string]map[order.FileID]bool),
		Ordered: make(orderedNames), Tally: NewTally(),
		Kept: make(map[uint64]bool), KeptOf: make(map[order.FileID]uint64), KeptAt: make(map[string]int),
		recent: order.NewRecent(),
	}
}

// Lookup returns what the space says of a name, if anything.
func (st *State) Lookup(dir, base string) (Name, bool) {
	n, ok := st.Names[dir][base]
	return n, ok
}

func (st *State) setName(dir, base string, n Name) {
	st.Named = append(st.Named, NameID{dir, base})
	names := st.Names[dir]
	if names == nil {
		names = make(map[string]Name)
		st.Names[dir] = names
	}
	st.Ordered.replace(dir, base, names[base], n)
	if old, ok := names[base]; ok && old.Kind == NameDirectory && n.Kind != NameDirectory {
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
func (st *State) dropKey(key string) {
	if k := st.Keys[key]; k != nil && k.Pending == 0 && k.Flight == 0 && st.KeptAt[key] == 0 {
		delete(st.Keys, key)
	}
}

// leaveName forgets a name of which the base tree may say something.
func (st *State) leaveName(dir, base string) {
	st.dropName(dir, base)
	st.Left = append(st.Left, dir)
}

// dropName forgets a name.
func (st *State) dropName(dir, base string) {
	names := st.Names[dir]
	if n := names[base]; n.Kind == NameDirectory {
		delete(st.Dirs, n.Key)
	}
	st.Ordered.replace(dir, base, names[base], Name{})
	delete(names, base)
	if len(names) > 0 {
		return
	}
	delete(st.Names, dir)
	delete(st.Ordered, dir)
	if dir != "" {
		// What hides or replaces the directory may have waited for this.
		st.Named = append(st.Named, NameID{order.Parent(dir), dir[strings.LastIndexByte(dir, '/')+1:]})
	}
}

// key returns what is believed of a key, which begins with base.
func (st *State) key(key string, base oss.Object) *Key {
	k := st.Keys[key]
	if k == nil {
		k = &Key{Remote: base, Shown: base.ETag != ""}
		st.Keys[key] = k
	}
	return k
}

// IsSuspect reports whether the disk lost the last generation.
func (f *File) IsSuspect() bool { return f.Suspect == f.Gen && f.Gen > 0 }
