package manifest

import (
	"strings"
	"sync/atomic"
	"time"
)

// run is a stretch of a directory as one page of a listing told it: every item
// in it that the directory holds, and by their absence those that it does not.
// Apart from the time of its last use it never changes.
type run struct {
	// lo and hi bound the stretch: items from lo up to, not including, hi. toEnd
	// says that it has no upper bound.
	lo, hi string
	toEnd  bool
	// sent is when the page was asked for. What it says was true then or later.
	sent time.Time
	// token continues the listing at hi, if it is not empty.
	token string
	// inhabited says that the page held a key, shown or not.
	inhabited bool

	// data holds the encoded records one after another, offsets where each begins.
	data    string
	offsets []uint32

	// used is when the run last answered something, in nanoseconds since 1970.
	used atomic.Int64
}

// runOverhead is what a run costs beside its records, in bytes, roughly.
const runOverhead = 256

// build stores records, which must be in order and within the bounds.
func (r *run) build(records []record) {
	size := 0
	for i := range records {
		size += len(records[i].item) + 40
	}
	b := make([]byte, 0, size)
	r.offsets = make([]uint32, len(records))
	for i := range records {
		r.offsets[i] = uint32(len(b))
		b = appendRecord(b, &records[i])
	}
	r.data = string(b)
}

func (r *run) len() int { return len(r.offsets) }

// bytes returns what the run costs in memory.
func (r *run) bytes() int64 {
	return int64(len(r.data) + 4*len(r.offsets) + len(r.lo) + len(r.hi) + len(r.token) + runOverhead)
}

// covers reports whether the run knows of item.
func (r *run) covers(item string) bool { return r.lo <= item && (r.toEnd || item < r.hi) }

// item returns the i-th item. It is part of the run's memory: a caller that
// keeps it copies it.
func (r *run) item(i int) string {
	item, _ := decodeItem(r.data[r.offsets[i]:])
	return item
}

// search returns the index of the first item that is not less than item, and
// whether it is item.
func (r *run) search(item string) (int, bool) {
	// This is the inner loop of everything, and a closure would move item to the
	// heap.
	low, high := 0, r.len()
	for low < high {
		if middle := (low + high) / 2; r.item(middle) < item {
			low = middle + 1
		} else {
			high = middle
		}
	}
	return low, low < r.len() && r.item(low) == item
}

// before returns the stretch of r below hi, which must be in it.
func (r *run) before(hi string) *run {
	return r.part(&run{lo: r.lo, hi: hi})
}

// from returns the stretch of r from lo on, which must be in it.
func (r *run) from(lo string) *run {
	return r.part(&run{lo: lo, hi: r.hi, toEnd: r.toEnd, token: r.token})
}

// part fills p, which has its bounds, with what r knows. They share no memory.
func (r *run) part(p *run) *run {
	p.sent, p.inhabited = r.sent, r.inhabited
	p.used.Store(r.used.Load())
	first, _ := r.search(p.lo)
	last := r.len()
	if !p.toEnd {
		last, _ = r.search(p.hi)
	}
	if first == last {
		return p
	}
	begin, end := r.offsets[first], uint32(len(r.data))
	if last < r.len() {
		end = r.offsets[last]
	}
	p.data = strings.Clone(r.data[begin:end])
	p.offsets = make([]uint32, last-first)
	for i := range p.offsets {
		p.offsets[i] = r.offsets[first+i] - begin
	}
	return p
}

// afterItem returns the smallest string that is greater than item.
func afterItem(item string) string { return item + "\x00" }
