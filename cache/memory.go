package cache

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/dgraph-io/ristretto/v2"

	"github.com/pailfs/pailfs/cache/internal/content"
)

const (
	// minMemory is the least budget with which parallel ranges make sense.
	minMemory = 64 << 20
	// maxCounters bounds ristretto's memory of what was used how often, which takes
	// three bytes a counter.
	maxCounters = 10 << 20
)

// memoryTier keeps extents for as long as ristretto thinks that they are worth
// it. What is being fetched, read or written has room beside them: the budget
// counts both, and the share that may be kept shrinks while streams read ahead.
type memoryTier struct {
	budget *budget
	copies *budget // the part of it that views with buffers of their own have
	pool   *bufferPool
	lru    *ristretto.Cache[uint64, *extent]

	limit   int64
	ahead   atomic.Int64 // sum of the windows of all streams
	streams atomic.Int64 // number of streams with a window
	kept    atomic.Int64 // cost of what is heldKept or on its way there

	// wakeup asks run to look at the budget.
	wakeup chan struct{}
}

func openMemory(limit int64) (*memoryTier, error) {
	m := &memoryTier{
		budget: newBudget(limit, max(limit/16, 2*largestBuffer)),
		copies: newBudget(max(limit/16, largestBuffer), 0),
		pool:   newBufferPool(limit),
		limit:  limit,
		wakeup: make(chan struct{}, 1),
	}
	m.budget.pressed = func(urgency) { m.wake() }
	lru, err := ristretto.NewCache(&ristretto.Config[uint64, *extent]{
		// Ten counters for every extent, were all as small as four pages.
		NumCounters:        min(limit/(4*content.PageSize)*10, maxCounters),
		MaxCost:            m.keptLimit(),
		BufferItems:        64,
		IgnoreInternalCost: true,
		KeyToHash:          func(key uint64) (uint64, uint64) { return key, 0 },
		OnExit:             m.exit,
	})
	if err != nil {
		return nil, fmt.Errorf("open memory tier: %w", err)
	}
	m.lru = lru
	return m, nil
}

// keptLimit is how many bytes may be kept: all but what readers, streams and the
// disk work with, an eighth at least and half at most. It is never less than three of the largest
// buffers, one of which views may hold while they wait for another.
func (m *memoryTier) keptLimit() int64 {
	working := max(m.limit/8, 3*largestBuffer) + m.ahead.Load()
	return m.limit - min(working, m.limit/2)
}

// keep offers e, which must be heldKept, to ristretto. Whether it stays is told
// through exit, perhaps before keep returns.
func (m *memoryTier) keep(e *extent) {
	m.kept.Add(e.cost)
	if !m.lru.Set(e.key(), e, e.cost) {
		m.exit(e)
	}
}

// exit is called once for every extent that ristretto rejects or lets go. A
// deletion that finds nothing passes nil.
func (m *memoryTier) exit(e *extent) {
	if e == nil {
		return
	}
	m.kept.Add(-e.cost)
	e.object.unhold(e, heldKept)
}

// used tells ristretto that what goes by key was wanted, whether it is there or
// not.
func (m *memoryTier) used(key uint64) { m.lru.Get(key) }

// drop makes ristretto let go of e.
func (m *memoryTier) drop(e *extent) { m.lru.Del(e.key()) }

// readAhead changes a stream's window; 0 is none.
func (m *memoryTier) readAhead(from, to int64) {
	switch {
	case from == 0 && to > 0:
		m.streams.Add(1)
	case from > 0 && to == 0:
		m.streams.Add(-1)
	}
	m.ahead.Add(to - from)
	m.lru.UpdateMaxCost(m.keptLimit())
}

// fairWindow is the window of a stream when memory is short: an equal share of
// what is not kept.
func (m *memoryTier) fairWindow() int64 {
	return max(m.limit/2/max(m.streams.Load(), 1), minWindow)
}

// wake makes run look at the budget soon.
func (m *memoryTier) wake() {
	select {
	case m.wakeup <- struct{}{}:
	default:
	}
}

// shrink evicts what is kept beyond the limit, and as much as readers wait for.
// Ristretto does so by itself only when it admits something, and it admits nothing
// that was used less than what it has: a stream would wait for room for ever, and
// so would a reader while all but what is kept is stuck.
func (m *memoryTier) shrink(urgentBytes int64) {
	excess := m.kept.Load() - m.keptLimit()
	if urgentBytes > 0 {
		// Others will come: what is freed once need not be freed for each of them.
		excess = max(excess, urgentBytes+m.limit/16)
	}
	if excess <= 0 {
		return
	}
	var victims []uint64
	m.lru.IterValues(func(e *extent) bool {
		if e == nil {
			return false
		}
		victims = append(victims, e.key())
		excess -= e.cost
		return excess <= 0
	})
	for _, key := range victims {
		m.lru.Del(key)
	}
}

// allocateCopy finds a buffer for a view that needs its own. Its reader may still
// have to wait for a flight, which needs memory too; so such views together never
// get more than a part of what is not kept.
func (m *memoryTier) allocateCopy(ctx context.Context, n int64) (buffer, error) {
	cost := bufferCost(n)
	if err := m.copies.acquire(ctx, cost, urgent); err != nil {
		return buffer{}, err
	}
	if err := m.budget.acquire(ctx, cost, urgent); err != nil {
		m.copies.release(cost)
		return buffer{}, err
	}
	b, err := m.pool.get(n)
	if err != nil {
		m.budget.release(cost)
		m.copies.release(cost)
		return buffer{}, err
	}
	return b, nil
}

// freeCopy gives back what allocateCopy returned.
func (m *memoryTier) freeCopy(b buffer) {
	m.pool.put(b)
	m.budget.release(b.size())
	m.copies.release(b.size())
}

// close lets go of everything and returns how many bytes are still referred to.
func (m *memoryTier) close() (leaked int64) {
	m.lru.Close()
	return m.pool.close()
}
