package prefetch

import "testing"

// Where the object store is left to others, nothing is begun.
func TestNothingIsPrefetchedAtWidthZero(t *testing.T) {
	width, ran := 0, make(chan struct{}, 1)
	given := false
	s := newScheduler(func() int { return width }, func() int64 { return 1 << 30 }, func() (job, bool) {
		if given {
			return job{}, false
		}
		given = true
		return job{run: func() { ran <- struct{}{} }}, true
	})
	s.fill()
	if given {
		t.Error("a job was taken")
	}
	width = 1
	s.fill()
	s.workers.Wait()
	if len(ran) != 1 {
		t.Error("the job was not run afterwards")
	}
}
