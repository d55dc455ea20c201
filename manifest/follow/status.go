package follow

import (
	"time"

	"github.com/pailfs/pailfs/manifest"
)

// Status is the present state of a [Tree].
type Status struct {
	// Generation is the number of the one that answers.
	Generation uint64 `json:"generation"`
	// Objects and Bytes are how many objects it names and their sizes together.
	Objects int64 `json:"objects"`
	Bytes   int64 `json:"bytes"`
	// Built is when the bucket was looked at last for it, Published when it was put
	// into the bucket.
	Built     time.Time `json:"built"`
	Published time.Time `json:"published"`
	// Taken is when the tree went over to it.
	Taken time.Time `json:"taken"`
	// Failures counts attempts to take a newer one that failed, Failing those since
	// the last that did not.
	Failures int64 `json:"failures"`
	Failing  int64 `json:"failing"`
	// LastError says why the last that failed did, at LastErrorTime.
	LastError     string    `json:"last_error,omitempty"`
	LastErrorTime time.Time `json:"last_error_time,omitzero"`
	// Asked is how many names are asked of the bucket because the manifest was found
	// to be wrong about them.
	Asked int64 `json:"asked_names"`
}

// Status returns the present state.
func (t *Tree) Status() Status {
	g := t.now.Load()
	t.mu.Lock()
	s := t.mu.status
	t.mu.Unlock()
	s.Generation, s.Objects, s.Bytes = g.Number, g.Objects, g.Bytes
	s.Built, s.Published = g.Ended, g.Published
	s.Asked = t.suspect.count.Load()
	return s
}

// Info describes the manifest that answers.
func (t *Tree) Info() manifest.Info { return t.now.Load().snapshot.Info() }

// Stats returns how the generation that answers fares.
func (t *Tree) Stats() manifest.SnapshotStats { return t.now.Load().snapshot.Stats() }
