package store

import "hash/crc64"

// crcTable is the polynomial of x-oss-hash-crc64ecma.
var crcTable = crc64.MakeTable(crc64.ECMA)

// CombineCRC64 returns the CRC-64 of a followed by b from the CRC of each and
// the length of b.
//
// A CRC is the remainder of a polynomial over GF(2), so a followed by b is
// a·x^(8·len(b)) + b. Remainders are kept with the highest power in the lowest
// bit, as hash/crc64 does.
func CombineCRC64(a, b uint64, lenB int64) uint64 {
	const one, x = uint64(1) << 63, uint64(1) << 62
	shift := one
	square := mulMod(x, x) // x^2
	square = mulMod(square, square)
	square = mulMod(square, square) // x^8, one byte
	for n := uint64(lenB); n > 0; n >>= 1 {
		if n&1 == 1 {
			shift = mulMod(shift, square)
		}
		square = mulMod(square, square)
	}
	return mulMod(a, shift) ^ b
}

// mulMod multiplies two remainders.
func mulMod(a, b uint64) uint64 {
	var product uint64
	for bit := uint64(1) << 63; bit != 0; bit >>= 1 {
		if a&bit != 0 {
			product ^= b
		}
		carry := b & 1
		b >>= 1
		if carry != 0 {
			b ^= crc64.ECMA
		}
	}
	return product
}
