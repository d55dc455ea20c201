package oss

import "golang.org/x/sys/cpu"

// crc64FoldBytes is what one step of the fold takes: four lanes of 16 bytes.
const crc64FoldBytes = 64

// haveFold says that the processor multiplies polynomials.
var haveFold = cpu.X86.HasPCLMULQDQ

// foldConstants move a lane, the halves apart, over 64 bytes and over 16. A
// carry-less product of reflected operands comes out multiplied by x, hence the
// exponents less one.
var foldConstants = [4]uint64{
	crc64Power(512 + 64 - 1), crc64Power(512 - 1),
	crc64Power(128 + 64 - 1), crc64Power(128 - 1),
}

// fold reduces p to 16 bytes, lo and hi, that have the same remainder modulo the
// polynomial. state is xored into the first eight bytes. len(p) must be a
// positive multiple of crc64FoldBytes.
func fold(p []byte, state uint64) (lo, hi uint64) {
	return foldPCLMUL(&p[0], len(p), state, &foldConstants)
}

//go:noescape
func foldPCLMUL(p *byte, n int, state uint64, k *[4]uint64) (lo, hi uint64)
