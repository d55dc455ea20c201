package oss

import (
	"sync"
	"time"
)

// hedgeBudget lets a small share of requests be sent twice.
type hedgeBudget struct {
	share float64
	mu    struct {
		sync.Mutex
		tokens float64
	}
}

// hedgeBurst is how many hedges may follow each other when the share allows them.
const hedgeBurst = 8

// earn counts one request that could be hedged.
func (b *hedgeBudget) earn() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.tokens = min(b.mu.tokens+b.share, hedgeBurst)
}

// spend takes the right to send one request again.
func (b *hedgeBudget) spend() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.mu.tokens < 1 {
		return false
	}
	b.mu.tokens--
	return true
}

// refund gives back what was spent on a request that was not sent.
func (b *hedgeBudget) refund() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.tokens++
}

// hedgeDelay is how late the first byte of a read must be before it is asked for
// again; 0 means never.
func (c *Client) hedgeDelay() time.Duration {
	p95 := time.Duration(c.latency[kindRead].p95.Load())
	if p95 == 0 || c.hedging.share <= 0 {
		return 0
	}
	return max(p95, c.timing.hedgeFloor)
}

// hedge is a ranged GET that may be sent twice. The first request runs in the
// caller's goroutine; once the hedge is started, a timer sends the second. Whichever
// answers first is read; the other is cancelled before anything of its body is read, so
// the caller's buffer has one writer, the caller.
type hedge struct {
	reader *rangeReader
	first  *getAttempt
	// due is when the first answer is late.
	due time.Time
	mu  struct {
		sync.Mutex
		// timer sends the second request; nil before start.
		timer *time.Timer
		// decided is set when the winner is known: no second request may start, and
		// an answer that comes later is thrown away.
		decided bool
		// second is set while the second request runs or has won.
		second *getAttempt
		// failure is how the second request failed.
		failure *failure
	}
	// done is closed when the second request has answered or failed.
	done chan struct{}
}

// Promoted starts the hedge of a request that nobody waited for before.
func (h *hedge) Promoted() {
	h.reader.view.client.hedging.earn()
	h.start()
}

// start allows the second request, because somebody waits for the answer. It may be
// called from any goroutine, once.
func (h *hedge) start() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.mu.decided {
		h.mu.timer = time.AfterFunc(time.Until(h.due), h.sendSecond)
	}
}

// run sends the first request and returns the attempt whose answer is to be
// read. The caller must finish it.
func (h *hedge) run() (*getAttempt, *failure) {
	f := h.first.open()
	h.mu.Lock()
	if h.mu.timer != nil {
		h.mu.timer.Stop()
	}
	second := h.mu.second
	switch {
	case f == nil && !h.mu.decided:
		h.mu.decided = true
		h.mu.Unlock()
		if second != nil {
			second.cancel(errHedgeLost)
		}
		return h.first, nil
	case h.mu.decided:
		// The second answered while the first was still at it.
		h.mu.Unlock()
		h.first.finish(f)
		return second, nil
	case second == nil || !f.transient:
		// Nobody else is asked, or what the server said will not change.
		h.mu.decided = true
		h.mu.Unlock()
		if second != nil {
			second.cancel(errHedgeLost)
		}
		return h.first, f
	}
	h.mu.Unlock()
	// The first failed while the second is on its way.
	<-h.done
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.mu.failure != nil {
		h.mu.decided = true
		if !h.mu.failure.transient {
			f = h.mu.failure
		}
		return h.first, f
	}
	h.first.finish(f)
	return second, nil
}

// sendSecond sends the second request. It is the timer's function.
func (h *hedge) sendSecond() {
	c := h.reader.view.client
	h.mu.Lock()
	if h.mu.decided {
		h.mu.Unlock()
		return
	}
	p, ok := h.reader.secondPermit()
	if !ok {
		h.mu.Unlock()
		c.metrics.hedgesRefused.Inc()
		return
	}
	second, f := h.reader.attempt(p)
	if f != nil {
		h.mu.Unlock()
		return
	}
	if !c.inflight.goBackground() {
		h.mu.Unlock()
		second.finish(nil)
		return
	}
	defer c.inflight.background.Done()
	h.mu.second = second
	h.mu.Unlock()

	c.metrics.hedges.Inc()
	f = second.open()

	h.mu.Lock()
	switch {
	case f != nil:
		h.mu.failure = f
	case h.mu.decided:
		f = unsent(opGet, h.reader.request.Object.Key, errHedgeLost)
	default:
		h.mu.decided = true
		c.metrics.hedgesWon.Inc()
		h.first.cancel(errHedgeLost)
	}
	h.mu.Unlock()
	if f != nil {
		second.finish(f)
	}
	close(h.done)
}
