package cache

import (
	"sync/atomic"
	"time"

	"github.com/pailfs/pailfs/cache/internal/content"
)

// hold is a reason for which an extent stays in memory.
type hold uint8

const (
	// heldFetching: its bytes are on the way.
	heldFetching hold = 1 << iota
	// heldAhead: it was fetched for a reader who has not yet come by.
	heldAhead
	// heldKept: the memory tier thinks that it will be read again.
	heldKept
	// heldWriting: it waits to be written to SSD.
	heldWriting
)

// extent is a run of blocks of one segment in one buffer: what one request
// brings. It is found through its segment for as long as something holds it; its
// buffer lives until the last reference is dropped.
type extent struct {
	object *object
	buf    buffer
	refs   atomic.Int32

	// Guarded by object.mu.
	span     content.Span
	holds    hold
	flight   *flight   // until the bytes are there
	consumed int64     // how many bytes readers have taken, for heldAhead
	cost     int64     // what the budget was charged
	offers   uint8     // how often it was offered to the SSD tier again, at most maxOffers
	offered  time.Time // when it was last, once that was maxOffers times
}

// extentOverhead is what the records around an extent cost beside its buffer: it
// bounds how many small ones there are.
const extentOverhead = 1 << 10

// extentCost returns what an extent of n bytes costs the budget.
func extentCost(n int64) int64 { return bufferCost(n) + extentOverhead }

// acquire adds a reference; the caller must know that there is one already.
func (e *extent) acquire() { e.refs.Add(1) }

// release drops a reference. With the last one the memory goes back.
func (e *extent) release() {
	if e.refs.Add(-1) > 0 {
		return
	}
	m := e.object.cache.memory
	if e.buf.bytes != nil {
		m.pool.put(e.buf)
	}
	if e.cost > 0 {
		m.budget.release(e.cost)
	}
	e.object.release()
}

// slice returns up to n bytes that lie at off in the object.
func (e *extent) slice(off, n int64) []byte {
	g := e.object.geometry
	from := off - g.Offset(e.span)
	return e.buf.bytes[from:min(from+n, g.Length(e.span))]
}

// key is what the memory tier knows the extent by. It is the same whenever the
// same bytes are fetched, so that their use is remembered.
func (e *extent) key() uint64 { return e.object.id.BlockKey(e.span.Segment, e.span.First) }
