package cache

import (
	"sync"
	"time"

	"github.com/pailfs/pailfs/cache/internal/content"
)

// Reads at random places come a round trip apart, and the link rests meanwhile. Around
// them more and more is fetched, the denser they lie, until that is all there is:
//
//	the reads of a region of 1 GiB that had to be fetched for: 1st to 4th  5th     6th     ...  18th
//	what is fetched with each, aligned, in requests of 4 MiB:  its blocks  128 KiB 256 KiB ...  1 GiB
//
// Ten such reads of a region bring 8.2 MB in vain at most (aroundOfTen). What is fetched so
// waits behind everything that somebody waits for. It never streams for longer than the
// reads of the object have waited by then: a reader who goes away has cost the link no
// more time than the link has cost him. And it is never more than the object once.
const (
	// aroundRegion is how far reads may lie apart that count together.
	aroundRegion = 1 << 30
	// aroundAfter is how many reads of a region are fetched for alone.
	aroundAfter = 4
	// aroundRange is how much one request brings. A reader may meet one that is on its
	// way and has to wait for what comes before its bytes.
	aroundRange = 4 << 20
	// aroundOfTen bounds what is fetched around the first ten reads of a region:
	// 128 KiB + 256 KiB + ... + 4 MiB.
	aroundOfTen = content.BlockSize * (1<<7 - 2)
)

// around is what is fetched around random reads of an object. Guarded by object.mu.
type around struct {
	// misses counts the reads that were fetched for, by region.
	misses map[int64]int
	// next and end are what of the last unit has not been asked for.
	next, end int64
	// asked is how much was asked for in all, flying how much of it is on its way in how
	// many flights.
	asked, flying int64
	flights       int
	// refused says that SSD had no room for what came.
	refused bool

	link linkUse
}

// linkUse is for how long flights have had bytes streaming, together.
type linkUse struct {
	mu struct {
		sync.Mutex
		streaming int
		since     time.Duration
		used      time.Duration
		bytes     int64
	}
}

// begin notes that the first bytes of a flight have arrived.
func (l *linkUse) begin(now time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.streaming == 0 {
		l.mu.since = now
	}
	l.mu.streaming++
}

// end notes that a flight has ended that brought n bytes.
func (l *linkUse) end(now time.Duration, n int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.bytes += n
	l.mu.streaming--
	if l.mu.streaming == 0 {
		l.mu.used += now - l.mu.since
	}
}

// after returns how long the link will have been used once further bytes have come, at
// the rate at which those came that are here.
func (l *linkUse) after(now time.Duration, bytes int64) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	used := l.mu.used
	if l.mu.streaming > 0 {
		used += now - l.mu.since
	}
	if l.mu.bytes == 0 {
		return used
	}
	return used + time.Duration(float64(bytes)*float64(used)/float64(l.mu.bytes))
}

// missed notes that a read of the stream s at off had to be fetched for, and returns the
// flights that are to bring more around it. o.mu must be held; the caller must launch them
// after unlocking.
func (a *around) missed(o *object, s *stream, off int64) []*flight {
	region := off / aroundRegion
	if s.window > 0 {
		// It was no random reader: readahead has it now.
		if s.missed > 0 {
			a.misses[region] = max(a.misses[region]-s.missed, 0)
			s.missed = 0
		}
		return nil
	}
	if a.misses == nil {
		a.misses = make(map[int64]int)
	}
	a.misses[region]++
	s.missed++
	grown := a.misses[region] - aroundAfter
	if grown <= 0 || o.never {
		return nil
	}
	unit := int64(aroundRegion)
	if grown < 14 {
		unit = content.BlockSize << grown
	}
	a.next = off / unit * unit
	a.end = min(a.next+unit, o.geometry.Size)
	return a.fetch(o)
}

// fetch makes the flights for what is still to be fetched around random reads, as far
// as may be on its way now. o.mu must be held; the caller must launch them after unlocking.
func (a *around) fetch(o *object) (flights []*flight) {
	for a.next < a.end && a.flights < maxRanges {
		gap, covered := o.gapAt(a.next)
		if covered > 0 {
			a.next += covered
			continue
		}
		n := min(gap, aroundRange-a.next%aroundRange, a.end-a.next)
		if !a.may(o, n) || !o.cache.memory.budget.try(extentCost(n), patient) {
			return flights
		}
		for s := range o.geometry.Spans(a.next, n) { // one: a range lies in a segment
			f := o.newFlight(s, forAround)
			f.extent.cost = extentCost(n)
			flights = append(flights, f)
		}
		a.next, a.asked, a.flying = a.next+n, a.asked+n, a.flying+n
		a.flights++
	}
	return flights
}

// may tells whether n bytes more may be fetched that nobody asked for. o.mu
// must be held.
func (a *around) may(o *object, n int64) bool {
	c := o.cache
	switch {
	case a.refused || o.mu.handles == 0 || a.asked+n > o.geometry.Size:
		return false
	case c.ssd != nil && c.ssd.health.Writable():
		// What the disk cannot take in time would be dropped, and fetched again.
		if !c.ssd.writer.queue.hasRoom(a.flying + extentCost(n)) {
			return false
		}
	case o.geometry.Size > c.memory.keptLimit()/2:
		return false
	}
	return a.link.after(c.now(), a.flying+n) <= time.Duration(o.waited.Load())
}

// arrivedAround notes that a flight has ended, and returns those that follow it. o.mu must
// be held.
func (f *flight) arrivedAround(err error) []*flight {
	o := f.extent.object
	a := &o.mu.around
	a.flights--
	a.flying -= f.length
	if f.announced > 0 {
		a.link.end(o.cache.now(), f.announced)
	}
	if err != nil {
		a.next = a.end
		return nil
	}
	return a.fetch(o)
}
