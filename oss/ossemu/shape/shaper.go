package shape

import (
	"context"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// Effort says which latency of a [Shape] a request has.
type Effort uint8

// The efforts, each the field of Shape with that name.
const (
	Head Effort = iota
	Get
	Put
	List
	Copy
	Complete
)

// Shaper holds the shape in force. The zero value has none.
type Shaper struct {
	state atomic.Pointer[state]
}

// state is a shape with what it needs to run. Requests that began under one
// keep it when another replaces it.
type state struct {
	Shape
	requests atomic.Uint64
	down, up link
	admitted rateLimit
}

// Set replaces the shape.
func (s *Shaper) Set(sh Shape) error {
	if err := sh.Validate(); err != nil {
		return err
	}
	if sh == (Shape{}) || sh == (Shape{Seed: sh.Seed}) {
		s.state.Store(&state{Shape: sh})
		return nil
	}
	st := &state{Shape: sh}
	st.down.rate, st.up.rate = sh.Download, sh.Upload
	s.state.Store(st)
	return nil
}

// Shape returns the shape in force.
func (s *Shaper) Shape() Shape {
	if st := s.state.Load(); st != nil {
		return st.Shape
	}
	return Shape{}
}

// Admit says whether one more request fits the request rate.
func (s *Shaper) Admit() bool {
	st := s.state.Load()
	return st == nil || st.QPS == 0 || st.admitted.take(time.Now(), st.QPS)
}

// Begin draws what is random about one request. It returns nil when the shape
// slows nothing; every method of a nil Trip is free.
func (s *Shaper) Begin(e Effort) *Trip {
	st := s.state.Load()
	if st == nil || st.Shape == (Shape{Seed: st.Seed, QPS: st.QPS}) {
		return nil
	}
	rng := rand.New(rand.NewPCG(st.Seed, st.requests.Add(1)))
	t := &Trip{state: st, effort: e, factor: 1}
	t.base = st.latency(e).draw(rng)
	if st.TailProbability > 0 && rng.Float64() < st.TailProbability {
		t.factor = 10 + 20*rng.Float64()
	}
	spread := 1 - st.Spread + 2*st.Spread*rng.Float64()
	t.down = Rate(float64(st.DownloadPerConnection) * spread)
	t.up = Rate(float64(st.UploadPerConnection) * spread)
	return t
}

func (s *state) latency(e Effort) Latency {
	switch e {
	case Get:
		return s.Get
	case Put:
		return s.Put
	case List:
		return s.List
	case Copy:
		return s.Copy
	case Complete:
		return s.Complete
	default:
		return s.Head
	}
}

func (l Latency) draw(rng *rand.Rand) time.Duration {
	if l.Median == 0 {
		return l.Floor
	}
	return max(l.Floor, time.Duration(float64(l.Median)*math.Exp(l.Sigma*rng.NormFloat64())))
}

// Work is what a request turned out to be, where that adds to its latency.
type Work struct {
	// Entries is how many entries a listing page returned.
	Entries int
	// Parts is how many parts were completed.
	Parts int
	// Copied is how many bytes were copied inside the server.
	Copied int64
	// First says that the request is the first of its connection.
	First bool
}

// Trip is one request's share of slowness.
type Trip struct {
	state    *state
	effort   Effort
	base     time.Duration
	factor   float64
	down, up Rate
}

// Latency is how long the request lasts beside the transport of its bytes.
func (t *Trip) Latency(w Work) time.Duration {
	if t == nil {
		return 0
	}
	d := t.base
	switch t.effort {
	case List:
		d += time.Duration(w.Entries) * t.state.ListPerEntry
	case Complete:
		d += time.Duration(w.Parts) * t.state.CompletePerPart
	case Copy:
		d += t.state.CopyRate.duration(w.Copied)
	}
	d = time.Duration(float64(d) * t.factor)
	if w.First {
		d += t.state.RoundTrip
	}
	return d
}

// Download returns the pace of the answer's bytes, nil for no bound. Limit is a
// further bound, of this request alone.
func (t *Trip) Download(limit Rate) *Flow {
	if t == nil {
		return newFlow(limit, nil)
	}
	return newFlow(least(limit, t.down), &t.state.down)
}

// Upload is Download for the bytes of the request.
func (t *Trip) Upload(limit Rate) *Flow {
	if t == nil {
		return newFlow(limit, nil)
	}
	return newFlow(least(limit, t.up), &t.state.up)
}

// least returns the smaller bound, 0 being none.
func least(a, b Rate) Rate {
	if a == 0 || (b != 0 && b < a) {
		return b
	}
	return a
}

// rateLimit is a token bucket kept as the time at which it will be empty.
type rateLimit struct {
	sync.Mutex
	next time.Time
}

// take takes a token if there is one. A tenth of a second's worth may come at
// once.
func (l *rateLimit) take(now time.Time, perSecond float64) bool {
	interval := time.Duration(float64(time.Second) / perSecond)
	burst := max(interval, 100*time.Millisecond)
	l.Lock()
	defer l.Unlock()
	if l.next.Before(now) {
		l.next = now
	}
	if l.next.Sub(now) > burst-interval {
		return false
	}
	l.next = l.next.Add(interval)
	return true
}

// Sleep waits until t or until ctx ends.
func Sleep(ctx context.Context, until time.Time) error {
	d := time.Until(until)
	if d <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
