package cache

import (
	"container/list"
	"context"
	"fmt"
	"sync"
)

// urgency says who is asking the budget for memory.
type urgency uint8

const (
	// urgent is for a read that somebody waits for. It may take all there is.
	urgent urgency = iota
	// patient is for readahead and Fetch. It leaves the reserve alone, so that
	// reads are not starved by what is only useful later.
	patient
)

// budget bounds the bytes that the cache holds in buffers, whatever for: what it
// keeps, what is in flight, what waits for the disk, what a reader looks at.
//
// Waiters are served in order, the urgent ones first. Whoever waits here holds no
// buffer, so that those who hold one can always finish and give it back.
type budget struct {
	limit   int64
	reserve int64
	// pressed is called, without a lock, when memory is asked for that is not
	// there; it may give back what is held for no good reason.
	pressed func(urgency)

	mu struct {
		sync.Mutex
		used    int64
		waiting [2]list.List // of *budgetWaiter, by urgency
	}
}

// budgetWaiter is one blocked acquire.
type budgetWaiter struct {
	bytes int64
	ready chan struct{}
}

func newBudget(limit, reserve int64) *budget {
	return &budget{limit: limit, reserve: reserve, pressed: func(urgency) {}}
}

// ceiling is how far u may fill the budget.
func (b *budget) ceiling(u urgency) int64 {
	if u == patient {
		return b.limit - b.reserve
	}
	return b.limit
}

// try takes bytes if they are there and nobody more urgent, or earlier, waits.
func (b *budget) try(bytes int64, u urgency) bool {
	b.mu.Lock()
	ok := b.tryLocked(bytes, u)
	b.mu.Unlock()
	if !ok {
		b.pressed(u)
	}
	return ok
}

func (b *budget) tryLocked(bytes int64, u urgency) bool {
	for i := urgent; i <= u; i++ {
		if b.mu.waiting[i].Len() > 0 {
			return false
		}
	}
	if b.mu.used+bytes > b.ceiling(u) {
		return false
	}
	b.mu.used += bytes
	return true
}

// acquire takes bytes, waiting for them until ctx ends.
func (b *budget) acquire(ctx context.Context, bytes int64, u urgency) error {
	if bytes > b.ceiling(u) {
		return fmt.Errorf("%d bytes are more than there will ever be of %d", bytes, b.ceiling(u))
	}
	b.mu.Lock()
	if b.tryLocked(bytes, u) {
		b.mu.Unlock()
		return nil
	}
	w := &budgetWaiter{bytes: bytes, ready: make(chan struct{})}
	place := b.mu.waiting[u].PushBack(w)
	b.mu.Unlock()

	b.pressed(u)
	select {
	case <-w.ready:
		return nil
	case <-ctx.Done():
	}

	b.mu.Lock()
	select {
	case <-w.ready: // granted in the meantime
		b.mu.used -= bytes
	default:
		b.mu.waiting[u].Remove(place)
	}
	b.grantLocked()
	b.mu.Unlock()
	return ctx.Err()
}

// release gives bytes back.
func (b *budget) release(bytes int64) {
	b.mu.Lock()
	b.mu.used -= bytes
	b.grantLocked()
	b.mu.Unlock()
}

// grantLocked gives what is free to those who wait. They are told under the lock:
// whoever gives up must know whether it was granted.
func (b *budget) grantLocked() {
	for u := urgent; u <= patient; u++ {
		waiting := &b.mu.waiting[u]
		for waiting.Len() > 0 {
			w := waiting.Front().Value.(*budgetWaiter)
			if b.mu.used+w.bytes > b.ceiling(u) {
				// Nobody overtakes: a large request would never find enough.
				return
			}
			b.mu.used += w.bytes
			waiting.Remove(waiting.Front())
			close(w.ready)
		}
	}
}

// inUse returns the bytes that are taken.
func (b *budget) inUse() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.mu.used
}

// wanted returns how many bytes those who wait want, by urgency.
func (b *budget) wanted() (urgentBytes, patientBytes int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var bytes [2]int64
	for u := range b.mu.waiting {
		for w := b.mu.waiting[u].Front(); w != nil; w = w.Next() {
			bytes[u] += w.Value.(*budgetWaiter).bytes
		}
	}
	return bytes[urgent], bytes[patient]
}
