package cache

import "github.com/pailfs/pailfs/cache/internal/content"

const (
	// maxStreams is how many readers of one object are told apart.
	maxStreams = 16
	// maxRanges is how many requests one stream has in flight. They need not end
	// together: while some wait for their first byte, the others fill the link.
	maxRanges = 16

	// firstRange is the size of the first ranges of a stream. They double up to a
	// segment, two of each, so that the first bytes come soon and that the ranges do
	// not all end, and begin, at once.
	firstRange = 1 << 20
	// firstFetch is what the first read at the beginning of an object fetches, and
	// wholeFetch the size up to which that is all of it.
	firstFetch = 1 << 20
	wholeFetch = 4 << 20

	// minWindow and maxWindow bound how far ahead of the reader a stream fetches. The
	// maximum is what 16 ranges hold twice over: as much again as is in flight may
	// have arrived and wait for one that is late.
	minWindow = 1 << 20
	maxWindow = 2 * maxRanges * content.SegmentSize
	// startWindow is that of a stream which begins where the object does and has
	// read startRead bytes: most such readers read on to the end.
	startWindow = 64 << 20
	startRead   = 1 << 20

	// minSequential is what a stream must have read before anything is fetched
	// ahead of it.
	minSequential = 128 << 10
	// looseGap is the distance at which a read still belongs to a stream that is not
	// yet known to be one, and streamGap to one that is. The kernel's readahead sends
	// its requests in any order and is up to 16 MiB ahead of its reader.
	looseGap  = 2 << 20
	streamGap = 16 << 20

	// nearDistance is how far ahead of the reader a range counts as demand.
	nearDistance = 32 << 20
)

// stream is a reader that moves through an object. Guarded by object.mu.
//
// What tells a stream from random reads is not their order, which the kernel
// shuffles, but that they leave little out: at least half of what lies between
// the lowest and the highest byte was read.
type stream struct {
	low, high int64 // the envelope of what was read
	read      int64 // how much of it was, about
	grew      int   // how many reads made it larger
	missed    int   // how many of its reads around has counted
	used      uint64

	// started says that the stream was seen to begin where the object does.
	started bool
	// window is how far beyond high is fetched; 0 while the stream is not known to
	// be one. It is doubled when the reader had to wait, at most once while it moves
	// on by half of it: to where growAt is.
	window int64
	growAt int64
	// issued is where the next range begins, size how long it is, and ramp how many
	// of that size there were.
	issued, size int64
	ramp         int
	// ranges is the number of requests in flight.
	ranges int
}

// streams are the readers of one object that are told apart. Guarded by object.mu.
type streams struct {
	object *object // whose they are
	list   []*stream
}

// end forgets all streams. object.mu must be held.
func (l *streams) end() {
	for _, s := range l.list {
		l.setWindow(s, 0)
	}
	l.list = nil
}

// observe notes a read and returns its stream. o.mu must be held.
func (l *streams) observe(off, n int64, stalled bool) *stream {
	o := l.object
	o.cache.reads.Add(1)
	s := l.match(off, n)
	s.used = o.cache.reads.Load()

	low, high := min(s.low, off), max(s.high, off+n)
	if low < s.low || high > s.high {
		s.grew++
	}
	s.low, s.high = low, high
	s.read = min(s.read+n, high-low)
	if 2*s.read < high-low {
		// Not a stream, or one that jumps: begin anew from here.
		l.setWindow(s, 0)
		s.low, s.high, s.read, s.grew = off, off+n, n, 0
		return s
	}
	if s.grew == 0 || s.read < minSequential {
		return s
	}
	begins := s.low == 0 && s.read >= startRead && !s.started
	switch {
	case s.window == 0:
		s.issued, s.size, s.ramp = s.high, firstRange, 0
		l.setWindow(s, 2*s.read)
		s.growAt = s.high + s.window/2
	case stalled && s.high >= s.growAt:
		l.setWindow(s, 2*s.window)
		s.growAt = s.high + s.window/4
	}
	if begins {
		s.started = true
		l.setWindow(s, max(s.window, startWindow))
		s.growAt = s.high + s.window/2
	}
	return s
}

// match returns the stream that a read belongs to, made if need be.
func (l *streams) match(off, n int64) *stream {
	var best, oldest *stream
	var bestGap int64
	for _, s := range l.list {
		// Only the front counts: a reader that begins anew is another stream.
		limit := int64(looseGap)
		if s.window > 0 {
			limit = streamGap
		}
		gap := max(off-s.high, s.high-(off+n))
		if gap <= limit && (best == nil || gap < bestGap) {
			best, bestGap = s, gap
		}
		if oldest == nil || s.used < oldest.used {
			oldest = s
		}
	}
	if best != nil {
		return best
	}
	s := &stream{low: off, high: off + n}
	if len(l.list) < maxStreams {
		l.list = append(l.list, s)
		return s
	}
	l.setWindow(oldest, 0)
	// Flights may still refer to the old one.
	for i := range l.list {
		if l.list[i] == oldest {
			l.list[i] = s
		}
	}
	return s
}

// setWindow changes a stream's window within its bounds, and tells the memory
// tier, which makes room.
func (l *streams) setWindow(s *stream, window int64) {
	o := l.object
	if window > 0 {
		// A stream that began in the middle may be one record of many: it never
		// fetches more than a multiple of what was read of it.
		limit := int64(maxWindow)
		if s.low > 0 {
			limit = min(limit, 4*s.read)
		}
		limit = min(limit, o.cache.memory.limit/3)
		window = max(min(window, limit), minWindow)
	}
	o.cache.memory.readAhead(s.window, window)
	s.window = window
}

// extend makes the flights that a stream needs now. o.mu must be held; the caller
// must launch them after unlocking.
func (l *streams) extend(s *stream) (flights []*flight) {
	o := l.object
	if s.window == 0 {
		return nil
	}
	s.issued = max(s.issued, s.high)
	size := s.rangeSize()
	end := min(o.geometry.Size, s.high+s.window)
	for s.issued < end && s.ranges < maxRanges {
		gap, covered := o.gapAt(s.issued)
		if covered > 0 {
			s.issued += covered
			continue
		}
		// The range ends at a multiple of its size, so that later ones fall on the
		// borders of segments.
		stop := min(s.issued-s.issued%size+size, s.issued+gap, o.geometry.Size)
		if stop > end {
			break // not yet: a stream moves on in whole ranges
		}
		for sp := range o.geometry.Spans(s.issued, stop-s.issued) {
			cost := extentCost(o.geometry.Length(sp))
			if !o.cache.memory.budget.try(cost, patient) {
				l.setWindow(s, min(s.window, o.cache.memory.fairWindow()))
				return flights
			}
			f := o.newFlight(sp, forAhead)
			f.stream, f.extent.cost = s, cost
			f.near = s.issued-s.high < nearDistance
			flights = append(flights, f)
			s.ranges++
		}
		s.issued = stop
		if s.ramp++; s.ramp%2 == 0 {
			s.size = min(2*s.size, content.SegmentSize)
			size = s.rangeSize()
		}
	}
	return flights
}

// rangeSize is how long the next range is: so that at least eight of them fit the
// window.
func (s *stream) rangeSize() int64 {
	size := s.size
	for size > firstRange && size > s.window/8 {
		size /= 2
	}
	return size
}

// gapAt tells, for a position in the object, how many bytes from there to the end
// of the segment at most are neither in a tier nor on the way; or, if those at
// the position are, how many are covered. o.mu must be held.
func (o *object) gapAt(off int64) (gap, covered int64) {
	index := int(off / content.SegmentSize)
	start := int64(index) * content.SegmentSize
	blocks := o.geometry.Blocks(index)
	block := int((off - start) / content.BlockSize)
	seg := o.peek(index)
	if seg == nil {
		return o.geometry.SegmentLen(index) - (off - start), 0
	}
	e, next := seg.at(block, blocks)
	if e != nil {
		return 0, o.geometry.Offset(e.span) + o.geometry.Length(e.span) - off
	}
	if o.mu.disk.readable() {
		stop := seg.disk.Run(block, next)
		if seg.disk.Has(block) {
			return 0, start + int64(stop)*content.BlockSize - off
		}
		next = stop
	}
	return start + int64(next)*content.BlockSize - off, 0
}

// endStreams forgets all streams, stops what is in flight for them alone, and
// returns the flights to be abandoned. o.mu must be held.
func (o *object) endStreams() (idle []*flight) {
	o.mu.streams.end()
	o.mu.around.next = o.mu.around.end
	if o.mu.ahead == 0 && o.mu.around.flights == 0 {
		return nil
	}
	for _, seg := range o.mu.segments {
		if seg == nil {
			continue
		}
		for _, e := range seg.extents {
			if e.flight != nil && (e.flight.purpose == forAhead || e.flight.purpose == forAround) {
				idle = append(idle, e.flight)
			}
		}
	}
	return idle
}
