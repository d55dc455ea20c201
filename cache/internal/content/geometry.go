package content

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
	BlockSize     = 64 << 10
	SegmentBlocks = 128
	SegmentSize   = SegmentBlocks * BlockSize

	// PageSize is what memory and disks are divided into.
	PageSize = 4 << 10

	// SmallObject is the largest object that is fetched whole by its first read
	// and checked against its CRC-64 before a byte of it is returned.
	SmallObject = 1 << 20
)

// Geometry divides an object of a given size into segments and blocks.
type Geometry struct{ Size int64 }

// Span is a run of blocks in one segment: first, first+1, … end-1.
type Span struct {
	Segment    int
	First, End int
}

// Segments returns the number of segments.
func (g Geometry) Segments() int {
	return int((g.Size + SegmentSize - 1) / SegmentSize)
}

// Blocks returns the number of blocks in a segment.
func (g Geometry) Blocks(segment int) int {
	return int((g.SegmentLen(segment) + BlockSize - 1) / BlockSize)
}

// TotalBlocks returns the number of blocks of the object.
func (g Geometry) TotalBlocks() int64 {
	return (g.Size + BlockSize - 1) / BlockSize
}

// SegmentLen returns the number of bytes in a segment.
func (g Geometry) SegmentLen(segment int) int64 {
	return min(SegmentSize, g.Size-int64(segment)*SegmentSize)
}

// Whole returns the span of a whole segment.
func (g Geometry) Whole(segment int) Span {
	return Span{Segment: segment, End: g.Blocks(segment)}
}

// Offset returns where in the object the span begins.
func (g Geometry) Offset(s Span) int64 {
	return int64(s.Segment)*SegmentSize + int64(s.First)*BlockSize
}

// Length returns the number of bytes in the span, which is not a multiple of
// blockSize if it holds the last block of the object.
func (g Geometry) Length(s Span) int64 {
	from := int64(s.First) * BlockSize
	to := min(int64(s.End)*BlockSize, g.SegmentLen(s.Segment))
	return max(to-from, 0)
}

// Spans yields the spans, in order, that cover n bytes at off.
func (g Geometry) Spans(off, n int64) iter.Seq[Span] {
	return func(yield func(Span) bool) {
		end := min(off+n, g.Size)
		for off < end {
			segment := int(off / SegmentSize)
			start := int64(segment) * SegmentSize
			stop := min(end, start+SegmentSize)
			s := Span{
				Segment: segment,
				First:   int((off - start) / BlockSize),
				End:     int((stop - start + BlockSize - 1) / BlockSize),
			}
			if !yield(s) {
				return
			}
			off = stop
		}
	}
}

// Len returns the number of blocks.
func (s Span) Len() int { return s.End - s.First }

// BlockSet is a set of blocks of one segment.
type BlockSet [SegmentBlocks / 64]uint64

// Add puts the blocks from first to end-1 into the set.
func (b *BlockSet) Add(first, end int) {
	for w := range b {
		b[w] |= wordMask(w, first, end)
	}
}

// Remove takes the blocks from first to end-1 out of the set.
func (b *BlockSet) Remove(first, end int) {
	for w := range b {
		b[w] &^= wordMask(w, first, end)
	}
}

// Has tells whether the block is in the set.
func (b *BlockSet) Has(block int) bool {
	return b[block/64]&(1<<(block%64)) != 0
}

// HasAll tells whether all blocks from first to end-1 are in the set.
func (b *BlockSet) HasAll(first, end int) bool {
	for w := range b {
		if m := wordMask(w, first, end); b[w]&m != m {
			return false
		}
	}
	return true
}

// Count returns the number of blocks in the set.
func (b *BlockSet) Count() int {
	n := 0
	for _, w := range b {
		n += bits.OnesCount64(w)
	}
	return n
}

// Run returns the end of the run of blocks that begins at first and whose
// membership is that of first, but no more than end.
func (b *BlockSet) Run(first, end int) int {
	want := b.Has(first)
	for i := first + 1; i < end; i++ {
		if b.Has(i) != want {
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

// OnDisk returns what n bytes occupy in a file.
func OnDisk(n int64) int64 { return (n + PageSize - 1) &^ (PageSize - 1) }
