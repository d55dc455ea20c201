package writeback

import (
	"context"
	"io"
	"sync/atomic"
	"time"
)

const (
	// fastWriting, in bytes a second, and fastClosing, in files a second, are from where
	// on programs need the machine themselves.
	fastWriting = 200 << 20
	fastClosing = 300
	// yieldMost is for how long everything waits for them. After that little is sent
	// beside them, fastParts parts at once of all files together. Only rest gives the
	// allowance back, a second for a second in which nothing is fast: however programs
	// pause, uploads have half of the time.
	yieldMost = 15 * time.Second
	fastParts = 4
	// yieldPoll is how often those who wait look again.
	yieldPoll = 20 * time.Millisecond
)

// pacing says what programs that write leave of the machine. It is the watcher's, but
// for the atomics.
type pacing struct {
	// off says that nothing is fast.
	off bool
	// closes counts the files that were committed for the first time since the last look.
	closes atomic.Int64
	// fast says that programs write, or close files, fast; yielding, that some of the
	// allowance is left for that.
	fast, yielding atomic.Bool
	// short counts those who wait for room, which only uploads can make; crowded says
	// that much of it is taken.
	short   atomic.Int64
	crowded atomic.Bool

	// last is when it was looked at. spent is how much of the allowance is gone. speed is
	// in bytes a second, rate in files a second.
	last        time.Time
	spent       time.Duration
	speed, rate float64
}

// begin forgets how fast programs were before a pause, which was a rest.
func (p *pacing) begin(at time.Time) {
	p.spend(at)
	p.speed, p.rate = 0, 0
}

// spend settles what the time since the last look has taken of the allowance, or given
// back.
func (p *pacing) spend(at time.Time) {
	passed := at.Sub(p.last)
	p.last = at
	switch {
	case p.yielding.Load():
		p.spent += passed
	case !p.fast.Load():
		p.spent = max(p.spent-passed, 0)
	}
}

// look takes note of by how much files grew since the last look, and whether any are
// open for writing. It reports whether it is worth looking again.
func (p *pacing) look(at time.Time, grown int64, writing bool) (again bool) {
	closed := p.closes.Swap(0)
	seconds := max(at.Sub(p.last), time.Millisecond).Seconds()
	p.spend(at)
	if !writing && closed == 0 {
		p.fast.Store(false)
		p.yielding.Store(false)
		return false
	}
	p.speed = 0.7*p.speed + 0.3*float64(grown)/seconds
	p.rate = 0.7*p.rate + 0.3*float64(closed)/seconds
	fast := !p.off && (p.speed > fastWriting || p.rate > fastClosing)
	p.fast.Store(fast)
	p.yielding.Store(fast && p.spent < yieldMost)
	return true
}

// pressing reports whether uploads wait for no program: somebody waits for publication,
// or for the room that it makes, or soon will.
func (s *Space) pressing() bool {
	return s.pacing.short.Load() > 0 || s.pacing.crowded.Load() || s.hurried()
}

// yields reports whether what is to be sent waits for programs that write.
func (s *Space) yields() bool { return s.pacing.yielding.Load() && !s.pressing() }

// yield returns when that is over.
func (s *Space) yield(ctx context.Context) error {
	for s.yields() {
		sleep(ctx, yieldPoll)
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// partSlot waits until one more part may be sent of a file that is complete.
func (s *Space) partSlot(ctx context.Context) (release func(), err error) {
	if err := s.yield(ctx); err != nil {
		return nil, err
	}
	share := int64(1)
	if s.pacing.fast.Load() && !s.pressing() {
		share = maxPartsInFlight / fastParts
	}
	return s.parts.acquire(ctx, share)
}

// pacedPart is a part on its way, which becomes a trickle while programs write: a
// request that stops is given up by the server.
type pacedPart struct {
	*io.SectionReader
	space *Space
}

// Read implements [io.Reader].
func (p pacedPart) Read(b []byte) (int, error) {
	if p.space.yields() {
		time.Sleep(yieldPoll)
	}
	return p.SectionReader.Read(b)
}
