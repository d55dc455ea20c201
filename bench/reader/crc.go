package reader

import (
	"fmt"
	"hash/crc64"

	"github.com/pailfs/pailfs/bench/bare"
	"github.com/pailfs/pailfs/bench/dataset"
)

var ecma = crc64.MakeTable(crc64.ECMA)

// blockSum is the checksum of one block, and what the server said of the whole.
type blockSum struct {
	crc    uint64
	size   int64
	answer bare.Answer
}

func sumBlock(p []byte, a bare.Answer) blockSum {
	return blockSum{crc: crc64.Checksum(p, ecma), size: int64(len(p)), answer: a}
}

// checkCRC64 combines the blocks of f and compares the result with what the
// server says and, where it was worked out, with what was stored.
func checkCRC64(f *dataset.File, blocks []blockSum) error {
	whole := uint64(0)
	for i, b := range blocks {
		if i == 0 {
			whole = b.crc
		} else {
			whole = combine(whole, b.crc, b.size)
		}
		if !b.answer.HasCRC64 {
			return fmt.Errorf("check %q: the server names no CRC64", f.Name)
		}
	}
	for _, b := range blocks {
		if b.answer.CRC64 != whole {
			return fmt.Errorf("check %q: CRC64 is %016x, the server says %016x", f.Name, whole, b.answer.CRC64)
		}
	}
	if f.CRC64 != 0 && f.CRC64 != whole {
		return fmt.Errorf("check %q: CRC64 is %016x, %016x was stored", f.Name, whole, f.CRC64)
	}
	return nil
}

// combine returns the checksum of two pieces in a row, of which the second one
// is size bytes long. Appending a zero byte to a message multiplies its
// register by x^8 modulo the polynomial; the register after size zero bytes is
// worked out by squaring, and what the second piece contributes is added.
func combine(first, second uint64, size int64) uint64 {
	power := uint64(1) << 55 // x^8: bit 63 is x^0 in the reflected form
	result := uint64(1) << 63
	for n := size; n > 0; n >>= 1 {
		if n&1 != 0 {
			result = multiply(result, power)
		}
		power = multiply(power, power)
	}
	return multiply(first, result) ^ second
}

// multiply multiplies two polynomials modulo the ECMA polynomial, all in
// reflected form.
func multiply(a, b uint64) uint64 {
	product := uint64(0)
	for ; a != 0; a <<= 1 {
		if a&(1<<63) != 0 {
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
