package writeback

import (
	"time"

	"github.com/pailfs/pailfs/fs/writeback/internal/order"
)

// hasten lets what publication of path, or of what is below it, waits for be tried now, if
// it was tried last before begun. What nobody waits for keeps its pace: a file that is
// refused would else be sent each time that another one is synced. s.mu is held.
func (s *Space) hasten(path string, begun time.Time) {
	at := time.Now()
	some := false
	for _, run := range s.mu.runs {
		some = some || run.rests(begun, at)
	}
	if !some {
		return
	}
	sources := s.sources(path)
	awaited := s.mu.Queue.Awaited(s.standing, func(op *order.Operation) bool {
		return sources[op.Key] || covers(path, order.Join(op.Dir, op.Name))
	})
	for _, op := range awaited {
		if run := s.mu.runs[op.ID]; run.rests(begun, at) {
			run.next = time.Time{}
		}
	}
	wake(s.publishNow)
}

// rests reports whether the last attempt began before begun, and the next is due after
// at.
func (run *opRun) rests(begun, at time.Time) bool {
	return !run.running && run.began.Before(begun) && run.next.After(at)
}

// sources returns the keys to which objects are copied that are to be replaced or removed
// at path or below it. s.mu is held.
func (s *Space) sources(path string) map[string]bool {
	keys := make(map[string]bool)
	for key, files := range s.mu.Displaced {
		k := s.mu.Keys[key]
		if k == nil {
			continue
		}
		if op := s.mu.Ops[max(k.Pending, k.Flight)]; op == nil || !covers(path, order.Join(op.Dir, op.Name)) {
			continue
		}
		for id := range files {
			if f := s.mu.Files[id]; f != nil && f.Linked && (f.Object.Key == key || f.LeftBehind().Key == key) {
				keys[f.Key] = true
			}
		}
	}
	return keys
}
