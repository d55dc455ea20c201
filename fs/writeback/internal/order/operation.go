package order

import (
	"strings"
)

// FileID names a file of a staging directory for ever: staged/<id> are its bytes.
type FileID = uint64

// Generation counts the commits of one file: closes and fsyncs after a change.
type Generation = uint64

// Kind is what an operation does to its key.
type Kind uint8

const (
	// Put makes the key hold the content of a file: by upload, or by copy where
	// the content is an object.
	Put Kind = iota + 1
	// Delete removes the key.
	Delete
	// Marker makes an empty object that keeps a directory.
	Marker
)

// String says it as people read it.
func (k Kind) String() string {
	switch k {
	case Put:
		return "upload"
	case Delete:
		return "delete"
	default:
		return "mkdir"
	}
}

// Operation is one pending publication. A key has at most one that has not begun,
// and one that has, beside those that are kept.
type Operation struct {
	ID    uint64
	Order uint64
	Kind  Kind
	Key   string
	// Dir is the directory of the key's name, Name the name; for people and for the
	// order.
	Dir, Name string
	File      FileID
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
	Gen   Generation
}

// Target returns the name that op is about.
func (op *Operation) Target() (dir, base string) {
	if op.Name != "" || op.Dir == "" {
		return op.Dir, op.Name
	}
	return Parent(op.Dir), op.Dir[strings.LastIndexByte(op.Dir, '/')+1:]
}
