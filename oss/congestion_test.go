package oss

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
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
func (s *service) serve() observation {
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
			return observation{answered: true, throttled: true}
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
		return observation{answered: true, head: took}
	}
	return observation{answered: true, firstByte: took}
}

// press sends requests through l from so many workers for a time.
func (s *service) press(t *testing.T, l *Limiter, workers int, d time.Duration) {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			for failures := 0; ctx.Err() == nil; {
				p, err := l.acquire(ctx, nil, Demand, time.Now().Add(time.Hour))
				if err != nil {
					return
				}
				o := s.serve()
				p.release(o)
				if o.throttled {
					failures++
					time.Sleep(backoff(failures, 200*time.Millisecond, 10*time.Second))
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
		l, err := NewLimiter(LimiterConfig{Max: 128}, nil)
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
		l, err := NewLimiter(LimiterConfig{}, nil)
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
	c := newCongestion(LimiterConfig{Min: 16, Max: 256, Initial: 64}, now)
	observe := func(o observation) {
		o.answered = true
		for range int(c.limit) {
			c.started(int(c.limit))
		}
		c.observe(now, o)
	}
	for range 200 {
		for range 39 {
			observe(observation{firstByte: 20 * time.Millisecond})
		}
		observe(observation{head: 20 * time.Millisecond})
		now = now.Add(windowLength)
		observe(observation{firstByte: 20 * time.Millisecond})
	}
	for range 20 {
		for range 39 {
			observe(observation{firstByte: 20 * time.Millisecond})
		}
		observe(observation{head: 500 * time.Millisecond})
		now = now.Add(windowLength)
		observe(observation{firstByte: 20 * time.Millisecond})
	}
	if got := c.inFlightLimit(); got != 256 {
		t.Errorf("the limit is %d, want its maximum", got)
	}
}

func TestLimitStaysWhileItDoesNotPress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := NewLimiter(LimiterConfig{}, nil)
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
		l, err := NewLimiter(LimiterConfig{}, nil)
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
		l, err := NewLimiter(LimiterConfig{Max: 128}, nil)
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
		l, err := NewLimiter(LimiterConfig{Max: 128}, nil)
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
			l, err := NewLimiter(LimiterConfig{}, nil)
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
		l, err := NewLimiter(LimiterConfig{}, nil)
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
		l, err := NewLimiter(LimiterConfig{}, nil)
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
					p, err := l.acquire(ctx, nil, Demand, time.Now().Add(time.Hour))
					if err != nil {
						return
					}
					o := s.serve()
					if n.Add(1)%200 == 0 {
						o = observation{answered: true, throttled: true}
					}
					p.release(o)
				}
			})
		}
		all.Wait()
		if got := s.served.Load(); got < 30*6400*6/10 {
			t.Fatalf("served %d in 30 s, want at least 60 %% of %d", got, 30*6400)
		}
	})
}

func TestLatencyEstimateFollowsWhatItSees(t *testing.T) {
	var e latencyEstimate
	if e.p95.Load() != 0 {
		t.Fatal("an estimate without samples")
	}
	within := func(what string, got int64, want time.Duration) {
		t.Helper()
		if d := time.Duration(got); d < want || float64(d) > 1.3*float64(want) {
			t.Errorf("%s is %v, want %v or a little more", what, d, want)
		}
	}
	for i := range 10_000 {
		e.add(time.Duration(i%1000+1) * time.Millisecond / 10) // 0.1 to 100 ms, evenly
	}
	within("p95", e.p95.Load(), 95*time.Millisecond)
	within("p99", e.p99.Load(), 99*time.Millisecond)
	for range 30_000 {
		e.add(2 * time.Millisecond)
	}
	within("p99 after the service became fast", e.p99.Load(), 2*time.Millisecond)
	for _, d := range []time.Duration{-1, 0, 1, time.Hour} {
		e.add(d)
	}
}

func TestLatencyBucketsCoverTheirSamples(t *testing.T) {
	for d := 33 * time.Microsecond; d < 4*time.Minute; d += d/50 + 1 {
		upper := latencyUpper(latencyBucket(d))
		if d >= upper || float64(upper) > 1.26*float64(d) {
			t.Fatalf("%v falls into the class below %v", d, upper)
		}
	}
}

func TestBackoffIsRandomUpToItsCeiling(t *testing.T) {
	for n := 1; n < 100; n++ {
		ceiling := 10 * time.Second
		if n < 8 {
			ceiling = min(ceiling, 100*time.Millisecond<<(n-1))
		}
		var most time.Duration
		for range 200 {
			d := backoff(n, 100*time.Millisecond, 10*time.Second)
			if d < 0 || d > ceiling {
				t.Fatalf("backoff %d is %v, beyond %v", n, d, ceiling)
			}
			most = max(most, d)
		}
		if most < ceiling/2 {
			t.Fatalf("backoff %d never exceeded %v in 200 draws up to %v", n, most, ceiling)
		}
	}
}

// The client tells the limiter how long its HEADs take.
func TestHeadsAreObserved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t, func(w http.ResponseWriter, _ *http.Request, _ int) {
			time.Sleep(10 * time.Millisecond)
			w.WriteHeader(http.StatusNotFound)
		})
		for range 4 * windowAnswers {
			if _, err := b.client.As(Demand).Head(t.Context(), "absent"); !errors.Is(err, ErrNotFound) {
				t.Fatal(err)
			}
		}
		l := b.client.limiter
		l.mu.Lock()
		defer l.mu.Unlock()
		if got := l.mu.congestion.headBaseline; got < 0.009 || got > 0.02 {
			t.Errorf("normal for a HEAD of 10 ms is %v s", got)
		}
	})
}
