package limiter

import (
	"math"
	"slices"
	"time"
)

// Observation is what one request tells about the service.
type Observation struct {
	// Throttled says that the server refused or delayed the request because there
	// were too many.
	Throttled bool
	// Answered says that the server answered at all.
	Answered bool
	// FirstByte is the time from sending a ranged GET to its first byte, Head that of a
	// HEAD to its answer; 0 for other requests, whose time depends on what they carry.
	FirstByte, Head time.Duration
}

// congestion turns observations into a limit of requests in flight and, while
// the server throttles, a limit of requests started per second.
//
// It judges by windows. Throttled answers cut both limits in proportion to their
// share, half of it, so that one refusal in a hundred costs half a percent and a
// wall of refusals halves the load within each window. Without them the in-flight
// limit follows the latency of ranged GETs and of HEADs, each kind by itself: while
// the window's medians stay below twice what is normal (and a little, for tiny
// latencies), the limit grows if it was needed; if one is above that, it shrinks.
// The rate grows by a tenth a second and is
// given up when it has not been binding for a while.
//
// What is normal is learned from windows that look normal, and from those in
// which the limit cannot be the reason for the wait: it did not press, or it is
// at its minimum. A service that has become slower for good is therefore met with
// the minimum for a moment and then believed; one that is slow because of us never
// becomes normal.
//
// It is guarded by the limiter's lock.
type congestion struct {
	minLimit, maxLimit float64
	limit              float64
	// baseline is the normal median latency of GETs in seconds, headBaseline that of
	// HEADs; 0 until known.
	baseline, headBaseline float64
	window                 congestionWindow
	pace                   pace

	throttledTotal uint64
}

// congestionWindow collects the observations of one short period.
type congestionWindow struct {
	began     time.Time
	answered  int
	throttled int
	started   int
	// peak is the largest number in flight.
	peak int
	// firstByte are the latencies of GETs, heads those of HEADs.
	firstByte, heads []float64
}

// pace is a token bucket that is only there while the server throttles.
type pace struct {
	perSecond float64 // 0 means no bound
	tokens    float64
	filled    time.Time
	// bound is when the rate last held a request back, or began.
	bound time.Time
}

const (
	windowLength     = 100 * time.Millisecond
	windowLengthIdle = time.Second
	windowAnswers    = 16
	maxSamples       = 512

	latencyTolerance = 2
	latencyNormal    = 1.5
	latencySlack     = 0.005 // seconds; below this, what is measured is the scheduler
	latencyDrift     = 0.05
	steepestDecrease = 0.85

	// leastRate is no burden on a service that allows an account thousands, and
	// keeps a node alive that is throttled for what others do.
	leastRate    = 10.0
	rateGrowth   = 0.1 // of the rate, each second
	rateGivenUp  = 10 * time.Second
	rateBurst    = 0.02 // seconds' worth of tokens, at least one
	throttleLoss = 0.5
)

func newCongestion(cfg Config, now time.Time) congestion {
	return congestion{
		minLimit: float64(cfg.Min),
		maxLimit: float64(cfg.Max),
		limit:    float64(cfg.Initial),
		window:   congestionWindow{began: now},
	}
}

func (c *congestion) inFlightLimit() int { return int(c.limit) }

func (c *congestion) rate() float64 { return c.pace.perSecond }

// started notes that a request began and how many are in flight with it.
func (c *congestion) started(inFlight int) {
	c.window.started++
	c.window.peak = max(c.window.peak, inFlight)
}

// observe notes the end of a request and closes the window when it is due.
func (c *congestion) observe(now time.Time, o Observation) {
	w := &c.window
	if o.Answered {
		w.answered++
	}
	if o.Throttled {
		w.throttled++
		c.throttledTotal++
	}
	if o.FirstByte > 0 && !o.Throttled && len(w.firstByte) < maxSamples {
		w.firstByte = append(w.firstByte, o.FirstByte.Seconds())
	}
	if o.Head > 0 && !o.Throttled && len(w.heads) < maxSamples {
		w.heads = append(w.heads, o.Head.Seconds())
	}
	length := now.Sub(w.began)
	if length < windowLength || (w.answered < windowAnswers && length < windowLengthIdle) {
		return
	}
	c.close(now, length.Seconds())
}

// close judges the window and begins the next one.
func (c *congestion) close(now time.Time, seconds float64) {
	w := &c.window
	if w.throttled > 0 {
		keep := 1 - throttleLoss*float64(w.throttled)/float64(max(w.answered, w.throttled))
		c.limit = max(c.minLimit, c.limit*keep)
		c.pace.cut(now, float64(w.started)/seconds, keep)
	} else {
		c.followLatency()
		c.pace.grow(now, seconds)
	}
	*w = congestionWindow{began: now, firstByte: w.firstByte[:0], heads: w.heads[:0]}
}

// followLatency moves the limit by the window's median latencies.
func (c *congestion) followLatency() {
	w := &c.window
	if len(w.firstByte)+len(w.heads) == 0 {
		return
	}
	pressed := float64(w.peak) >= 0.8*math.Floor(c.limit)
	worst := 0.0
	for _, kind := range []struct {
		samples  []float64
		baseline *float64
	}{{w.firstByte, &c.baseline}, {w.heads, &c.headBaseline}} {
		// A late one among many of the other kind says nothing.
		verdict := c.compare(kind.samples, kind.baseline, pressed)
		if n := len(kind.samples); n >= windowAnswers/2 || 2*n >= len(w.firstByte)+len(w.heads) {
			worst = max(worst, verdict)
		}
	}
	switch {
	case !pressed:
	case worst > 1:
		c.limit = max(c.minLimit, c.limit*max(steepestDecrease, 1/worst))
	default:
		c.limit = min(c.maxLimit, c.limit+max(1, math.Sqrt(c.limit)/2))
	}
}

// compare returns the median of samples of one kind by what is tolerated of it, 0 if there
// are none, and learns what is normal of it.
func (c *congestion) compare(samples []float64, baseline *float64, pressed bool) float64 {
	if len(samples) == 0 {
		return 0
	}
	slices.Sort(samples)
	median := samples[len(samples)/2]
	switch {
	case *baseline == 0:
		*baseline = median
	case median < latencyNormal**baseline || !pressed || c.limit <= c.minLimit:
		*baseline += (median - *baseline) * latencyDrift
	}
	return median / (latencyTolerance**baseline + latencySlack)
}

// take uses up the right to start one request now, if there is one.
func (c *congestion) take(now time.Time) bool {
	p := &c.pace
	if p.perSecond == 0 {
		return true
	}
	p.fill(now)
	if p.tokens < 1 {
		p.bound = now
		return false
	}
	p.tokens--
	return true
}

// untilNext is how long until take succeeds.
func (c *congestion) untilNext(now time.Time) time.Duration {
	p := &c.pace
	if p.perSecond == 0 {
		return 0
	}
	p.fill(now)
	missing := max(0, 1-p.tokens) / p.perSecond
	return time.Duration(math.Ceil(missing * float64(time.Second)))
}

func (p *pace) fill(now time.Time) {
	p.tokens += now.Sub(p.filled).Seconds() * p.perSecond
	p.tokens = min(p.tokens, max(1, p.perSecond*rateBurst))
	p.filled = now
}

// cut lowers the rate to a part of what was really started.
func (p *pace) cut(now time.Time, measured, keep float64) {
	if p.perSecond == 0 {
		*p = pace{perSecond: max(measured, leastRate), filled: now}
	}
	p.fill(now)
	p.perSecond = max(leastRate, min(p.perSecond, max(measured, leastRate))*keep)
	p.bound = now
}

// grow raises the rate, or gives it up when it has long not been needed.
func (p *pace) grow(now time.Time, seconds float64) {
	if p.perSecond == 0 {
		return
	}
	if now.Sub(p.bound) > rateGivenUp {
		*p = pace{}
		return
	}
	p.fill(now)
	p.perSecond += max(p.perSecond*rateGrowth, 1) * min(seconds, 1)
}
