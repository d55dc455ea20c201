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
	// yieldMost is for how long in a row everything waits for them. After that little is
	// sent beside them, fastParts parts at once of all files together, until they pause.
	yieldMost = 15 * time.Second
	fastParts = 4
	// yieldPoll is how often those who wait look again.
	yieldPoll = 20 * time.Millisecond
)

// pacing says what programs that write leave of the machine. It is the watcher's, but
// for the atomics.
type pacing struct {
	// closes counts the files that were committed for the first time since the last look.
	closes atomic.Int64
	// fast says that programs write, or close files, fast; yielding, that they have not
	// done so for long.
	fast, yielding atomic.Bool

	// last is when it was looked at, since when they are fast. speed is in bytes a second,
	// rate in files a second.
	last, since time.Time
	speed, rate float64
}

// begin forgets what was so before a pause.
func (p *pacing) begin(at time.Time) { p.last, p.speed, p.rate = at, 0, 0 }

// look takes note of by how much files grew since the last look, and whether any are
// open for writing. It reports whether it is worth looking again.
func (p *pacing) look(at time.Time, grown int64, writing bool) (again bool) {
	closed := p.closes.Swap(0)
	if !writing && closed == 0 {
		p.since = time.Time{}
		p.fast.Store(false)
		p.yielding.Store(false)
		return false
	}
	seconds := max(at.Sub(p.last), time.Millisecond).Seconds()
	p.speed = 0.7*p.speed + 0.3*float64(grown)/seconds
	p.rate = 0.7*p.rate + 0.3*float64(closed)/seconds
	p.last = at
	fast := p.speed > fastWriting || p.rate > fastClosing
	switch {
	case !fast:
		p.since = time.Time{}
	case p.since.IsZero():
		p.since = at
	}
	p.fast.Store(fast)
	p.yielding.Store(fast && at.Sub(p.since) < yieldMost)
	return true
}

// yields reports whether what is to be sent waits for programs that write. Whoever
// waits for publication does not wait for them.
func (s *Space) yields() bool { return s.pacing.yielding.Load() && !s.hurried() }

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
	if s.pacing.fast.Load() && !s.hurried() {
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
