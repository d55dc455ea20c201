package limiter

import (
	"context"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pailfs/pailfs/oss/internal/backoff"
)

// service is a simulated object store for the limiter, in simulated time.
type service struct {
	// latency is how long a request takes when so many are in flight.
	latency func(inFlight int) time.Duration
	// perSecond is the rate above which requests are refused; 0 means none.
	perSecond float64
	// heads says that requests are HEADs, not GETs.
	heads bool

	mu       sync.Mutex
	inFlight int
	tokens   float64
	filled   time.Time

	served, refused atomic.Int64
}

// serve is one request: it returns what the limiter may learn.
func (s *service) serve() Observation {
	s.mu.Lock()
	if s.perSecond > 0 {
		now := time.Now()
		if !s.filled.IsZero() {
			s.tokens = min(s.tokens+now.Sub(s.filled).Seconds()*s.perSecond, max(1, s.perSecond/20))
		}
		s.filled = now
		if s.tokens < 1 {
			s.mu.Unlock()
			s.refused.Add(1)
			time.Sleep(time.Millisecond)
			return Observation{Answered: true, Throttled: true}
		}
		s.tokens--
	}
	s.inFlight++
	took := s.latency(s.inFlight)
	s.mu.Unlock()
	time.Sleep(took)
	s.mu.Lock()
	s.inFlight--
	s.mu.Unlock()
	s.served.Add(1)
	if s.heads {
		return Observation{Answered: true, Head: took}
	}
	return Observation{Answered: true, FirstByte: took}
}

// press sends requests through l from so many workers for a time.
func (s *service) press(t *testing.T, l *Limiter, workers int, d time.Duration) {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			for failures := 0; ctx.Err() == nil; {
				p, err := l.Acquire(ctx, nil, Demand, time.Now().Add(time.Hour))
				if err != nil {
					return
				}
				o := s.serve()
				p.Release(o)
				if o.Throttled {
					failures++
					time.Sleep(backoff.Wait(failures, 200*time.Millisecond, 10*time.Second))
				} else {
					failures = 0
				}
			}
		})
	}
	all.Wait()
}

func steady(d time.Duration) func(int) time.Duration { return func(int) time.Duration { return d } }

func TestLimitGrowsWhileAnswersStayPrompt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := New(Config{Max: 128}, nil)
		if err != nil {
			t.Fatal(err)
		}
		s := &service{latency: steady(30 * time.Millisecond)}
		s.press(t, l, 150, 10*time.Second)
		if got := l.Stats(); got.Limit != 128 || got.Rate != 0 || got.Throttled != 0 {
			t.Fatalf("after 10 s of prompt answers: %+v, want the limit at its maximum", got)
		}
	})
}

// A walk that asks for attributes alone is as welcome as reading, and no less careful.
func TestHeadsMoveTheLimitAsReadsDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := New(Config{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		reads := &service{latency: steady(100 * time.Millisecond)}
		reads.press(t, l, 10, 2*time.Second)
		heads := &service{latency: steady(10 * time.Millisecond), heads: true}
		heads.press(t, l, 600, 20*time.Second)
		if got := l.Stats().Limit; got != 512 {
			t.Errorf("after 20 s of prompt answers the limit is %d, want its maximum", got)
		}
		// Forty at a time are served at once; beyond that they queue.
		heads.latency = func(n int) time.Duration { return 10 * time.Millisecond * time.Duration(max(n, 40)) / 40 }
		heads.press(t, l, 600, 30*time.Second)
		if got := l.Stats().Limit; got < 16 || got > 160 {
			t.Errorf("limit settled at %d; 40 fill the service", got)
		}
	})
}

// Now and then a HEAD is late. Among reads that are prompt that says nothing.
func TestALateHeadAmongPromptReadsSaysNothing(t *testing.T) {
	now := time.Now()
	c := newCongestion(Config{Min: 16, Max: 256, Initial: 64}, now)
	observe := func(o Observation) {
		o.Answered = true
		for range int(c.limit) {
			c.started(int(c.limit))
		}
		c.observe(now, o)
	}
	for range 200 {
		for range 39 {
			observe(Observation{FirstByte: 20 * time.Millisecond})
		}
		observe(Observation{Head: 20 * time.Millisecond})
		now = now.Add(windowLength)
		observe(Observation{FirstByte: 20 * time.Millisecond})
	}
	for range 20 {
		for range 39 {
			observe(Observation{FirstByte: 20 * time.Millisecond})
		}
		observe(Observation{Head: 500 * time.Millisecond})
		now = now.Add(windowLength)
		observe(Observation{FirstByte: 20 * time.Millisecond})
	}
	if got := c.inFlightLimit(); got != 256 {
		t.Errorf("the limit is %d, want its maximum", got)
	}
}

func TestLimitStaysWhileItDoesNotPress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := New(Config{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		s := &service{latency: steady(30 * time.Millisecond)}
		s.press(t, l, 10, 10*time.Second)
		s.latency = steady(300 * time.Millisecond)
		s.press(t, l, 10, 10*time.Second)
		if got := l.Stats().Limit; got != 64 {
			t.Fatalf("10 requests at a time moved the limit from 64 to %d", got)
		}
	})
}

func TestLimitShrinksWhenLatencyGrowsWithLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := New(Config{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		// Forty at a time are served in 20 ms; beyond that they queue.
		s := &service{latency: func(n int) time.Duration { return 20 * time.Millisecond * time.Duration(max(n, 40)) / 40 }}
		s.press(t, l, 20, 2*time.Second) // learn what is normal
		s.press(t, l, 600, 30*time.Second)
		got := l.Stats().Limit
		if got < 40 || got > 130 {
			t.Fatalf("limit settled at %d; 40 fill the service, and twice the latency is tolerated", got)
		}
	})
}

func TestLimitRecoversWhenTheServiceIsSlowerForGood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := New(Config{Max: 128}, nil)
		if err != nil {
			t.Fatal(err)
		}
		s := &service{latency: steady(5 * time.Millisecond)}
		s.press(t, l, 150, 10*time.Second)
		s.latency = steady(40 * time.Millisecond)
		s.press(t, l, 150, 10*time.Second)
		if got := l.Stats().Limit; got < 64 {
			t.Fatalf("10 s after the latency rose for good the limit is %d", got)
		}
	})
}

func TestNoiseDoesNotMoveTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := New(Config{Max: 128}, nil)
		if err != nil {
			t.Fatal(err)
		}
		// Latencies of a real store: lognormal, median 30 ms, p99 85 ms.
		rng := rand.New(rand.NewPCG(1, 2))
		s := &service{latency: func(int) time.Duration {
			return time.Duration(30 * math.Exp(0.45*rng.NormFloat64()) * float64(time.Millisecond))
		}}
		s.press(t, l, 150, 15*time.Second)
		if got := l.Stats().Limit; got < 100 {
			t.Fatalf("15 s of noise left the limit at %d", got)
		}
	})
}

func TestThrottledServiceIsUsedToItsRate(t *testing.T) {
	for _, rate := range []float64{50, 500, 5000} {
		synctest.Test(t, func(t *testing.T) {
			l, err := New(Config{}, nil)
			if err != nil {
				t.Fatal(err)
			}
			s := &service{latency: steady(5 * time.Millisecond), perSecond: rate}
			s.press(t, l, 200, 10*time.Second) // find the rate
			s.served.Store(0)
			s.refused.Store(0)
			s.press(t, l, 200, 30*time.Second)
			served, refused := float64(s.served.Load()), float64(s.refused.Load())
			if served < 0.7*30*rate {
				t.Errorf("%v/s: served %.0f in 30 s, less than 70 %%", rate, served)
			}
			if refused > 0.2*served {
				t.Errorf("%v/s: %.0f of %.0f were refused, more than a fifth", rate, refused, refused+served)
			}
			if st := l.Stats(); st.Rate == 0 || st.Throttled == 0 {
				t.Errorf("%v/s: %+v, want a rate in force", rate, st)
			}
		})
	}
}

func TestRateIsGivenUpWhenTheThrottlingEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := New(Config{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		s := &service{latency: steady(5 * time.Millisecond), perSecond: 100}
		s.press(t, l, 50, 10*time.Second)
		if l.Stats().Rate == 0 {
			t.Fatal("a throttled service did not get a rate")
		}
		s.perSecond = 0
		s.press(t, l, 50, 90*time.Second)
		s.served.Store(0)
		s.press(t, l, 50, 10*time.Second)
		if got := s.served.Load(); got < 80_000 {
			t.Fatalf("served %d in 10 s, want nearly what 50 workers at 5 ms do: 100,000", got)
		}
	})
}

func TestFewRefusalsCostLittle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := New(Config{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		// One answer in two hundred is a refusal that has nothing to do with the load.
		var n atomic.Int64
		s := &service{latency: steady(10 * time.Millisecond)}
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		var all sync.WaitGroup
		for range 64 {
			all.Go(func() {
				for ctx.Err() == nil {
					p, err := l.Acquire(ctx, nil, Demand, time.Now().Add(time.Hour))
					if err != nil {
						return
					}
					o := s.serve()
					if n.Add(1)%200 == 0 {
						o = Observation{Answered: true, Throttled: true}
					}
					p.Release(o)
				}
			})
		}
		all.Wait()
		if got := s.served.Load(); got < 30*6400*6/10 {
			t.Fatalf("served %d in 30 s, want at least 60 %% of %d", got, 30*6400)
		}
	})
}
