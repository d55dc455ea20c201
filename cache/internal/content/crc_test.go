package content

import (
	"math/rand/v2"
	"testing"

	"github.com/pailfs/pailfs/oss"
)

func TestCRC64CombineEqualsTheWhole(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 5))
	data := make([]byte, 3*BlockSize)
	_, _ = rand.NewChaCha8([32]byte{6}).Read(data) // never fails
	for range 500 {
		a := rng.IntN(len(data) + 1)
		b := a + rng.IntN(len(data)-a+1)
		if rng.IntN(3) == 0 && a+BlockSize <= len(data) {
			b = a + BlockSize
		}
		got := CombineCRC64(oss.CRC64(data[:a]), oss.CRC64(data[a:b]), int64(b-a))
		if want := oss.CRC64(data[:b]); got != want {
			t.Fatalf("%d and %d bytes: %#x, want %#x", a, b-a, got, want)
		}
	}
}

func BenchmarkCRC32C(b *testing.B) {
	p := make([]byte, BlockSize)
	b.SetBytes(int64(len(p)))
	for b.Loop() {
		CRC32C(p)
	}
}

func BenchmarkCRC64Combine(b *testing.B) {
	for b.Loop() {
		CombineCRC64(0x123456789abcdef, 0xfedcba987654321, BlockSize)
	}
}
