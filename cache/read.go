package cache

import (
	"context"
	"errors"

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
	for s := range o.geometry.spans(off, n) {
		missing, wait := o.planSpan(s, off == 0)
		stalled = stalled || wait
		flights = append(flights, missing...)
	}
	if observe && !o.small() {
		s := o.observe(off, n, stalled)
		if len(flights) > 0 {
			flights = append(flights, o.missed(s, off)...)
		}
		flights = append(flights, o.extend(s)...)
	}
	return flights
}

// planSpan makes flights for what is missing of s and tells whether a read of it
// has to wait. first says that the read begins where the object does.
func (o *object) planSpan(s span, first bool) (flights []*flight, wait bool) {
	seg := o.segment(s.segment)
	blocks := o.geometry.blocks(s.segment)
	disk := o.diskReadable()
	if o.small() && !seg.disk.hasAll(0, blocks) {
		// It comes whole or not at all, so that all of it can be checked.
		s, disk = o.geometry.whole(0), false
	}
	for block := s.first; block < s.end; {
		e, next := seg.at(block, blocks)
		if e != nil {
			wait = wait || e.flight != nil && !e.flight.reached(o.geometry.length(span{s.segment, e.span.first, min(s.end, e.span.end)}))
			block = e.span.end
			continue
		}
		if disk {
			run := seg.disk.run(block, next)
			if seg.disk.has(block) {
				block = run
				continue
			}
			next = run
		}
		stop := min(next, s.end)
		if first && s.segment == 0 && block == 0 {
			stop = min(next, max(s.end, o.firstFetch()))
		}
		flights = append(flights, o.newFlight(span{s.segment, block, stop}, forDemand))
		wait = true
		block = stop
	}
	return flights, wait
}

// firstFetch returns how many blocks the first read at the beginning of an object
// fetches.
func (o *object) firstFetch() int {
	if o.geometry.size <= wholeFetch {
		return o.geometry.blocks(0)
	}
	return firstFetch / blockSize
}

// locate says where the bytes at off are, up to n of them. o.mu must be held. If
// place.extent is not nil, the caller must release it.
func (o *object) locate(off, n int64) place {
	segment := int(off / segmentSize)
	block := int(off % segmentSize / blockSize)
	seg := o.peek(segment)
	if seg == nil {
		return place{}
	}
	e, next := seg.at(block, o.geometry.blocks(segment))
	if e != nil {
		start := o.geometry.offset(e.span)
		p := place{extent: e, flight: e.flight, n: min(n, start+o.geometry.length(e.span)-off)}
		p.need = off - start + p.n
		if p.flight == nil {
			p.arrived()
		}
		e.acquire()
		return p
	}
	if o.diskReadable() && seg.disk.has(block) && (!o.small() || seg.disk.hasAll(0, o.geometry.blocks(0))) {
		on := span{segment, block, seg.disk.run(block, next)}
		end := o.geometry.offset(on) + o.geometry.length(on)
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
		if e.flight == nil && e.consumed >= o.geometry.length(e.span) {
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
		c.ssd.submit(c.ctx, e, nil)
	}
}

// onDisk tells whether SSD has the blocks of e, which is large, or is about to. A
// small object is read as a whole, perhaps by many readers: it may stay. o.mu must
// be held.
func (o *object) onDisk(e *extent) bool {
	if o.small() {
		return false
	}
	return e.holds&heldWriting != 0 || o.segment(e.span.segment).disk.hasAll(e.span.first, e.span.end)
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
		if err := o.cache.ssd.read(ctx, o, p[:at.n], off); err != nil {
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
