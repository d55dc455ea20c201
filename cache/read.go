package cache

import (
	"context"
	"errors"

	"github.com/pailfs/pailfs/cache/internal/content"
	"github.com/pailfs/pailfs/oss"
)

// place says where the bytes at some position are.
type place struct {
	// bytes are those in memory. The place holds a reference to extent; if flight is
	// not nil, they are there once it has come as far as need.
	extent *extent
	bytes  []byte
	flight *flight
	need   int64
	// disk says that they are on SSD.
	disk bool
	// n is how many there are; 0 says that they are nowhere.
	n int64
}

// maxAttempts is how often a read looks for bytes because what it found was gone, or
// because a flight failed that was not started for a read. Then it fetches them itself.
const maxAttempts = 4

// plan starts what a read of n bytes at off lacks, and what is to be read ahead of
// it if observe is set. o.mu must be held; the caller must launch the flights
// after unlocking.
func (o *object) plan(off, n int64, observe bool) (flights []*flight) {
	stalled := false
	for s := range o.geometry.Spans(off, n) {
		missing, wait := o.planSpan(s, off == 0)
		stalled = stalled || wait
		flights = append(flights, missing...)
	}
	if observe && !o.small() {
		s := o.mu.streams.observe(off, n, stalled)
		if len(flights) > 0 {
			flights = append(flights, o.mu.around.missed(o, s, off)...)
		}
		flights = append(flights, o.mu.streams.extend(s)...)
	}
	return flights
}

// planSpan makes flights for what is missing of s and tells whether a read of it
// has to wait. first says that the read begins where the object does.
func (o *object) planSpan(s content.Span, first bool) (flights []*flight, wait bool) {
	seg := o.segment(s.Segment)
	blocks := o.geometry.Blocks(s.Segment)
	disk := o.mu.disk.readable()
	if o.small() && !seg.disk.HasAll(0, blocks) {
		// It comes whole or not at all, so that all of it can be checked.
		s, disk = o.geometry.Whole(0), false
	}
	for block := s.First; block < s.End; {
		e, next := seg.at(block, blocks)
		if e != nil {
			wait = wait || e.flight != nil && !e.flight.reached(o.geometry.Length(content.Span{Segment: s.Segment, First: e.span.First, End: min(s.End, e.span.End)}))
			block = e.span.End
			continue
		}
		if disk {
			run := seg.disk.Run(block, next)
			if seg.disk.Has(block) {
				block = run
				continue
			}
			next = run
		}
		stop := min(next, s.End)
		if first && s.Segment == 0 && block == 0 {
			stop = min(next, max(s.End, o.firstFetch()))
		}
		flights = append(flights, o.newFlight(content.Span{Segment: s.Segment, First: block, End: stop}, forDemand))
		wait = true
		block = stop
	}
	return flights, wait
}

// firstFetch returns how many blocks the first read at the beginning of an object
// fetches.
func (o *object) firstFetch() int {
	if o.geometry.Size <= wholeFetch {
		return o.geometry.Blocks(0)
	}
	return firstFetch / content.BlockSize
}

// locate says where the bytes at off are, up to n of them. o.mu must be held. If
// place.extent is not nil, the caller must release it.
func (o *object) locate(off, n int64) place {
	segment := int(off / content.SegmentSize)
	block := int(off % content.SegmentSize / content.BlockSize)
	seg := o.peek(segment)
	if seg == nil {
		return place{}
	}
	e, next := seg.at(block, o.geometry.Blocks(segment))
	if e != nil {
		start := o.geometry.Offset(e.span)
		p := place{extent: e, flight: e.flight, n: min(n, start+o.geometry.Length(e.span)-off)}
		p.need = off - start + p.n
		if p.flight == nil {
			p.arrived()
		}
		e.acquire()
		return p
	}
	if o.mu.disk.readable() && seg.disk.Has(block) && (!o.small() || seg.disk.HasAll(0, o.geometry.Blocks(0))) {
		on := content.Span{Segment: segment, First: block, End: seg.disk.Run(block, next)}
		end := o.geometry.Offset(on) + o.geometry.Length(on)
		return place{disk: true, n: min(n, end-off)}
	}
	return place{}
}

// arrived finds the bytes of a place whose flight, if any, has come far enough.
func (p *place) arrived() { p.bytes = p.extent.buf.bytes[p.need-p.n : p.need] }

// took notes that a reader has taken what is at the place. What was held for
// readers to come is, once all of it has been taken, let go if SSD has it or is
// about to: a stream that went by is in the kernel's page cache as well, and memory
// that is used again at once costs less than new memory. Otherwise it is kept or
// dropped as the memory tier likes. What the SSD tier could not take when it came
// is offered to it again.
func (o *object) took(at place) {
	c := o.cache
	o.touch()
	c.metrics.took(at)
	e := at.extent
	if e == nil {
		return
	}
	o.mu.Lock()
	again := c.ssd.wants(o, e)
	if again {
		o.setHolds(e, e.holds|heldWriting)
	}
	settled, gone := false, false
	if e.holds&heldAhead != 0 {
		e.consumed += at.n
		if e.flight == nil && e.consumed >= o.geometry.Length(e.span) {
			if o.onDisk(e) {
				gone = o.unholdLocked(e, heldAhead)
			} else {
				o.setHolds(e, e.holds&^heldAhead|heldKept)
				settled = true
			}
		}
	}
	o.mu.Unlock()
	if gone {
		e.release()
		return
	}
	c.memory.used(e.key())
	if settled {
		c.memory.keep(e)
	}
	if again {
		c.ssd.writer.submit(c.ctx, e, nil)
	}
}

// onDisk tells whether SSD has the blocks of e, which is large, or is about to. A
// small object is read as a whole, perhaps by many readers: it may stay. o.mu must
// be held.
func (o *object) onDisk(e *extent) bool {
	if o.small() {
		return false
	}
	return e.holds&heldWriting != 0 || o.segment(e.span.Segment).disk.HasAll(e.span.First, e.span.End)
}

// find returns where the bytes at off are, having started what is missing of the
// n from there. If place.extent is not nil, the caller must release it.
func (o *object) find(off, n int64, observe bool) (place, error) {
	o.mu.Lock()
	flights := o.plan(off, n, observe)
	p := o.locate(off, n)
	o.mu.Unlock()
	o.cache.launch(flights)
	return p, o.cache.closed()
}

// readAt fills p with the bytes at off, all of which the object has. observe says
// that the read has not been noted yet.
func (o *object) readAt(ctx context.Context, p []byte, off int64, observe bool) error {
	o.touch()
	o.cache.ssd.load(o)
	for attempt := 0; len(p) > 0; observe = false {
		at, err := o.find(off, int64(len(p)), observe)
		if err == nil {
			err = o.take(ctx, at, p, off)
		}
		if at.extent != nil {
			at.extent.release()
		}
		switch {
		case err == nil:
			p, off, attempt = p[at.n:], off+at.n, 0
		case !o.again(ctx, at, err):
			return err
		case attempt+1 < maxAttempts:
			attempt++
		default:
			n, err := readAnew(ctx, o, p, off)
			if err != nil {
				return err
			}
			p, off, attempt = p[n:], off+n, 0
		}
	}
	return nil
}

// wait returns when what a flight brings is at the place, and counts how long that took.
func (o *object) wait(ctx context.Context, at place) error {
	begin := o.cache.now()
	err := at.flight.wait(ctx, at.need)
	o.waited.Add(int64(o.cache.now() - begin))
	return err
}

// take copies what is at the place into p.
func (o *object) take(ctx context.Context, at place, p []byte, off int64) error {
	switch {
	case at.extent != nil:
		if at.flight != nil {
			if err := o.wait(ctx, at); err != nil {
				return err
			}
			at.arrived()
		}
		copy(p, at.bytes)
	case at.disk:
		if err := o.cache.ssd.files.read(ctx, o, p[:at.n], off); err != nil {
			return err
		}
	default:
		return errGone
	}
	o.took(at)
	return nil
}

// errGone says that bytes are no longer where they were. A read that meets it
// begins anew.
var errGone = errors.New("no longer cached")

// again tells whether a read that failed with err may succeed when it begins
// anew.
func (o *object) again(ctx context.Context, at place, err error) bool {
	if ctx.Err() != nil || o.cache.ctx.Err() != nil {
		return false
	}
	switch {
	case errors.Is(err, errGone):
		return true
	case at.flight == nil:
		return false
	case errors.Is(err, context.Canceled):
		// The flight was abandoned at the moment at which we found it.
		return true
	}
	return at.flight.purpose != forDemand && !errors.Is(err, oss.ErrCorrupted)
}
