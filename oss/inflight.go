package oss

import (
	"sync"

	"github.com/pailfs/pailfs/oss/limiter"
)

// inflightSet knows the requests in flight, so that Close can end them.
type inflightSet struct {
	mu struct {
		sync.Mutex
		closed   bool
		attempts map[*attempt]struct{}
	}
	// background counts the goroutines of hedged requests.
	background sync.WaitGroup
}

// add returns false after close.
func (r *inflightSet) add(a *attempt) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.closed {
		return false
	}
	if r.mu.attempts == nil {
		r.mu.attempts = make(map[*attempt]struct{})
	}
	r.mu.attempts[a] = struct{}{}
	return true
}

func (r *inflightSet) remove(a *attempt) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.mu.attempts, a)
}

// goBackground counts a goroutine that close waits for; it returns false after
// close.
func (r *inflightSet) goBackground() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.closed {
		return false
	}
	r.background.Add(1)
	return true
}

// close ends all requests and waits for what runs in the background.
func (r *inflightSet) close() {
	r.mu.Lock()
	r.mu.closed = true
	for a := range r.mu.attempts {
		a.cancel(limiter.ErrClosed)
	}
	r.mu.Unlock()
	r.background.Wait()
}
