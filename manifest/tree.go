package manifest

import (
	"context"
	"time"

	"github.com/pailfs/pailfs/oss"
)

// Kind is the type of a directory entry.
type Kind uint8

// The kinds of entries.
const (
	File Kind = iota
	Directory
	Symlink
)

// Entry is one name in a directory.
type Entry struct {
	// Name is one path component: never empty, ".", ".." or with a slash, at most
	// 255 bytes.
	Name string
	Kind Kind
	// Object is the version that the name means. For a Directory only Key (the
	// prefix, ending with a slash) and perhaps ModTime are set.
	Object oss.Object
	// Attr is what is known beyond that, or nil. A Directory has its marker's. It
	// must not be changed.
	Attr *Attr
	// Partial says that only Lookup tells the attributes, and whether a File is one:
	// a listing has left out what costs a request for each name.
	Partial bool
	// Cursor continues a listing after this entry. It is opaque and stays valid
	// while the directory changes.
	Cursor string
}

// Validity says until when an answer may be repeated without asking again.
// The zero time means for ever.
type Validity time.Time

// Tree is a read-only view of names. Directories are named by their path
// relative to the root: "" is the root, else "a" or "a/b", never with a
// leading or trailing slash. Implementations are safe for concurrent use.
type Tree interface {
	// Lookup returns the entry called name in dir. A name that does not exist
	// is [fs.ErrNotExist], with a Validity that says how long that may be believed.
	Lookup(ctx context.Context, dir, name string) (Entry, Validity, error)

	// ReadDir returns entries of dir in a fixed order, beginning after the entry
	// whose Cursor is after ("" for the first). It returns at least one entry unless
	// the directory ends, and as many as it has at hand up to limit. A directory
	// that does not exist is [fs.ErrNotExist].
	ReadDir(ctx context.Context, dir, after string, limit int) ([]Entry, Validity, error)

	// ReadLink returns the target of a Symlink entry, as readlink(2) does.
	ReadLink(ctx context.Context, e Entry) (string, error)

	// Problems returns how many keys could not be shown under their own name, and
	// a few of them as examples, for status.
	Problems() Problems
}

// Problems reports keys that no file system can hold as they are.
type Problems struct {
	// Count is how many such keys were met so far.
	Count int64 `json:"count"`
	// Examples are at most ten of those keys with what became of them.
	Examples []Problem `json:"examples,omitempty"`
}

// Problem is one key that could not be shown under its own name.
type Problem struct {
	// Key is the key, quoted as Go does where it is not UTF-8.
	Key string `json:"key"`
	// Reason says which rule of NAMES.md applied and what became of the key.
	Reason string `json:"reason"`
}
