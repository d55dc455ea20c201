package cache

import (
	"encoding/binary"
	"hash/crc32"
	"hash/crc64"
)

// Two checksums are kept of every block. CRC-32C is what the SSD tier stores and
// compares: the processor computes it at the speed of memory. CRC-64/XZ is what
// the object store says about the whole object; those of the blocks combine into
// it, so that blocks may arrive in any order.

var (
	crc32cTable = crc32.MakeTable(crc32.Castagnoli)
	crc64Table  = crc64.MakeTable(crc64.ECMA)

	// crc64Block multiplies by x^(8·blockSize): it moves a checksum over one block.
	crc64Block = crc64Power(8 * blockSize)

	// crc64Segment moves it over one segment.
	crc64Segment = crc64Power(8 * segmentSize)
)

// crc32c returns the CRC-32C of p.
func crc32c(p []byte) uint32 { return crc32.Checksum(p, crc32cTable) }

// crc32Update returns the CRC-32C of what crc is that of, followed by p.
func crc32Update(crc uint32, p []byte) uint32 { return crc32.Update(crc, crc32cTable, p) }

// crc64Checksum returns the CRC-64/XZ of p.
func crc64Checksum(p []byte) uint64 {
	n := len(p) &^ (crc64FoldBytes - 1)
	if n < 2*crc64FoldBytes || !haveFold {
		return crc64.Checksum(p, crc64Table)
	}
	// The folded part is congruent to 16 bytes, whose remainder the table takes,
	// and so does the tail. The table's Update inverts before and after, the
	// polynomial arithmetic does not.
	var rest [16]byte
	lo, hi := fold(p[:n], ^uint64(0))
	binary.LittleEndian.PutUint64(rest[:8], lo)
	binary.LittleEndian.PutUint64(rest[8:], hi)
	crc := crc64.Update(^uint64(0), crc64Table, rest[:])
	return crc64.Update(crc, crc64Table, p[n:])
}

// crc64Combine returns the checksum of a followed by b, from their checksums and
// the length of b.
func crc64Combine(a, b uint64, lenB int64) uint64 {
	if lenB == blockSize {
		return crc64Multiply(a, crc64Block) ^ b
	}
	return crc64Multiply(a, crc64Power(8*uint64(lenB))) ^ b
}

// crc64Multiply returns a·b modulo the polynomial. Polynomials are reflected:
// bit 63 is the coefficient of x^0.
func crc64Multiply(a, b uint64) uint64 {
	var r uint64
	for ; a != 0; a <<= 1 {
		r ^= b & -(a >> 63)
		b = b>>1 ^ crc64.ECMA&-(b&1)
	}
	return r
}

// crc64Power returns x^n modulo the polynomial.
func crc64Power(n uint64) uint64 {
	r, square := uint64(1)<<63, uint64(1)<<62
	for ; n != 0; n >>= 1 {
		if n&1 != 0 {
			r = crc64Multiply(r, square)
		}
		square = crc64Multiply(square, square)
	}
	return r
}
