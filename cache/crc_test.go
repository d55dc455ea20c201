package cache

import (
	"math/rand/v2"
	"testing"

	"github.com/pailfs/pailfs/oss"
)

func TestCRC64CombineEqualsTheWhole(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 5))
	data := randomBytes(6, 3*blockSize)
	for range 500 {
		a := rng.IntN(len(data) + 1)
		b := a + rng.IntN(len(data)-a+1)
		if rng.IntN(3) == 0 && a+blockSize <= len(data) {
			b = a + blockSize
		}
		got := crc64Combine(oss.CRC64(data[:a]), oss.CRC64(data[a:b]), int64(b-a))
		if want := oss.CRC64(data[:b]); got != want {
			t.Fatalf("%d and %d bytes: %#x, want %#x", a, b-a, got, want)
		}
	}
}

// randomBytes returns n bytes that seed determines.
func randomBytes(seed uint64, n int) []byte {
	rng := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8), byte(seed >> 16), byte(seed >> 24), 1})
	p := make([]byte, n)
	_, _ = rng.Read(p)
	return p
}

func BenchmarkCRC32C(b *testing.B) {
	p := randomBytes(1, blockSize)
	b.SetBytes(int64(len(p)))
	for b.Loop() {
		crc32c(p)
	}
}

func BenchmarkCRC64Combine(b *testing.B) {
	for b.Loop() {
		crc64Combine(0x123456789abcdef, 0xfedcba987654321, blockSize)
	}
}
