package cache

import (
	"context"
	"errors"
	"io"
	"testing"

	"github.com/pailfs/pailfs/cache/internal/content"
)

func TestReadsOfEverySizeReturnTheBytes(t *testing.T) {
	s := newFakeStore()
	c := openCache(t, s, Config{Dir: t.TempDir()})
	for _, size := range []int{0, 1, 4095, content.BlockSize, content.BlockSize + 1, content.SmallObject, content.SmallObject + 1, 5 << 20, content.SegmentSize, 2*content.SegmentSize + 12345} {
		h := openObject(t, c, s.put("object", size))
		for _, off := range []int64{0, 1, int64(size) / 2, int64(size) - 1, int64(size), int64(size) + 7} {
			if off < 0 {
				continue
			}
			for _, n := range []int{0, 1, 4096, 100_000, 1 << 20} {
				checkRead(t, s, h, off, n)
			}
		}
	}
}

func TestReadAtTheEndReturnsEOF(t *testing.T) {
	s := newFakeStore()
	c := openCache(t, s, Config{})
	h := openObject(t, c, s.put("object", 100))
	p := make([]byte, 60)
	for _, want := range []struct {
		off int64
		n   int
		err error
	}{{0, 60, nil}, {40, 60, nil}, {41, 59, io.EOF}, {100, 0, io.EOF}, {1000, 0, io.EOF}} {
		if n, err := h.ReadAt(context.Background(), p, want.off); n != want.n || !errors.Is(err, want.err) {
			t.Errorf("at %d: %d, %v; want %d, %v", want.off, n, err, want.n, want.err)
		}
	}
}

func TestSecondReadMakesNoRequest(t *testing.T) {
	s := newFakeStore()
	c := openCache(t, s, Config{})
	h := openObject(t, c, s.put("object", 300_000))
	checkRead(t, s, h, 0, 300_000)
	if n := s.requests(); n != 1 {
		t.Fatalf("%d requests, want 1", n)
	}
	checkRead(t, s, h, 100_000, 50_000)
	if n := s.requests(); n != 1 {
		t.Fatalf("%d requests after the second read, want 1", n)
	}
}
