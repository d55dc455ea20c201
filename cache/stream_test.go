package cache

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pailfs/pailfs/oss"
)

// The tests in this file run on a clock of their own (testing/synctest): copying
// costs no time, waiting for the link does, and the figures are the same on every
// machine and in every run.

// bareClient reads an object with parallel ranged GETs and returns how long that
// took: what the cache is compared with.
func bareClient(s *patternStore, obj oss.Object, parallel int, size int64) time.Duration {
	begin := time.Now()
	var next atomic.Int64
	var group sync.WaitGroup
	for range parallel {
		group.Go(func() {
			buf := make([]byte, size)
			for {
				off := next.Add(size) - size
				if off >= obj.Size {
					return
				}
				_, _ = s.ReadRange(context.Background(), oss.RangeRequest{Object: obj, Offset: off, Buffer: buf[:min(size, obj.Size-off)]})
			}
		})
	}
	group.Wait()
	return time.Since(begin)
}

// sequential reads the object from the beginning to the end in views of n bytes,
// with as many under way as the kernel's readahead has.
func sequential(t *testing.T, h *Handle, n, depth int) time.Duration {
	t.Helper()
	begin := time.Now()
	var next atomic.Int64
	var group sync.WaitGroup
	for range depth {
		group.Go(func() {
			for {
				off := next.Add(int64(n)) - int64(n)
				if off >= h.Object().Size {
					return
				}
				v, err := h.View(context.Background(), off, n)
				if err != nil {
					t.Error(err)
					return
				}
				v.Release()
			}
		})
	}
	group.Wait()
	return time.Since(begin)
}

func TestColdStreamIsAsFastAsABareClient(t *testing.T) {
	const segments = 128 // 1 GiB
	for _, c := range []struct {
		name        string
		view, depth int
		memory      int64
		least       float64
	}{
		{"one request at a time of 128 KiB", 128 << 10, 1, 1 << 30, 0.9},
		{"kernel readahead of 16 requests of 1 MiB", 1 << 20, 16, 1 << 30, 0.93},
		{"kernel readahead, 256 MiB of memory", 1 << 20, 16, 256 << 20, 0.9},
		{"kernel readahead, least memory", 1 << 20, 16, minMemory, 0.5},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newPatternStore()
				s.link, s.step = newFakeLink(), 64<<10
				best := time.Hour
				for _, p := range []int{16, 64} {
					best = min(best, bareClient(s, s.object("bare", segments), p, int64(segments)*segmentSize/int64(p)))
				}
				s.requests.Store(0)
				cache, err := Open(Config{Memory: c.memory}, s, s, nil, nil)
				if err != nil {
					t.Fatal(err)
				}
				h, err := cache.Open(s.object("cold", segments))
				if err != nil {
					t.Fatal(err)
				}
				took := sequential(t, h, c.view, c.depth)
				ratio := best.Seconds() / took.Seconds()
				t.Logf("bare %v, cache %v in %d requests: %.3f", best, took, s.requests.Load(), ratio)
				if ratio < c.least {
					t.Errorf("%.3f of a bare client, want %.2f", ratio, c.least)
				}
				if err := h.Close(); err != nil {
					t.Error(err)
				}
				if err := cache.Close(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}
