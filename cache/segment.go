package cache

import (
	"slices"
	"sort"

	"github.com/pailfs/pailfs/cache/internal/content"
)

// segment is what is known of one segment of an object. Guarded by object.mu.
type segment struct {
	// extents are those in memory or on the way, by first block. They do not
	// overlap.
	extents []*extent

	// disk are the blocks that were written to the SSD file, indexed those of them
	// that the index says so of, trusted those whose content was checked, or
	// written, since the start: indexed ⊆ disk, trusted ⊆ disk.
	disk, indexed, trusted content.BlockSet

	// summed are the blocks whose checksums are known: all that arrived since the
	// start and those that the index knew. crc32 has an entry for every block.
	summed content.BlockSet
	crc32  []uint32

	// hashed are the blocks whose CRC-64 is in crc64. When that is all of them, hash
	// is the CRC-64 of the segment and crc64 is no longer needed.
	hashed content.BlockSet
	crc64  []uint64
	hash   uint64
	whole  bool // hash is valid
}

// find returns the index of the first extent that ends beyond block.
func (s *segment) find(block int) int {
	return sort.Search(len(s.extents), func(i int) bool { return s.extents[i].span.End > block })
}

// at returns the extent that covers block, or nil and where the next one begins,
// but at most end.
func (s *segment) at(block, end int) (e *extent, gap int) {
	i := s.find(block)
	if i == len(s.extents) {
		return nil, end
	}
	if e := s.extents[i]; e.span.First <= block {
		return e, 0
	}
	return nil, min(end, s.extents[i].span.First)
}

// insert adds an extent to the segment.
func (s *segment) insert(e *extent) {
	s.extents = slices.Insert(s.extents, s.find(e.span.First), e)
}

// remove takes an extent out of the segment. It is not looked up by its span,
// which is empty by then if nothing of it came.
func (s *segment) remove(e *extent) {
	if i := slices.Index(s.extents, e); i >= 0 {
		s.extents = slices.Delete(s.extents, i, i+1)
	}
}

// sum remembers the checksums of a block and tells whether they agree with what
// was known of it before.
func (s *segment) sum(g content.Geometry, index, block int, sums content.Sums) bool {
	n := g.Blocks(index)
	if s.crc32 == nil {
		s.crc32 = make([]uint32, n)
	}
	if s.summed.Has(block) {
		if s.crc32[block] != sums.CRC32 {
			return false
		}
	} else {
		s.crc32[block] = sums.CRC32
		s.summed.Add(block, block+1)
	}
	s.rememberHash(g, index, block, sums.CRC64)
	return true
}

// rememberHash notes the CRC-64 of a block.
func (s *segment) rememberHash(g content.Geometry, index, block int, crc uint64) {
	if s.whole || s.hashed.Has(block) {
		return
	}
	n := g.Blocks(index)
	if s.crc64 == nil {
		s.crc64 = make([]uint64, n)
	}
	s.crc64[block] = crc
	s.hashed.Add(block, block+1)
	if !s.hashed.HasAll(0, n) {
		return
	}
	s.hash = s.crc64[0]
	for b := 1; b < n; b++ {
		s.hash = content.CombineCRC64(s.hash, s.crc64[b], g.Length(content.Span{Segment: index, First: b, End: b + 1}))
	}
	s.whole, s.crc64 = true, nil
}

// forget drops everything but the extents.
func (s *segment) forget() {
	*s = segment{extents: s.extents}
}
