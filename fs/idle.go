package fs

import (
	"container/list"
	"context"
	"sync"
	"time"
)

const (
	// idleAfter is how long a version stays pinned after its last READ when the
	// kernel does not tell of open and close. It spans the gaps of a reader that
	// computes between two reads. Who has read the end of the file leaves it at once:
	// what a trainer has used must make room for what comes.
	idleAfter = 5 * time.Second
	// idleMost bounds the versions pinned that way, and with them descriptors.
	idleMost = 1024
)

// idleHandles keeps versions pinned for a while after a READ on a no-open mount,
// where nothing says when a file is closed.
type idleHandles struct {
	// unpin closes an inode's handle if no READ uses it.
	unpin func(*inode)
	mu    struct {
		sync.Mutex
		order list.List // of idleEntry, the longest unused first
	}
}

type idleEntry struct {
	node  *inode
	since time.Time
}

// put notes that n has just been read.
func (h *idleHandles) put(n *inode) {
	st := n.opened()
	h.mu.Lock()
	if st.idle != nil {
		h.mu.order.Remove(st.idle)
	}
	st.idle = h.mu.order.PushBack(idleEntry{node: n, since: time.Now()})
	var old *inode
	if h.mu.order.Len() > idleMost {
		old = h.popLocked()
	}
	h.mu.Unlock()
	if old != nil {
		h.unpin(old)
	}
}

// drop unpins n, which was read to its end or which the kernel has forgotten.
func (h *idleHandles) drop(n *inode) {
	st := n.state.Load()
	if st == nil {
		return
	}
	h.mu.Lock()
	if st.idle != nil {
		h.mu.order.Remove(st.idle)
		st.idle = nil
	}
	h.mu.Unlock()
	h.unpin(n)
}

// popLocked takes the longest unused inode out. The caller holds h.mu.
func (h *idleHandles) popLocked() *inode {
	n := h.mu.order.Remove(h.mu.order.Front()).(idleEntry).node
	n.opened().idle = nil
	return n
}

// expire unpins what has not been read since before.
func (h *idleHandles) expire(before time.Time) {
	for {
		h.mu.Lock()
		front := h.mu.order.Front()
		if front == nil || !front.Value.(idleEntry).since.Before(before) {
			h.mu.Unlock()
			return
		}
		n := h.popLocked()
		h.mu.Unlock()
		h.unpin(n)
	}
}

// run expires until ctx ends.
func (h *idleHandles) run(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			h.expire(now.Add(-idleAfter))
		}
	}
}
