package shape

import (
	"context"
	"sync"
	"time"
)

const (
	minSlice = 64 << 10
	maxSlice = 256 << 10
	// sliceTime is how long a slice should take: well above what a timer overshoots.
	sliceTime = 2 * time.Millisecond
	// shortest is the least wait worth a timer; what is not waited for is owed by
	// the next slice.
	shortest = 200 * time.Microsecond
	// maxLate is how much lateness may be made up for. A reader that is slower than
	// the link must not earn a burst.
	maxLate = 20 * time.Millisecond
)

// link is a bandwidth that flows share.
type link struct {
	rate Rate
	mu   struct {
		sync.Mutex
		// free is when the link will have carried everything that it was given.
		free time.Time
	}
}

// reserve gives n bytes to the link and returns when it will have carried them.
// The caller asks as of an earlier instant if it is late.
func (l *link) reserve(n int64, asOf time.Time) time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.free.Before(asOf) {
		l.mu.free = asOf
	}
	l.mu.free = l.mu.free.Add(l.rate.duration(n))
	return l.mu.free
}

// Flow is the pace of one body. It belongs to one goroutine. A nil Flow has no
// bound.
type Flow struct {
	rate Rate
	link *link
	// own is when this flow's own rate allows the bytes so far, shared when the
	// link does.
	own, shared time.Time
	begun       bool
	slice       int64
}

func newFlow(rate Rate, l *link) *Flow {
	if l != nil && l.rate == 0 {
		l = nil
	}
	if rate == 0 && l == nil {
		return nil
	}
	f := &Flow{rate: rate, link: l, slice: maxSlice}
	if rate > 0 {
		f.slice = min(maxSlice, max(minSlice, int64(float64(rate)*sliceTime.Seconds())))
	}
	return f
}

// Slice is how many bytes to ask for at once.
func (f *Flow) Slice() int64 { return f.slice }

// Wait returns when n more bytes may have arrived, or when ctx ends.
func (f *Flow) Wait(ctx context.Context, n int64) error {
	now := time.Now()
	if !f.begun {
		f.begun, f.own, f.shared = true, now, now
	}
	if f.rate > 0 {
		f.own = later(f.own, now.Add(-maxLate)).Add(f.rate.duration(n))
		if err := sleepIfWorth(ctx, f.own, now); err != nil {
			return err
		}
	}
	if f.link == nil {
		return nil
	}
	// The link is asked only now: a flow that is slow by itself must not hold a
	// place in the queue.
	now = time.Now()
	asOf := later(f.shared, now.Add(-maxLate))
	if f.rate > 0 {
		asOf = later(asOf, f.own)
	}
	if asOf.After(now) {
		asOf = now
	}
	f.shared = f.link.reserve(n, asOf)
	return sleepIfWorth(ctx, f.shared, now)
}

func sleepIfWorth(ctx context.Context, until, now time.Time) error {
	if until.Sub(now) < shortest {
		return ctx.Err()
	}
	return Sleep(ctx, until)
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
