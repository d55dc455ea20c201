package oss

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/pailfs/pailfs/oss/limiter"
)

// attempt is one request on the wire: a context that ends it, and one timer that
// does so when it is late. The timer runs first for the head of the answer, then
// for its body, then no more.
type attempt struct {
	client *Client
	parent context.Context //nolint:containedctx // asked for its error when the attempt's own context has ended
	ctx    context.Context //nolint:containedctx // an attempt is a request's context with a clock
	cancel context.CancelCauseFunc
	timer  *time.Timer
	inBody atomic.Bool
	began  time.Time
	// asked is how long after began the request's own body had been taken, in
	// nanoseconds; the answer is owed from then on.
	asked atomic.Int64
	// stall is how long the body may bring (nearly) nothing.
	stall time.Duration
	// deadline is the end of the call: no clock runs past it, so that a server that
	// drips cannot hold it for longer.
	deadline time.Time
	fresh    int
}

// stallStep is how many bytes make progress: a body that brings less within the
// stall time counts as stalled.
const stallStep = 16 << 10

// begin starts the clock of one request of the call r. It must be ended.
func (c *Client) begin(ctx context.Context, r *retrying) (*attempt, error) {
	a := &attempt{client: c, parent: ctx, began: time.Now(), stall: r.stall(), deadline: r.deadline}
	a.ctx, a.cancel = context.WithCancelCause(ctx)
	if !c.inflight.add(a) {
		a.cancel(limiter.ErrClosed)
		return nil, limiter.ErrClosed
	}
	a.timer = time.AfterFunc(a.within(r.patience()), a.expire)
	return a, nil
}

// within returns d, or what is left until the deadline.
func (a *attempt) within(d time.Duration) time.Duration {
	return max(min(d, time.Until(a.deadline)), 0)
}

func (a *attempt) expire() {
	if a.inBody.Load() {
		a.cancel(errStalled)
	} else {
		a.cancel(errFirstByte)
	}
}

// gave says that the server took more of the request's body, of which so much is
// left. While it takes bytes it owes no answer.
func (a *attempt) gave(left int64, stall, patience time.Duration) {
	if left > 0 {
		a.timer.Reset(a.within(stall))
		return
	}
	a.asked.Store(int64(time.Since(a.began)))
	a.timer.Reset(a.within(patience))
}

// head says that the answer's head has come, and returns how long it took.
func (a *attempt) head() time.Duration {
	a.inBody.Store(true)
	a.timer.Reset(a.within(a.stall))
	return time.Since(a.began) - time.Duration(a.asked.Load())
}

// took says that n more bytes of the answer's body have come.
func (a *attempt) took(n int) {
	if a.fresh += n; a.fresh >= stallStep {
		a.fresh = 0
		a.timer.Reset(a.within(a.stall))
	}
}

// end stops the clock and frees the context.
func (a *attempt) end() {
	a.timer.Stop()
	a.cancel(nil)
	a.client.inflight.remove(a)
}

// cause returns why the context was ended, nil if it was not.
func (a *attempt) cause() error {
	if a.ctx.Err() == nil {
		return nil
	}
	if err := a.parent.Err(); err != nil {
		// The plain error, whatever cause the caller's context carries: callers test
		// for context.Canceled and context.DeadlineExceeded.
		return err
	}
	return context.Cause(a.ctx)
}
