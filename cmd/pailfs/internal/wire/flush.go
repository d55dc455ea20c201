package wire

import (
	"time"

	"github.com/pailfs/pailfs/fs/writeback"
)

// FlushParams are the parameters of the control method flush.
type FlushParams struct {
	// Path is relative to the directory on which the call is made; "" is all of that.
	Path string `json:"path"`
	// Begun is that of the answer before, if this goes on.
	Begun time.Time `json:"begun,omitzero"`
}

// FlushAnswer is the result of the control method flush: how far it is after a part of a second.
type FlushAnswer struct {
	Done bool `json:"done"`
	// Begun is to be given back with the next call.
	Begun time.Time `json:"begun,omitzero"`
	// Left are the changes at or below the path that are due, with their bytes; at
	// most flushListed are counted. Paths names some of them to those whom the mount
	// belongs to.
	Left  int                      `json:"left"`
	Bytes int64                    `json:"bytes"`
	Paths []writeback.PendingEntry `json:"paths,omitempty"`
	// Error says why something cannot be published as things are.
	Error string `json:"error,omitempty"`
}
