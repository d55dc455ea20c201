package content

import (
	"hash/crc32"
	"slices"

	"github.com/pailfs/pailfs/oss"
)

// Two checksums are kept of every block. CRC-32C is what the SSD tier stores and
// compares: the processor computes it at the speed of memory. CRC-64/XZ is what
// the object store says about the whole object; those of the blocks combine into
// it, so that blocks may arrive in any order.

var (
	crc32cTable = crc32.MakeTable(crc32.Castagnoli)

	// crc64Block moves a checksum over one block, crc64Segment over one segment.
	crc64Block, crc64Segment = oss.ShiftOf(BlockSize), oss.ShiftOf(SegmentSize)
)

// CRC32C returns the CRC-32C of p.
func CRC32C(p []byte) uint32 { return crc32.Checksum(p, crc32cTable) }

// UpdateCRC32C returns the CRC-32C of what crc is that of, followed by p.
func UpdateCRC32C(crc uint32, p []byte) uint32 { return crc32.Update(crc, crc32cTable, p) }

// CombineCRC64 returns the checksum of a followed by b, from their checksums and
// the length of b.
func CombineCRC64(a, b uint64, lenB int64) uint64 {
	switch lenB {
	case BlockSize:
		return crc64Block.Of(a) ^ b
	case SegmentSize:
		return crc64Segment.Of(a) ^ b
	}
	return oss.CombineCRC64(a, b, lenB)
}

// Sums are the checksums of one block.
type Sums struct {
	CRC32 uint32
	CRC64 uint64
}

// SumBlocks returns the checksums of the blocks of p, which begins with one.
func SumBlocks(p []byte) []Sums {
	sums := make([]Sums, 0, (len(p)+BlockSize-1)/BlockSize)
	for block := range slices.Chunk(p, BlockSize) {
		sums = append(sums, Sums{CRC32: CRC32C(block), CRC64: oss.CRC64(block)})
	}
	return sums
}
