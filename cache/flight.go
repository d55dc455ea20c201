package cache

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/pailfs/pailfs/cache/internal/content"
	"github.com/pailfs/pailfs/oss"
)

// errClosed is what reads get while the cache is being closed.
var errClosed = errors.New("cache is closed")

// purpose says what a flight was started for.
type purpose uint8

const (
	// forDemand: a reader waits for it.
	forDemand purpose = iota
	// forAhead: a reader is expected soon.
	forAhead
	// forFetch: somebody wants it on SSD.
	forFetch
	// forAround: others were read beside it.
	forAround

	purposes
)

// flight brings the bytes of one extent with one request. Whoever wants bytes
// that are on the way waits for them here, and only until they have arrived.
//
// The end of a flight is announced only after the checksums of all its blocks
// have been noted and, if they were the last of the object, the whole has been
// compared with what the object store says. So nobody can read an object from
// beginning to end without that comparison having been made, if it can be made.
type flight struct {
	extent  *extent
	purpose purpose
	// stream is the reader's that a flight forAhead serves.
	stream *stream
	// near says that a request counts as demand although nobody waits yet.
	near bool
	// length is the number of bytes asked for.
	length int64
	// withhold says that nothing may be returned before everything was checked.
	withhold bool
	// job is what Fetch wants to know of.
	job *fetchJob

	// sums are the checksums of the blocks that have arrived, and announced is how
	// many bytes have. Only the goroutine that fetches uses them until it is done.
	sums      []content.Sums
	announced int64

	mu struct {
		sync.Mutex
		arrived int64 // how many bytes may be returned
		done    bool
		err     error
		waiting []flightWaiter
		readers int

		// urgent says that somebody waits who must not.
		abandoned, urgent bool
		// cancel ends the flight, promote makes its request one of demand, and hurry
		// ends its patience for memory. They are set while they are of use.
		cancel, promote, hurry func()
	}
}

// flightWaiter waits until need bytes may be returned.
type flightWaiter struct {
	need int64
	come chan struct{}
}

// newFlight registers the extent s, of which no block may be in memory or on the
// way, and a flight that will bring it. o.mu must be held. The caller must launch
// the flight after unlocking.
func (o *object) newFlight(s content.Span, why purpose) *flight {
	e := &extent{object: o, span: s}
	e.refs.Store(2) // the segment's and the flight's
	o.acquire()
	f := &flight{extent: e, purpose: why, length: o.geometry.Length(s), withhold: o.small()}
	e.flight = f
	holds := heldFetching
	if why == forAhead || why == forDemand && o.small() {
		holds |= heldAhead
	}
	o.setHolds(e, holds)
	o.segment(s.Segment).insert(e)
	return f
}

// reached tells whether need bytes may be returned, or never will be.
func (f *flight) reached(need int64) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mu.done || f.mu.arrived >= need
}

// wait returns when need bytes may be returned.
func (f *flight) wait(ctx context.Context, need int64) error {
	f.mu.Lock()
	if f.mu.arrived >= need || f.mu.done {
		defer f.mu.Unlock()
		return f.outcomeLocked(need)
	}
	w := flightWaiter{need: need, come: make(chan struct{})}
	f.mu.waiting = append(f.mu.waiting, w)
	f.mu.readers++
	f.mu.urgent = true
	promote, hurry := f.mu.promote, f.mu.hurry
	f.mu.Unlock()
	if promote != nil {
		promote()
	}
	if hurry != nil {
		hurry()
	}

	select {
	case <-w.come:
		f.mu.Lock()
		defer f.mu.Unlock()
		f.mu.readers--
		return f.outcomeLocked(need)
	case <-ctx.Done():
		f.mu.Lock()
		defer f.mu.Unlock()
		f.mu.readers--
		return ctx.Err()
	}
}

// outcomeLocked returns what somebody who wanted need bytes is told.
func (f *flight) outcomeLocked(need int64) error {
	if f.mu.arrived >= need {
		return nil
	}
	return f.mu.err
}

// abandon stops the flight unless somebody waits for it.
func (f *flight) abandon() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mu.readers > 0 {
		return
	}
	f.mu.abandoned = true
	if f.mu.cancel != nil {
		f.mu.cancel()
	}
}

// publish lets the first n bytes be returned.
func (f *flight) publish(n int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.arrived = n
	still := f.mu.waiting[:0]
	for _, w := range f.mu.waiting {
		if w.need <= n {
			close(w.come)
		} else {
			still = append(still, w)
		}
	}
	f.mu.waiting = still
}

// end says that no more bytes will come.
func (f *flight) end(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.done, f.mu.err = true, err
	for _, w := range f.mu.waiting {
		close(w.come)
	}
	f.mu.waiting = nil
}

// run fetches and settles the extent.
func (f *flight) run(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	promote := func() {}
	if f.purpose != forDemand {
		ctx, promote = oss.WithPromotion(ctx)
	}
	f.mu.Lock()
	f.mu.cancel, f.mu.promote = cancel, promote
	if f.mu.abandoned {
		cancel()
	}
	urgent := f.mu.urgent
	f.mu.Unlock()
	if urgent {
		promote()
	}
	said, err := f.fetch(ctx)
	f.settle(ctx, said, err)
}

// fetch asks for the bytes. It holds nothing while it waits for memory.
func (f *flight) fetch(ctx context.Context) (oss.RangeResult, error) {
	e := f.extent
	o, c := e.object, e.object.cache
	c.ssd.load(o) // so that what comes can be written
	if err := f.allocate(ctx); err != nil {
		return oss.RangeResult{}, fmt.Errorf("find memory for %q: %w", o.oss.Key, err)
	}
	reader := c.demand
	if f.purpose == forFetch || f.purpose == forAround || f.purpose == forAhead && !f.near {
		reader = c.prefetch
	}
	c.metrics.flights.Add(1)
	defer c.metrics.flights.Add(-1)
	said, err := reader.ReadRange(ctx, oss.RangeRequest{
		Object:  o.oss,
		Offset:  o.geometry.Offset(e.span),
		Buffer:  e.buf.bytes[:f.length:f.length],
		Arrived: f.arrive,
	})
	if err == nil && f.announced < f.length {
		f.arrive(int(f.length))
	}
	c.metrics.fetchedBytes[f.purpose].Add(f.announced)
	return said, err
}

// allocate finds memory for the extent, if it does not have it yet.
func (f *flight) allocate(ctx context.Context) error {
	e := f.extent
	m := e.object.cache.memory
	if e.cost == 0 {
		cost := extentCost(f.length)
		if err := f.acquire(ctx, m.budget, cost); err != nil {
			return err
		}
		e.cost = cost
	}
	buf, err := m.pool.get(f.length)
	if err != nil {
		return err
	}
	e.buf = buf
	return nil
}

// acquire takes cost from the budget: patiently if nobody waits for the flight,
// but no longer than that.
func (f *flight) acquire(ctx context.Context, b *budget, cost int64) error {
	if f.purpose == forDemand {
		return b.acquire(ctx, cost, urgent)
	}
	calm, hurry := context.WithCancel(ctx)
	defer hurry()
	f.mu.Lock()
	f.mu.hurry = hurry
	if f.mu.urgent {
		hurry()
	}
	f.mu.Unlock()
	if err := b.acquire(calm, cost, patient); err == nil || calm.Err() == nil || ctx.Err() != nil {
		return err
	}
	return b.acquire(ctx, cost, urgent)
}

// arrive is told how many bytes have come. It is called by the goroutine that
// reads the network, right after the bytes went through its processor's cache:
// the best moment to compute their checksums.
func (f *flight) arrive(n int) {
	arrived := int64(n)
	if f.purpose == forAround && f.announced == 0 {
		o := f.extent.object
		o.mu.around.link.begin(o.cache.now())
	}
	f.announced = arrived
	if !f.withhold && arrived < f.length {
		f.publish(arrived)
	}
	complete := arrived &^ (content.BlockSize - 1)
	if arrived == f.length {
		complete = arrived
	}
	if from := int64(len(f.sums)) * content.BlockSize; from < complete {
		f.sums = append(f.sums, content.SumBlocks(f.extent.buf.bytes[from:complete])...)
	}
}

// settle notes what has arrived, tells those who wait, and decides what becomes
// of the extent.
func (f *flight) settle(ctx context.Context, said oss.RangeResult, err error) {
	e := f.extent
	o, c := e.object, e.object.cache

	o.mu.Lock()
	e.flight = nil
	if err != nil {
		f.salvage()
	}
	e.span.End = e.span.First + len(f.sums)
	var waste leftovers
	corrupt := o.sum(e.span, f.sums, said)
	if corrupt != nil {
		err = corrupt
		waste = o.forget()
		e.span.End = e.span.First
	}
	holds := f.holds()
	o.setHolds(e, holds)
	if holds == 0 {
		o.segment(e.span.Segment).remove(e)
	}
	var next []*flight
	if f.stream != nil {
		f.stream.ranges--
		if err == nil {
			next = o.mu.streams.extend(f.stream)
		}
	}
	if f.purpose == forAround {
		next = f.arrivedAround(err)
	}
	if f.job != nil {
		f.job.fail(err)
		if holds&heldWriting == 0 {
			f.job.ended(nil)
		}
	}
	o.notify()
	o.mu.Unlock()

	if corrupt != nil {
		c.discard(o, waste, corrupt) // before anybody is told, so that nothing is kept then
	}
	if err == nil {
		f.publish(f.length)
	}
	f.end(err)
	c.launch(next)
	if holds&heldKept != 0 {
		c.memory.keep(e)
	}
	if holds&heldWriting != 0 {
		c.ssd.writer.submit(ctx, e, f.job)
	}
	if holds == 0 {
		e.release()
	}
	e.release()
}

// salvage keeps the checksums of those blocks alone that are good although the
// request failed: whole ones that were announced.
func (f *flight) salvage() {
	switch {
	case f.withhold:
		f.sums = nil
	case f.announced == f.length && len(f.sums) > 0:
		f.sums = f.sums[:len(f.sums)-1]
	}
}

// holds says why the extent, whose bytes are there, stays in memory. object.mu
// must be held.
func (f *flight) holds() hold {
	e := f.extent
	o := e.object
	if e.span.Len() == 0 {
		return 0
	}
	var holds hold
	if o.cache.ssd.accepts(o) {
		holds = heldWriting
	}
	switch {
	case (f.purpose == forFetch || f.purpose == forAround) && holds != 0:
	case e.holds&heldAhead != 0 && e.consumed < o.geometry.Length(e.span) && o.mu.handles > 0:
		holds |= heldAhead
	case e.holds&heldAhead != 0 && holds != 0 && !o.small():
		// The stream it was fetched for has gone by; see object.took.
	case o.never && o.mu.handles == 0:
		// It came too late for whoever had it open.
	default:
		holds |= heldKept
	}
	return holds
}
