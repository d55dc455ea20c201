package writeback

import "sync"

// HoldBack keeps the object at key from being deleted or replaced until release is
// called: somebody who has the file open still reads it. What is changed under its
// name waits, as a file does that is open for writing.
func (s *Space) HoldBack(key string) (release func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.held[key]++
	return sync.OnceFunc(func() {
		s.mu.Lock()
		if s.mu.held[key]--; s.mu.held[key] == 0 {
			delete(s.mu.held, key)
		}
		s.mu.Unlock()
		wake(s.publishNow)
	})
}

// heldBack is errOpen if the object at key must stay.
func (s *Space) heldBack(key string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.held[key] > 0 {
		return errOpen
	}
	return nil
}
