package limiter

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Config bounds the requests in flight. The zero value is the default.
type Config struct {
	// Initial is the limit at the start; 0 means 64, or what Min and Max leave of it.
	Initial int
	// Min is the limit that no congestion lowers further; 0 means 16, or less if Max or Initial is.
	Min int
	// Max is the limit that no success raises further; 0 means 512.
	Max int
}

func (c Config) withDefaults() (Config, error) {
	if c.Initial < 0 || c.Min < 0 || c.Max < 0 {
		return c, fmt.Errorf("limiter %d, %d, %d: limits must not be negative", c.Initial, c.Min, c.Max)
	}
	if c.Max == 0 {
		c.Max = max(512, c.Min, c.Initial)
	}
	if c.Min == 0 {
		c.Min = min(16, c.Max)
		if c.Initial > 0 {
			c.Min = min(c.Min, c.Initial)
		}
	}
	if c.Min > c.Max {
		return c, fmt.Errorf("limiter: min %d exceeds max %d", c.Min, c.Max)
	}
	if c.Initial == 0 {
		c.Initial = max(min(64, c.Max), c.Min)
	}
	if c.Initial < c.Min || c.Initial > c.Max {
		return c, fmt.Errorf("limiter: initial %d is not between min %d and max %d", c.Initial, c.Min, c.Max)
	}
	return c, nil
}

// Stats is the state of a [Limiter] at one moment.
type Stats struct {
	// Limit is the number of requests that may be in flight now.
	Limit int
	// InFlight and Waiting count requests by [Class].
	InFlight, Waiting [Classes]int
	// Rate is the number of requests a second that may start while the server
	// throttles; 0 means no bound.
	Rate float64
	// Throttled counts the answers that asked to slow down.
	Throttled uint64
}

// Limiter decides how many requests may be in flight and whose turn it is.
//
// How many: a limit that grows while answers come promptly and shrinks when
// their latency or the server's own words say that it is too much; a server that
// refuses by rate is also met with a rate (see congestion). Whose turn: demand
// before prefetch before upload, but a class that has been passed over often
// enough is served next, so none starves; and the less urgent classes leave some
// of the limit free, so that a demand read seldom finds it full of long uploads.
//
// A Limiter has no goroutine and needs no Close.
type Limiter struct {
	cfg     Config
	metrics *metrics

	mu struct {
		sync.Mutex
		inFlight   [Classes]int
		waiting    [Classes]ticketQueue
		passedOver [Classes]int
		congestion congestion
		// wake runs dispatch when the rate allows the next request to start.
		wake  *time.Timer
		awake bool // wake is set
	}
}

// patience is how many grants of more urgent classes a waiting class bears
// before it is served.
var patience = [Classes]int{Prefetch: 8, Upload: 16}

// New returns a limiter for any number of clients of one service. reg may
// be nil.
func New(cfg Config, reg prometheus.Registerer) (*Limiter, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	l := &Limiter{cfg: cfg}
	l.mu.congestion = newCongestion(cfg, time.Now())
	if l.metrics, err = newMetrics(reg, l); err != nil {
		return nil, err
	}
	return l, nil
}

// Stats returns the present state.
func (l *Limiter) Stats() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := Stats{
		Limit:     l.mu.congestion.inFlightLimit(),
		InFlight:  l.mu.inFlight,
		Rate:      l.mu.congestion.rate(),
		Throttled: l.mu.congestion.throttledTotal,
	}
	for c := range s.Waiting {
		s.Waiting[c] = l.mu.waiting[c].len
	}
	return s
}

// Why a wait for a permit ended without one.
var (
	// ErrTurn means that the deadline came before the request's turn.
	ErrTurn = errors.New("still waiting for other requests")
	// ErrClosed means that who asked is closed.
	ErrClosed = errors.New("client is closed")
)

// Permit is the right to have one request in flight. It must be released.
type Permit struct {
	limiter *Limiter
	class   Class
}

// Acquire waits for a permit. It fails with ctx's error, with [context.Canceled] when the
// request is withdrawn, with ErrClosed when closing is closed, or with ErrTurn when it
// is not the request's turn by the deadline.
func (l *Limiter) Acquire(ctx context.Context, closing <-chan struct{}, class Class, deadline time.Time) (Permit, error) {
	if err := ctx.Err(); err != nil {
		return Permit{}, err
	}
	withdrawn := withdrawalOf(ctx)
	select {
	case <-withdrawn:
		return Permit{}, context.Canceled
	default:
	}
	class = Effective(ctx, class)
	now := time.Now()
	l.mu.Lock()
	if l.nobodyWaits() && l.mayStart(class) && l.mu.congestion.take(now) {
		l.grant(class)
		l.mu.Unlock()
		return Permit{l, class}, nil
	}
	t := &ticket{class: class, ready: make(chan struct{})}
	l.mu.waiting[class].push(t)
	l.dispatch(now)
	l.mu.Unlock()
	return l.wait(ctx, closing, withdrawn, t, now, deadline)
}

// wait blocks until t is granted.
func (l *Limiter) wait(ctx context.Context, closing, withdrawn <-chan struct{}, t *ticket, since, deadline time.Time) (Permit, error) {
	if p := PromotionOf(ctx); p != nil {
		if p.add(t, l) {
			defer p.remove(t)
		} else {
			l.raise(t)
		}
	}
	timer := time.NewTimer(time.Until(deadline))
	defer timer.Stop()
	var err error
	select {
	case <-t.ready:
		l.metrics.waitSeconds[t.class].Observe(time.Since(since).Seconds())
		return Permit{l, t.class}, nil
	case <-ctx.Done():
		err = ctx.Err()
	case <-withdrawn:
		err = context.Canceled
	case <-closing:
		err = ErrClosed
	case <-timer.C:
		err = ErrTurn
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if t.granted {
		// The grant crossed the end of the wait: give it to the next one.
		l.mu.inFlight[t.class]--
	} else {
		l.mu.waiting[t.class].remove(t)
	}
	l.dispatch(time.Now())
	return Permit{}, err
}

// TryAcquire returns a permit if one can be had without waiting and without
// overtaking anybody.
func (l *Limiter) TryAcquire(class Class) (Permit, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.nobodyWaits() || !l.mayStart(class) || !l.mu.congestion.take(time.Now()) {
		return Permit{}, false
	}
	l.grant(class)
	return Permit{l, class}, true
}

// Release returns the permit and tells what became of the request.
func (p Permit) Release(o Observation) {
	l := p.limiter
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.inFlight[p.class]--
	now := time.Now()
	l.mu.congestion.observe(now, o)
	l.dispatch(now)
}

// raise moves a waiting ticket to the end of the demand queue.
func (l *Limiter) raise(t *ticket) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if t.granted || t.class == Demand || !l.mu.waiting[t.class].remove(t) {
		return
	}
	t.class = Demand
	l.mu.waiting[Demand].push(t)
	l.dispatch(time.Now())
}

func (l *Limiter) nobodyWaits() bool {
	for c := range l.mu.waiting {
		if l.mu.waiting[c].len > 0 {
			return false
		}
	}
	return true
}

// mayStart says whether the limit has room for one more request of class. Demand
// may use all of it, prefetch and upload together seven eighths, upload half while
// anybody reads; each at least one.
func (l *Limiter) mayStart(class Class) bool {
	limit := l.mu.congestion.inFlightLimit()
	demand, prefetch, upload := l.mu.inFlight[Demand], l.mu.inFlight[Prefetch], l.mu.inFlight[Upload]
	if demand+prefetch+upload >= limit {
		return false
	}
	if class >= Prefetch && prefetch+upload >= max(1, limit-max(1, limit/8)) {
		return false
	}
	reads := demand + prefetch + l.mu.waiting[Demand].len + l.mu.waiting[Prefetch].len
	return class != Upload || reads == 0 || upload < max(1, limit/2)
}

// grant counts a request of class as in flight.
func (l *Limiter) grant(class Class) {
	l.mu.inFlight[class]++
	total := 0
	for _, n := range l.mu.inFlight {
		total += n
	}
	l.mu.congestion.started(total)
}

// dispatch grants as much as limit and rate allow.
func (l *Limiter) dispatch(now time.Time) {
	for {
		class, ok := l.next()
		if !ok {
			return
		}
		if !l.mu.congestion.take(now) {
			l.wakeAt(now)
			return
		}
		t := l.mu.waiting[class].pop()
		l.mu.passedOver[class] = 0
		for c := class + 1; int(c) < Classes; c++ {
			if l.mu.waiting[c].len > 0 {
				l.mu.passedOver[c]++
			}
		}
		t.granted = true
		l.grant(class)
		close(t.ready)
	}
}

// next returns the class whose turn it is, if any may start.
func (l *Limiter) next() (Class, bool) {
	for c := Upload; c > Demand; c-- {
		if l.mu.waiting[c].len > 0 && l.mu.passedOver[c] >= patience[c] && l.mayStart(c) {
			return c, true
		}
	}
	for c := Demand; c <= Upload; c++ {
		if l.mu.waiting[c].len > 0 && l.mayStart(c) {
			return c, true
		}
	}
	return 0, false
}

// wakeAt sets the timer for the moment when the rate allows another start.
func (l *Limiter) wakeAt(now time.Time) {
	if l.mu.awake {
		return
	}
	l.mu.awake = true
	wait := l.mu.congestion.untilNext(now)
	if l.mu.wake != nil {
		l.mu.wake.Reset(wait)
		return
	}
	l.mu.wake = time.AfterFunc(wait, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.mu.awake = false
		l.dispatch(time.Now())
	})
}

// ticket is one waiting request. Its fields are guarded by the limiter's lock,
// but for ready, which is closed when it is granted.
type ticket struct {
	class      Class
	granted    bool
	ready      chan struct{}
	prev, next *ticket
	queued     bool
}

// ticketQueue is a first-in first-out queue from which any ticket can be taken.
type ticketQueue struct {
	head, tail *ticket
	len        int
}

func (q *ticketQueue) push(t *ticket) {
	t.prev, t.next, t.queued = q.tail, nil, true
	if q.tail == nil {
		q.head = t
	} else {
		q.tail.next = t
	}
	q.tail = t
	q.len++
}

func (q *ticketQueue) pop() *ticket {
	t := q.head
	q.remove(t)
	return t
}

// remove takes t out. It returns false if t is in no queue.
func (q *ticketQueue) remove(t *ticket) bool {
	if !t.queued {
		return false
	}
	if t.prev == nil {
		q.head = t.next
	} else {
		t.prev.next = t.next
	}
	if t.next == nil {
		q.tail = t.prev
	} else {
		t.next.prev = t.prev
	}
	t.prev, t.next, t.queued = nil, nil, false
	q.len--
	return true
}
