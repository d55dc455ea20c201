package cache

import (
	"hash/crc64"
	"math/rand/v2"
	"testing"
)

func TestCRC64ChecksumEqualsTheTable(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	data := randomBytes(3, 200_000)
	for range 3000 {
		a := rng.IntN(len(data))
		n := rng.IntN(min(len(data)-a, 1<<(1+rng.IntN(17))) + 1)
		p := data[a : a+n]
		if got, want := crc64Checksum(p), crc64.Checksum(p, crc64Table); got != want {
			t.Fatalf("%d bytes at %d: %#x, want %#x", n, a, got, want)
		}
	}
	// The check value of CRC-64/XZ.
	if got := crc64Checksum([]byte("123456789")); got != 0x995DC9BBDF1939FA {
		t.Fatalf("check value %#x", got)
	}
}

func TestCRC64CombineEqualsTheWhole(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 5))
	data := randomBytes(6, 3*blockSize)
	for range 500 {
		a := rng.IntN(len(data) + 1)
		b := a + rng.IntN(len(data)-a+1)
		if rng.IntN(3) == 0 && a+blockSize <= len(data) {
			b = a + blockSize
		}
		got := crc64Combine(crc64Checksum(data[:a]), crc64Checksum(data[a:b]), int64(b-a))
		if want := crc64Checksum(data[:b]); got != want {
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

func BenchmarkCRC64(b *testing.B) {
	p := randomBytes(1, blockSize)
	for _, c := range []struct {
		name string
		sum  func([]byte) uint64
	}{
		{"impl=fold", crc64Checksum},
		{"impl=table", func(p []byte) uint64 { return crc64.Checksum(p, crc64Table) }},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.SetBytes(int64(len(p)))
			for b.Loop() {
				c.sum(p)
			}
		})
	}
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
