package writeback

import (
	"context"

	"golang.org/x/sync/semaphore"
)

// weights bounds a sum.
type weights struct {
	*semaphore.Weighted
	limit int64
}

func newWeights(limit int64) weights { return weights{semaphore.NewWeighted(limit), limit} }

// acquire waits for n, or for everything if n is more than that, and returns what
// gives it back.
func (w weights) acquire(ctx context.Context, n int64) (release func(), err error) {
	n = min(n, w.limit)
	if err := w.Acquire(ctx, n); err != nil {
		return nil, err
	}
	return func() { w.Release(n) }, nil
}
