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

// fetchJob is one call of Fetch, for an object. The rest is guarded by object.mu.
type fetchJob struct {
	object *object
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

	j := &fetchJob{object: o}
	err := j.takeRoom(ctx)
	if err == nil {
		err = j.run(ctx)
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
	idle := o.mu.disk.idleFile()
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
func (j *fetchJob) takeRoom(ctx context.Context) error {
	o := j.object
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
		need := content.OnDisk(o.geometry.Size) - o.mu.disk.bytes()
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

// run keeps extents on their way until nothing is missing.
func (j *fetchJob) run(ctx context.Context) error {
	o := j.object
	for {
		o.mu.Lock()
		done := j.done()
		if !done {
			j.fail(j.hindrance(ctx))
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
			stop = j.flights()
		default:
			flights, ready = j.more()
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
			o.cache.ssd.writer.submit(ctx, e, j)
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
func (j *fetchJob) hindrance(ctx context.Context) error {
	c := j.object.cache
	if err := ctx.Err(); err != nil {
		return err
	}
	if t := c.ssd; t != nil && !t.health.Writable() {
		return ErrUnavailable
	}
	return c.closed()
}

// done tells whether nothing is missing. object.mu must be held.
func (j *fetchJob) done() bool {
	o := j.object
	if o.cache.ssd == nil {
		return j.next == o.geometry.Segments() && j.active == 0
	}
	return o.mu.disk.whole()
}

// more starts what is missing, as far as may be on its way at once, and
// returns the flights to launch and the extents to submit, which are in memory
// already. object.mu must be held.
func (j *fetchJob) more() (flights []*flight, ready []*extent) {
	o := j.object
	for i := j.next; i < o.geometry.Segments() && j.active < fetchRanges; i++ {
		started, waiting, done := j.segment(i)
		flights, ready = append(flights, started...), append(ready, waiting...)
		if done && i == j.next {
			j.next++
		}
	}
	return flights, ready
}

// segment is more for one segment. done says that it need not be looked
// at again.
func (j *fetchJob) segment(index int) (flights []*flight, ready []*extent, done bool) {
	o := j.object
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

// flights returns those that were started for j. object.mu must be held.
func (j *fetchJob) flights() (flights []*flight) {
	for _, seg := range j.object.mu.segments {
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
