package life

import (
	"context"
	"sync"
)

// Life is the life of what calls are made for. The zero value lives.
type Life struct {
	mu struct {
		sync.Mutex
		ended bool
		// calls end the calls that are under way, by their number.
		calls map[uint64]context.CancelFunc
		next  uint64
	}
}

// Within returns the context of one call, which ends with ctx, with the life, or when done is
// called, as it must be after the call.
func (l *Life) Within(ctx context.Context) (within context.Context, done context.CancelFunc) {
	within, cancel := context.WithCancel(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.ended {
		cancel()
		return within, cancel
	}
	if l.mu.calls == nil {
		l.mu.calls = make(map[uint64]context.CancelFunc)
	}
	number := l.mu.next
	l.mu.next++
	l.mu.calls[number] = cancel
	return within, func() {
		cancel()
		l.mu.Lock()
		delete(l.mu.calls, number)
		l.mu.Unlock()
	}
}

// End ends the calls that are under way, and those that are still to come.
func (l *Life) End() {
	l.mu.Lock()
	calls := l.mu.calls
	l.mu.ended, l.mu.calls = true, nil
	l.mu.Unlock()
	for _, cancel := range calls {
		cancel()
	}
}
