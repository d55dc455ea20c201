package oss

import (
	"context"
	"fmt"
	"time"

	"github.com/pailfs/pailfs/oss/internal/backoff"
	"github.com/pailfs/pailfs/oss/limiter"
)

// timing holds the constants of patience. Tests make them short; nothing else
// changes them.
type timing struct {
	// floor and ceiling bound the patience for the head of an answer, by kind;
	// unknown is used until enough answers have been seen.
	floor, unknown, ceiling [numLatencyKinds]time.Duration
	// factor times the 99th percentile is the patience between them.
	factor float64
	// stallFloor and stallCeiling bound how long a body may bring nothing.
	stallFloor, stallCeiling time.Duration
	// uploadStall is how long the server may take nothing of an upload.
	uploadStall time.Duration
	// hedgeFloor is the least delay before a read is sent again.
	hedgeFloor time.Duration
	// backoffBase and backoffLimit bound the wait after a failure; the throttled
	// ones after the server said that there are too many requests.
	backoffBase, backoffLimit     time.Duration
	throttledBase, throttledLimit time.Duration
	// complain is how often at most a failing service is logged.
	complain time.Duration
}

func defaultTiming() timing {
	return timing{
		floor:          [numLatencyKinds]time.Duration{kindRead: time.Second, kindMeta: 2 * time.Second, kindWrite: 20 * time.Second},
		unknown:        [numLatencyKinds]time.Duration{kindRead: 5 * time.Second, kindMeta: 10 * time.Second, kindWrite: time.Minute},
		ceiling:        [numLatencyKinds]time.Duration{kindRead: 20 * time.Second, kindMeta: 30 * time.Second, kindWrite: 3 * time.Minute},
		factor:         4,
		stallFloor:     2 * time.Second,
		stallCeiling:   20 * time.Second,
		uploadStall:    20 * time.Second,
		hedgeFloor:     10 * time.Millisecond,
		backoffBase:    50 * time.Millisecond,
		backoffLimit:   5 * time.Second,
		throttledBase:  200 * time.Millisecond,
		throttledLimit: 10 * time.Second,
		complain:       10 * time.Second,
	}
}

// leastPace is the transfer rate below which a call may run into its deadline.
const leastPace = 1 << 20 // bytes a second

const (
	// maxCorrupted is how often content that arrived damaged is sent in all.
	maxCorrupted = 3
	// maxBadAnswers is how many answers that OSS would not give are borne. Something
	// on the way may mangle one; one that always comes is a misunderstanding.
	maxBadAnswers = 5
)

// retrying is the state of one call that may take several requests.
type retrying struct {
	view  *view
	op    operation
	key   string
	began time.Time
	// deadline is when the call gives up.
	deadline time.Time
	failures int
	// timeouts counts the requests that this side gave up; each doubles the patience.
	timeouts   int
	corrupted  int
	badAnswers int
	// resigned says that the request was already repeated with newer credentials.
	resigned bool
	// ambiguous says that an earlier request may have been carried out.
	ambiguous bool
}

// retrying begins a call that moves so many bytes.
func (v *view) retrying(op operation, key string, bytes int64) *retrying {
	now := time.Now()
	allowance := time.Duration(bytes / leastPace * int64(time.Second))
	return &retrying{
		view: v, op: op, key: key, began: now,
		deadline: now.Add(v.client.cfg.Deadlines.of(v.class) + allowance),
	}
}

// patience is how long the next request may wait for the head of its answer.
func (r *retrying) patience() time.Duration {
	t, kind := &r.view.client.timing, r.op.kind()
	p99 := time.Duration(r.view.client.latency[kind].p99.Load())
	patience := t.unknown[kind]
	if p99 > 0 {
		patience = max(time.Duration(t.factor*float64(p99)), t.floor[kind])
	}
	return min(patience<<min(r.timeouts, 10), t.ceiling[kind])
}

// stall is how long the body of the next answer may bring nothing.
func (r *retrying) stall() time.Duration {
	t := &r.view.client.timing
	p99 := time.Duration(r.view.client.latency[kindRead].p99.Load())
	return min(max(time.Duration(2*t.factor*float64(p99)), t.stallFloor)<<min(r.timeouts, 10), t.stallCeiling)
}

// progressed says that the last request brought something: what it cost in
// patience is forgiven.
func (r *retrying) progressed() { r.failures, r.timeouts = 0, 0 }

// again waits and returns nil if the request that failed with f should be
// repeated. Otherwise it returns the error for the caller.
func (r *retrying) again(ctx context.Context, f *failure) error {
	c := r.view.client
	r.ambiguous = r.ambiguous || f.ambiguous
	if f.outcome == outcomeTimeout {
		r.timeouts++
	}
	if !f.transient {
		if !staleKeyCodes[f.code] {
			return f
		}
		if !r.resigned && c.cfg.Credentials.Refreshed(ctx, f.keys) {
			r.resigned = true
			c.metrics.retries[r.op].Inc()
			return nil
		}
		return c.cfg.Credentials.Explain(f)
	}
	r.failures++
	if f.outcome == outcomeBadAnswer {
		if r.badAnswers++; r.badAnswers >= maxBadAnswers {
			return r.giveUp(f)
		}
	}
	wait := backoff.Wait(r.failures, c.timing.backoffBase, c.timing.backoffLimit)
	if f.outcome == outcomeThrottled {
		wait = backoff.Wait(r.failures, c.timing.throttledBase, c.timing.throttledLimit)
	}
	wait = max(wait, f.wait)
	if time.Now().Add(wait).After(r.deadline) {
		return r.giveUp(f)
	}
	c.complain(ctx, r, f)
	if err := c.sleep(ctx, wait); err != nil {
		return r.interrupted(err, f)
	}
	c.metrics.retries[r.op].Inc()
	return nil
}

// giveUp returns the error of a call that has run out of time.
func (r *retrying) giveUp(f *failure) error {
	return fmt.Errorf("%w (gave up after %d failures in %s)", f, r.failures, time.Since(r.began).Round(time.Millisecond))
}

// interrupted returns the error of a call whose context ended, or whose client
// was closed, while it waited to repeat a request that failed with f.
func (r *retrying) interrupted(err error, f *failure) error {
	end := unsent(r.op, r.key, err)
	if f == nil {
		return end
	}
	return fmt.Errorf("%w (after: %v)", end, f) //nolint:errorlint // the earlier failure is told, not offered for errors.Is
}

// unsent is the failure of a request that was not sent.
func unsent(op operation, key string, err error) *failure {
	f := &failure{op: op, key: key, kind: ErrUnavailable}
	f.fromCause(err)
	f.ambiguous = false
	return f
}

// sleep waits, but not past the end of ctx or of the client.
func (c *Client) sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-c.closing:
		return limiter.ErrClosed
	}
}

// complain logs a failure that is being repeated: in detail for debugging, and
// for the operator now and then when it has lasted.
func (c *Client) complain(ctx context.Context, r *retrying, f *failure) {
	c.log.DebugContext(ctx, "repeating a request", "op", r.op, "key", r.key, "failures", r.failures, "err", f)
	if r.failures < 4 {
		return
	}
	if c.mayComplain() {
		c.log.WarnContext(ctx, "object store keeps failing; repeating", "op", r.op, "key", r.key, "failures", r.failures,
			"for", time.Since(r.began).Round(time.Millisecond), "err", f)
	}
}

// mayComplain reports whether it is time to log once more that the service fails.
func (c *Client) mayComplain() bool {
	last, now := c.complained.Load(), time.Now().UnixNano()
	return now-last > int64(c.timing.complain) && c.complained.CompareAndSwap(last, now)
}
