package follow

import (
	"sync/atomic"

	"github.com/pailfs/pailfs/manifest"
	"github.com/pailfs/pailfs/manifest/publish"
)

// generation is an open manifest. It is closed by the last who lets go of it.
type generation struct {
	publish.Generation
	snapshot *manifest.Snapshot
	// users counts those who hold it; 0 means that it is closed.
	users atomic.Int64
	// closed is told the error of closing, if there was one.
	closed func(error)
}

// newGeneration returns a generation that the caller holds.
func newGeneration(g publish.Generation, s *manifest.Snapshot, closed func(error)) *generation {
	n := &generation{Generation: g, snapshot: s, closed: closed}
	n.users.Store(1)
	return n
}

// hold keeps g open, unless it is closed.
func (g *generation) hold() bool {
	for {
		n := g.users.Load()
		if n == 0 {
			return false
		}
		if g.users.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// release ends what hold, or newGeneration, began.
func (g *generation) release() {
	if g.users.Add(-1) > 0 {
		return
	}
	if err := g.snapshot.Close(); err != nil {
		g.closed(err)
	}
}
