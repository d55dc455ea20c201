package mounting

import (
	"context"

	"golang.org/x/time/rate"

	"github.com/pailfs/pailfs/oss"
)

// throttled is a reader of ranges that keeps to a number of bytes a second.
type throttled struct {
	oss.RangeReader
	limit *rate.Limiter
}

// throttle returns readers that share bytesPerSecond; 0 is no limit.
func throttle(bytesPerSecond int64, readers ...oss.RangeReader) []oss.RangeReader {
	if bytesPerSecond == 0 {
		return readers
	}
	limit := rate.NewLimiter(rate.Limit(bytesPerSecond), int(max(bytesPerSecond/4, 64<<10)))
	for i, r := range readers {
		readers[i] = throttled{r, limit}
	}
	return readers
}

// ReadRange implements [oss.RangeReader].
func (t throttled) ReadRange(ctx context.Context, r oss.RangeRequest) (oss.RangeResult, error) {
	for left := len(r.Buffer); left > 0; {
		n := min(left, t.limit.Burst())
		if err := t.limit.WaitN(ctx, n); err != nil {
			return oss.RangeResult{}, err
		}
		left -= n
	}
	return t.RangeReader.ReadRange(ctx, r)
}
