package cache

import (
	"context"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pailfs/pailfs/oss"
)

// Cache returns bytes of object versions. It is safe for concurrent use.
type Cache struct {
	demand, prefetch oss.RangeReader
}

// Open prepares the tiers that cfg describes. Reads that somebody waits for go to
// demand, others to prefetch.
func Open(cfg Config, demand, prefetch oss.RangeReader, reg prometheus.Registerer, log *slog.Logger) (*Cache, error) {
	return &Cache{demand: demand, prefetch: prefetch}, nil
}

// Open pins the version obj in the cache until the handle is closed. It makes no
// request and does no I/O.
func (c *Cache) Open(obj oss.Object) (*Handle, error) {
	return &Handle{cache: c, object: obj}, nil
}

// Fetch brings the whole of obj onto SSD in the prefetch class and returns when
// it is there. It blocks while there is no room; that is the backpressure.
func (c *Cache) Fetch(ctx context.Context, obj oss.Object) error { return nil }

// Release says that nobody will read obj soon: it is the next to be evicted.
func (c *Cache) Release(obj oss.Object) {}

// Residency says how much of obj the tiers hold.
func (c *Cache) Residency(obj oss.Object) Residency { return Residency{} }

// MakeRoom evicts from SSD until bytes have been freed or nothing more can be,
// and returns how many were.
func (c *Cache) MakeRoom(bytes int64) (freed int64) { return 0 }

// Stats returns the present state, for status.
func (c *Cache) Stats() Stats { return Stats{} }

// Close stops everything that the cache runs. Handles must have been closed.
func (c *Cache) Close() error { return nil }
