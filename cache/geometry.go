package cache

import (
	"iter"
	"math/bits"
)

// The sizes that everything else is built on.
//
// A block is what presence and checksums are kept for, and the least that is
// fetched: at the 100 MB/s of one connection it costs a random reader less than
// a millisecond beside the tens that the first byte takes. A segment is what the
// index holds one record for, and the most that one request fetches. No extent
// crosses the border of a segment.
const (
	blockSize     = 64 << 10
	segmentBlocks = 128
	segmentSize   = segmentBlocks * blockSize

	// smallObject is the largest object that is fetched whole by its first read
	// and checked against its CRC-64 before a byte of it is returned.
	smallObject = 1 << 20
)

// geometry divides an object of a given size into segments and blocks.
type geometry struct{ size int64 }

// span is a run of blocks in one segment: first, first+1, … end-1.
type span struct {
	segment    int
	first, end int
}

// segments returns the number of segments.
func (g geometry) segments() int {
	return int((g.size + segmentSize - 1) / segmentSize)
}

// blocks returns the number of blocks in a segment.
func (g geometry) blocks(segment int) int {
	return int((g.segmentLen(segment) + blockSize - 1) / blockSize)
}

// totalBlocks returns the number of blocks of the object.
func (g geometry) totalBlocks() int64 {
	return (g.size + blockSize - 1) / blockSize
}

// segmentLen returns the number of bytes in a segment.
func (g geometry) segmentLen(segment int) int64 {
	return min(segmentSize, g.size-int64(segment)*segmentSize)
}

// whole returns the span of a whole segment.
func (g geometry) whole(segment int) span {
	return span{segment: segment, end: g.blocks(segment)}
}

// offset returns where in the object the span begins.
func (g geometry) offset(s span) int64 {
	return int64(s.segment)*segmentSize + int64(s.first)*blockSize
}

// length returns the number of bytes in the span, which is not a multiple of
// blockSize if it holds the last block of the object.
func (g geometry) length(s span) int64 {
	from := int64(s.first) * blockSize
	to := min(int64(s.end)*blockSize, g.segmentLen(s.segment))
	return max(to-from, 0)
}

// spans yields the spans, in order, that cover n bytes at off.
func (g geometry) spans(off, n int64) iter.Seq[span] {
	return func(yield func(span) bool) {
		end := min(off+n, g.size)
		for off < end {
			segment := int(off / segmentSize)
			start := int64(segment) * segmentSize
			stop := min(end, start+segmentSize)
			s := span{
				segment: segment,
				first:   int((off - start) / blockSize),
				end:     int((stop - start + blockSize - 1) / blockSize),
			}
			if !yield(s) {
				return
			}
			off = stop
		}
	}
}

// len returns the number of blocks.
func (s span) len() int { return s.end - s.first }

// blockSet is a set of blocks of one segment.
type blockSet [segmentBlocks / 64]uint64

// add puts the blocks from first to end-1 into the set.
func (b *blockSet) add(first, end int) {
	for w := range b {
		b[w] |= wordMask(w, first, end)
	}
}

// remove takes the blocks from first to end-1 out of the set.
func (b *blockSet) remove(first, end int) {
	for w := range b {
		b[w] &^= wordMask(w, first, end)
	}
}

// has tells whether the block is in the set.
func (b *blockSet) has(block int) bool {
	return b[block/64]&(1<<(block%64)) != 0
}

// hasAll tells whether all blocks from first to end-1 are in the set.
func (b *blockSet) hasAll(first, end int) bool {
	for w := range b {
		if m := wordMask(w, first, end); b[w]&m != m {
			return false
		}
	}
	return true
}

// count returns the number of blocks in the set.
func (b *blockSet) count() int {
	n := 0
	for _, w := range b {
		n += bits.OnesCount64(w)
	}
	return n
}

// run returns the end of the run of blocks that begins at first and whose
// membership is that of first, but no more than end.
func (b *blockSet) run(first, end int) int {
	want := b.has(first)
	for i := first + 1; i < end; i++ {
		if b.has(i) != want {
			return i
		}
	}
	return end
}

// wordMask returns the bits of word w that stand for blocks first to end-1.
func wordMask(w, first, end int) uint64 {
	lo := min(max(first-w*64, 0), 64)
	hi := min(max(end-w*64, 0), 64)
	if lo >= hi {
		return 0
	}
	return (^uint64(0) << lo) & (^uint64(0) >> (64 - hi))
}
