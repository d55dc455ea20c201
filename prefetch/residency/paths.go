package residency

import (
	"runtime"

	"github.com/pailfs/pailfs/cache"
	"github.com/pailfs/pailfs/oss"
	"github.com/pailfs/pailfs/prefetch/internal/turns"
	"github.com/pailfs/pailfs/prefetch/rights"
)

// Cache is what this package needs of a [cache.Cache].
type Cache interface {
	Residency(obj oss.Object) cache.Residency
	Evict(obj oss.Object) (freed int64, err error)
}

// Paths tells how much of what paths mean is in a cache. It is safe for concurrent use.
type Paths struct {
	rights rights.Rights
	cache  Cache
	// measuring lets users measure one after the other.
	measuring *turns.Turns
}

// New returns the Paths of a cache.
func New(r rights.Rights, c Cache) *Paths {
	return &Paths{rights: r, cache: c, measuring: turns.New(max(1, runtime.GOMAXPROCS(0)/2))}
}
