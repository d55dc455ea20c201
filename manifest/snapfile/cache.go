package snapfile

import (
	"math/bits"
	"sync/atomic"
)

// blockCache keeps what was decoded, up to so many bytes. Readers take no lock:
// each block has one slot, which it shares with others, and what is put there
// replaces what was. What was not asked for since the hand last passed goes first.
type blockCache struct {
	limit int64
	bytes atomic.Int64
	hand  atomic.Uint64
	slots []atomic.Pointer[slot]
}

// slot is a decoded part of the file.
type slot struct {
	kind   kind
	number uint64
	bytes  int64
	value  any
	used   atomic.Bool
}

func newBlockCache(limit int64) *blockCache {
	// As many slots as there may be small blocks, twice.
	n := max(64, uint64(limit)/(2<<10))
	return &blockCache{limit: limit, slots: make([]atomic.Pointer[slot], 1<<bits.Len64(n-1))}
}

func (c *blockCache) slot(k kind, number uint64) *atomic.Pointer[slot] {
	return &c.slots[(number*uint64(numKinds)+uint64(k))&uint64(len(c.slots)-1)]
}

// get returns the part, or nil.
func (c *blockCache) get(k kind, number uint64) any {
	s := c.slot(k, number).Load()
	if s == nil || s.kind != k || s.number != number {
		return nil
	}
	if !s.used.Load() {
		s.used.Store(true)
	}
	return s.value
}

// put keeps the part, which takes so many bytes.
func (c *blockCache) put(k kind, number uint64, size int, value any) {
	s := &slot{kind: k, number: number, bytes: int64(size) + 64, value: value}
	if s.bytes > c.limit {
		return
	}
	c.bytes.Add(s.bytes)
	if old := c.slot(k, number).Swap(s); old != nil {
		c.bytes.Add(-old.bytes)
	}
	// Two rounds suffice: the first takes from all the sign of use.
	for turns := 2 * len(c.slots); c.bytes.Load() > c.limit && turns > 0; {
		turns -= c.evict()
	}
}

// evict moves the hand until it has dropped something or passed 64 slots, and
// returns how many it passed.
func (c *blockCache) evict() int {
	for turns := 1; ; turns++ {
		at := &c.slots[c.hand.Add(1)&uint64(len(c.slots)-1)]
		if s := at.Load(); s != nil && !s.used.Swap(false) && at.CompareAndSwap(s, nil) {
			c.bytes.Add(-s.bytes)
			return turns
		}
		if turns == 64 {
			return turns
		}
	}
}
