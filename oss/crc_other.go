//go:build !amd64

package oss

// crc64FoldBytes is 1 where nothing is folded.
const crc64FoldBytes = 1

// haveFold says that the table does all the work.
const haveFold = false

// fold is not called where haveFold is false.
func fold([]byte, uint64) (lo, hi uint64) { panic("oss: fold without the instruction") }
