package oss

import (
	"hash/crc64"
	"io"
	"math/rand/v2"
	"testing"
)

func TestCRC64EqualsTheTable(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	data := randomContent(200_000)
	for range 3000 {
		a := rng.IntN(len(data))
		n := rng.IntN(min(len(data)-a, 1<<(1+rng.IntN(17))) + 1)
		p := data[a : a+n]
		want := crc64.Checksum(p, crcTable)
		if got := CRC64(p); got != want {
			t.Fatalf("%d bytes at %d: %#x, want %#x", n, a, got, want)
		}
		cut := rng.IntN(n + 1)
		if got := UpdateCRC64(CRC64(p[:cut]), p[cut:]); got != want {
			t.Fatalf("%d and %d bytes at %d: %#x, want %#x", cut, n-cut, a, got, want)
		}
		if got := CombineCRC64(CRC64(p[:cut]), CRC64(p[cut:]), int64(n-cut)); got != want {
			t.Fatalf("%d and %d bytes at %d, combined: %#x, want %#x", cut, n-cut, a, got, want)
		}
	}
	// The check value of CRC-64/XZ.
	if got := CRC64([]byte("123456789")); got != 0x995DC9BBDF1939FA {
		t.Fatalf("check value %#x", got)
	}
}

func TestCRC64WriterSumsUpWhatIsWritten(t *testing.T) {
	p := randomContent(100_000)
	var w CRC64Writer
	for off := 0; off < len(p); {
		n := min(len(p)-off, 1+off)
		if _, err := w.Write(p[off : off+n]); err != nil {
			t.Fatal(err)
		}
		off += n
	}
	if want := crc64.Checksum(p, crcTable); uint64(w) != want {
		t.Fatalf("%#x, want %#x", uint64(w), want)
	}
}

// randomContent returns n bytes, always the same.
func randomContent(n int) []byte {
	p := make([]byte, n)
	_, _ = io.ReadFull(rand.NewChaCha8([32]byte{1}), p)
	return p
}

func BenchmarkCRC64(b *testing.B) {
	p := randomContent(64 << 10)
	for _, c := range []struct {
		name string
		sum  func([]byte) uint64
	}{
		{"impl=fold", CRC64},
		{"impl=table", func(p []byte) uint64 { return crc64.Checksum(p, crcTable) }},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.SetBytes(int64(len(p)))
			for b.Loop() {
				c.sum(p)
			}
		})
	}
}
