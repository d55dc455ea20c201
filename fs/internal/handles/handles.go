package handles

import "sync"

// Table holds what is open by the number that the kernel has. A number is never used again;
// 0 is none, for what needs no handle. The zero value is empty.
type Table[T any] struct {
	mu struct {
		sync.Mutex
		next uint64
		open map[uint64]*T
	}
}

// Add gives h a number.
func (t *Table[T]) Add(h *T) uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.mu.open == nil {
		t.mu.open = make(map[uint64]*T)
	}
	t.mu.next++
	t.mu.open[t.mu.next] = h
	return t.mu.next
}

// Get returns what has a number, or nil.
func (t *Table[T]) Get(fh uint64) *T {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.mu.open[fh]
}

// Remove takes a number away and returns what had it, or nil.
func (t *Table[T]) Remove(fh uint64) *T {
	t.mu.Lock()
	defer t.mu.Unlock()
	h := t.mu.open[fh]
	delete(t.mu.open, fh)
	return h
}

// Len returns how much is open.
func (t *Table[T]) Len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.mu.open)
}

// RemoveAll takes all numbers away and returns what had one.
func (t *Table[T]) RemoveAll() []*T {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := make([]*T, 0, len(t.mu.open))
	for _, h := range t.mu.open {
		all = append(all, h)
	}
	t.mu.open = nil
	return all
}
