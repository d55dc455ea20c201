package cache

import (
	"context"
	"errors"
	"fmt"

	"github.com/pailfs/pailfs/cache/internal/content"
	"github.com/pailfs/pailfs/cache/internal/eviction"
)

// fetchRanges is how many extents one Fetch has on their way: in flight, or
// waiting to be written.
const fetchRanges = 8

// ErrUnavailable means that the SSD tier takes nothing at the moment: its disk
// fails, is full or read-only. Stats says why.
var ErrUnavailable = errors.New("cache disk is unavailable")

// fetchJob is one call of Fetch. Guarded by object.mu.
type fetchJob struct {
	credit int64 // room on SSD that was taken for it and not used
	active int   // extents on their way
	next   int   // the segments before this one are on SSD
	err    error // the first
}

// fetch brings what is missing of o onto SSD, or into memory if there is none.
func (o *object) fetch(ctx context.Context) error {
	c := o.cache
	if o.geometry.Size == 0 {
		return nil
	}
	o.touch()
	o.mu.Lock()
	o.mu.disk.fetching++
	o.mu.Unlock()
	defer o.endFetch()
	c.ssd.load(o)

	j := new(fetchJob)
	err := o.takeRoom(ctx, j)
	if err == nil {
		err = o.runFetch(ctx, j)
	}
	o.mu.Lock()
	left := j.credit
	o.mu.Unlock()
	if left > 0 {
		c.ssd.residents.Unreserve(o.id, left)
	}
	if err != nil {
		return fmt.Errorf("fetch %q: %w", o.oss.Key, err)
	}
	return nil
}

func (o *object) endFetch() {
	o.mu.Lock()
	o.mu.disk.fetching--
	idle := o.idleFile()
	o.notify()
	o.mu.Unlock()
	if idle != nil {
		idle.Release()
	}
	o.cache.ssd.dropEmpty(o)
	o.cache.ssd.unpinned()
}

// takeRoom waits until there is room on SSD for all that is missing. Whoever has
// it can finish, so that those who wait for it do not wait in vain.
func (o *object) takeRoom(ctx context.Context, j *fetchJob) error {
	t := o.cache.ssd
	if t == nil {
		if limit := o.cache.memory.keptLimit(); o.geometry.Size > limit {
			return fmt.Errorf("there is no SSD tier, and memory keeps %d bytes: %w", limit, ErrNoSpace)
		}
		return nil
	}
	w := eviction.NewRoomWaiter(o.id)
	defer t.residents.Leave(w)
	for {
		o.mu.Lock()
		need := content.OnDisk(o.geometry.Size) - o.diskBytes()
		o.mu.Unlock()
		answer := t.residents.ReserveInLine(w, need)
		if answer == eviction.Reserved {
			j.credit = need
			return nil
		}
		if _, _, limit := t.residents.Usage(); answer == eviction.Full && need+eviction.Overhead > limit {
			return fmt.Errorf("%d bytes are more than the SSD tier's %d: %w", need, limit, ErrNoSpace)
		}
		select {
		case <-w.Look:
			t.load(o)
		case <-ctx.Done():
			return ctx.Err()
		case <-o.cache.ctx.Done():
			return errClosed
		}
	}
}

// runFetch keeps extents on their way until nothing is missing.
func (o *object) runFetch(ctx context.Context, j *fetchJob) error {
	for {
		o.mu.Lock()
		done := o.fetched(j)
		if !done {
			j.fail(o.hindrance(ctx))
		}
		var flights, stop []*flight
		var ready []*extent
		switch {
		case done || j.err != nil && j.active == 0:
			defer o.mu.Unlock()
			if done {
				return nil
			}
			return j.err
		case j.err != nil:
			stop = o.flightsOf(j)
		default:
			flights, ready = o.fetchMore(j)
		}
		if o.mu.changed == nil {
			o.mu.changed = make(chan struct{})
		}
		changed, failed := o.mu.changed, j.err != nil
		o.mu.Unlock()

		for _, f := range stop {
			f.abandon()
		}
		o.cache.launch(flights)
		for _, e := range ready {
			o.cache.ssd.submit(ctx, e, j)
		}
		if failed {
			<-changed // what is on its way ends soon
			continue
		}
		select {
		case <-changed:
		case <-ctx.Done():
		case <-o.cache.ctx.Done():
		}
	}
}

// hindrance returns why a fetch cannot go on.
func (o *object) hindrance(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if t := o.cache.ssd; t != nil && !t.health.Writable() {
		return ErrUnavailable
	}
	return o.cache.closed()
}

// fetched tells whether nothing is missing. o.mu must be held.
func (o *object) fetched(j *fetchJob) bool {
	if o.cache.ssd == nil {
		return j.next == o.geometry.Segments() && j.active == 0
	}
	return o.wholeOnDisk()
}

// fetchMore starts what is missing, as far as may be on its way at once, and
// returns the flights to launch and the extents to submit, which are in memory
// already. o.mu must be held.
func (o *object) fetchMore(j *fetchJob) (flights []*flight, ready []*extent) {
	for i := j.next; i < o.geometry.Segments() && j.active < fetchRanges; i++ {
		started, waiting, done := o.fetchSegment(j, i)
		flights, ready = append(flights, started...), append(ready, waiting...)
		if done && i == j.next {
			j.next++
		}
	}
	return flights, ready
}

// fetchSegment is fetchMore for one segment. done says that it need not be looked
// at again.
func (o *object) fetchSegment(j *fetchJob, index int) (flights []*flight, ready []*extent, done bool) {
	t := o.cache.ssd
	seg, blocks := o.segment(index), o.geometry.Blocks(index)
	if t != nil && seg.disk.HasAll(0, blocks) {
		return nil, nil, true
	}
	for block := 0; block < blocks; {
		if t != nil && !o.small() && seg.disk.Has(block) {
			block = seg.disk.Run(block, blocks)
			continue
		}
		e, stop := seg.at(block, blocks)
		if e != nil {
			if e.flight == nil && e.holds&heldWriting == 0 && t.accepts(o) {
				o.setHolds(e, e.holds|heldWriting)
				j.active++
				ready = append(ready, e)
			}
			block = e.span.End
			continue
		}
		if t != nil && !o.small() {
			stop = seg.disk.Run(block, stop)
		}
		f := o.newFlight(content.Span{Segment: index, First: block, End: stop}, forFetch)
		f.job = j
		j.active++
		flights = append(flights, f)
		block = stop
	}
	return flights, ready, t == nil
}

// flightsOf returns the flights that were started for j. o.mu must be held.
func (o *object) flightsOf(j *fetchJob) (flights []*flight) {
	for _, seg := range o.mu.segments {
		if seg == nil {
			continue
		}
		for _, e := range seg.extents {
			if e.flight != nil && e.flight.job == j {
				flights = append(flights, e.flight)
			}
		}
	}
	return flights
}

// ended notes that an extent is no longer on its way. object.mu must be held.
func (j *fetchJob) ended(err error) {
	j.active--
	j.fail(err)
}

// fail notes an error. object.mu must be held.
func (j *fetchJob) fail(err error) {
	if j.err == nil {
		j.err = err
	}
}

// notify wakes those who wait for something about o to change. o.mu must be held.
func (o *object) notify() {
	if o.mu.changed != nil {
		close(o.mu.changed)
		o.mu.changed = nil
	}
}
