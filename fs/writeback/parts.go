package writeback

import "github.com/pailfs/pailfs/fs/writeback/internal/presence"

const (
	// minPart is the size of the first parts of a file, in bytes. Every partsBeforeGrowth
	// parts it doubles: 8 MiB up to 8 GiB, 64 MiB from 56 GiB to 120 GiB, and so on, so
	// that the size need not be known when the first part is sent.
	minPart           = 8 << 20
	partsBeforeGrowth = 1000
	// maxParts and maxPart are what OSS takes; their product is its largest object.
	maxParts = 10000
	maxPart  = 5 << 30
)

// layout says where the parts of an object begin and end. It follows from the size
// of the first ones alone.
type layout struct {
	first int64
	// growth is how many parts have one size before it doubles.
	growth int
}

// layoutOf returns the layout of a file of a known size: the usual one, unless that
// is too large for it.
func (l *limits) layoutOf(size int64) layout {
	lay := layout{l.part, l.growth}
	for lay.first < maxPart && lay.capacity() < size {
		lay.first = min(lay.first*2, maxPart)
	}
	return lay
}

// part returns the part after e, whose index is i; parts are counted from 0.
func (l layout) part(i int, e presence.Extent) presence.Extent {
	size := l.first
	for n := i / l.growth; n > 0 && size < maxPart; n-- {
		size *= 2
	}
	return presence.Extent{Off: e.End(), Size: min(size, maxPart)}
}

// capacity is the largest object, in bytes.
func (l layout) capacity() int64 {
	var e presence.Extent
	for i := range maxParts {
		e = l.part(i, e)
	}
	return e.End()
}

// parts cuts size bytes; the last part is what is left.
func (l layout) parts(size int64) []presence.Extent {
	var all []presence.Extent
	var e presence.Extent
	for i := 0; e.End() < size; i++ {
		e = l.part(i, e)
		e.Size = min(e.Size, size-e.Off)
		all = append(all, e)
	}
	return all
}

// evenly cuts size bytes into parts of most bytes or a little more than half of it:
// none is so small that OSS would refuse it beside others.
func evenly(size, most int64) []presence.Extent {
	n := min((size+most-1)/most, maxParts)
	var all []presence.Extent
	for i := range n {
		off := size * i / n
		all = append(all, presence.Extent{Off: off, Size: size*(i+1)/n - off})
	}
	return all
}
