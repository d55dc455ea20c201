package cache

import (
	"hash/crc32"

	"github.com/pailfs/pailfs/oss"
)

// Two checksums are kept of every block. CRC-32C is what the SSD tier stores and
// compares: the processor computes it at the speed of memory. CRC-64/XZ is what
// the object store says about the whole object; those of the blocks combine into
// it, so that blocks may arrive in any order.

var (
	crc32cTable = crc32.MakeTable(crc32.Castagnoli)

	// crc64Block moves a checksum over one block, crc64Segment over one segment.
	crc64Block, crc64Segment = oss.ShiftOf(blockSize), oss.ShiftOf(segmentSize)
)

// crc32c returns the CRC-32C of p.
func crc32c(p []byte) uint32 { return crc32.Checksum(p, crc32cTable) }

// crc32Update returns the CRC-32C of what crc is that of, followed by p.
func crc32Update(crc uint32, p []byte) uint32 { return crc32.Update(crc, crc32cTable, p) }

// crc64Combine returns the checksum of a followed by b, from their checksums and
// the length of b.
func crc64Combine(a, b uint64, lenB int64) uint64 {
	if lenB == blockSize {
		return crc64Block.Of(a) ^ b
	}
	return oss.CombineCRC64(a, b, lenB)
}
