package oss

import (
	"encoding/binary"
	"hash/crc64"
)

// crcTable is the polynomial of x-oss-hash-crc64ecma.
var crcTable = crc64.MakeTable(crc64.ECMA)

// CRC64 returns the CRC-64/XZ of p, which is what the object store says of an
// object.
func CRC64(p []byte) uint64 { return UpdateCRC64(0, p) }

// UpdateCRC64 returns the CRC-64/XZ of a content whose first part has crc, followed by
// p.
func UpdateCRC64(crc uint64, p []byte) uint64 {
	n := len(p) &^ (crc64FoldBytes - 1)
	if n < 2*crc64FoldBytes || !haveFold {
		return crc64.Update(crc, crcTable, p)
	}
	// The folded part is congruent to 16 bytes, whose remainder the table takes,
	// and so does the tail. The table's Update inverts before and after, the
	// polynomial arithmetic does not.
	var rest [16]byte
	lo, hi := fold(p[:n], ^crc)
	binary.LittleEndian.PutUint64(rest[:8], lo)
	binary.LittleEndian.PutUint64(rest[8:], hi)
	crc = crc64.Update(^uint64(0), crcTable, rest[:])
	return crc64.Update(crc, crcTable, p[n:])
}

// CombineCRC64 returns the CRC-64/XZ of two contents one after the other, of which
// the second has size bytes.
func CombineCRC64(first, second uint64, size int64) uint64 {
	return ShiftOf(size).Of(first) ^ second
}

// CRC64Shift moves checksums over a number of bytes: that of two contents one after
// the other is Of(first) ^ second, where the shift is that of the second's length.
// It is worth keeping where many contents have one length.
type CRC64Shift uint64

// ShiftOf returns the shift over size bytes.
func ShiftOf(size int64) CRC64Shift { return CRC64Shift(crc64Power(8 * uint64(size))) }

// Of returns crc moved over the bytes of s.
func (s CRC64Shift) Of(crc uint64) uint64 { return crc64Multiply(crc, uint64(s)) }

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

// CRC64Writer is the CRC-64/XZ of what was written to it. The zero value is that of
// nothing.
type CRC64Writer uint64

// Write implements [io.Writer]. It never fails.
func (w *CRC64Writer) Write(p []byte) (int, error) {
	*w = CRC64Writer(UpdateCRC64(uint64(*w), p))
	return len(p), nil
}
