package scheduler

import (
	"context"
	"testing"
)

// Where the object store is left to others, nothing is begun.
func TestNothingIsPrefetchedAtWidthZero(t *testing.T) {
	width, ran := 0, make(chan struct{}, 1)
	given := false
	s := New(func() int { return width }, func() int64 { return 1 << 30 }, func() (Job, bool) {
		if given {
			return Job{}, false
		}
		given = true
		return Job{Run: func(context.Context) { ran <- struct{}{} }}, true
	})
	s.fill(t.Context())
	if given {
		t.Error("a job was taken")
	}
	width = 1
	s.fill(t.Context())
	s.workers.Wait()
	if len(ran) != 1 {
		t.Error("the job was not run afterwards")
	}
}
