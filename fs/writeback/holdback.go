package writeback

import "sync"

// HoldBack keeps the object at key from being deleted or replaced until release is
// called: somebody who has the file open still reads it. What is changed under its
// name waits, as a file does that is open for writing.
func (s *Space) HoldBack(key string) (release func()) { return s.holdIn(s.mu.held, key) }

// HoldBackUnlessDraining is HoldBack for somebody who may open the file yet: a flush or
// a drain does not wait for that. It must be released soon: what comes after the change
// of key in the order waits with it.
func (s *Space) HoldBackUnlessDraining(key string) (release func()) {
	return s.holdIn(s.mu.heldLightly, key)
}

func (s *Space) holdIn(held map[string]int, key string) (release func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	held[key]++
	return sync.OnceFunc(func() {
		s.mu.Lock()
		if held[key]--; held[key] == 0 {
			delete(held, key)
		}
		s.mu.Unlock()
		wake(s.publishNow)
	})
}

// heldBack is errOpen if the object at key must stay, and errLooked if it must for some
// seconds at most.
func (s *Space) heldBack(key string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.mu.held[key] > 0:
		return errOpen
	case s.mu.heldLightly[key] > 0 && s.mu.draining == 0:
		return errLooked
	}
	return nil
}
