package cache

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pailfs/pailfs/cache/internal/content"
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
		short       bool // copying so much takes long under the race detector
	}{
		{"one request at a time of 128 KiB", 128 << 10, 1, 1 << 30, 0.9, false},
		{"kernel readahead of 16 requests of 1 MiB", 1 << 20, 16, 1 << 30, 0.93, false},
		{"kernel readahead, 256 MiB of memory", 1 << 20, 16, 256 << 20, 0.9, true},
		{"kernel readahead, least memory", 1 << 20, 16, minMemory, 0.5, true},
	} {
		if testing.Short() && !c.short {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newPatternStore()
				s.link, s.step = newFakeLink(), 64<<10
				best := time.Hour
				for _, p := range []int{16, 64} {
					best = min(best, bareClient(s, s.object("bare", segments), p, int64(segments)*content.SegmentSize/int64(p)))
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

func TestColdRandomReadIsAsFastAsABareGet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newPatternStore()
		s.link, s.step = newFakeLink(), 16<<10
		obj := s.object("object", 128)
		rng := rand.New(rand.NewPCG(1, 2))
		const reads = 300
		median := func(read func(off int64)) time.Duration {
			var took []time.Duration
			for range reads {
				off := rng.Int64N(obj.Size-8192) &^ 4095
				begin := time.Now()
				read(off)
				took = append(took, time.Since(begin))
			}
			slices.Sort(took)
			return took[reads/2]
		}
		bare := median(func(off int64) {
			_, _ = s.ReadRange(context.Background(), oss.RangeRequest{Object: obj, Offset: off, Buffer: make([]byte, 4096)})
		})
		cache, err := Open(Config{Memory: 256 << 20}, s, s, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		h, err := cache.Open(obj)
		if err != nil {
			t.Fatal(err)
		}
		cached := median(func(off int64) {
			v, err := h.View(context.Background(), off, 4096)
			if err != nil {
				t.Error(err)
				return
			}
			v.Release()
		})
		t.Logf("bare %v, cache %v: %.3f", bare, cached, cached.Seconds()/bare.Seconds())
		if cached > bare*115/100 {
			t.Errorf("%v, more than 1.15 times the %v of a bare GET", cached, bare)
		}
		if err := errors.Join(h.Close(), cache.Close()); err != nil {
			t.Error(err)
		}
	})
}

// streamed reads through a cache, over a link, and returns what was fetched by
// then.
func streamed(t *testing.T, read func(h *Handle, view func(off int64, n int))) (stats FetchStats) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := newPatternStore()
		s.link, s.step = newFakeLink(), 64<<10
		c, err := Open(Config{Memory: 1 << 30}, s, s, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		h, err := c.Open(s.object("object", 64))
		if err != nil {
			t.Fatal(err)
		}
		read(h, func(off int64, n int) {
			v, err := h.View(context.Background(), off, n)
			if err != nil {
				t.Error(err)
				return
			}
			v.Release()
		})
		waitUntil(t, "nothing is in flight", func() bool { return c.Stats().Fetched.InFlight == 0 })
		stats = c.Stats().Fetched
		if err := errors.Join(h.Close(), c.Close()); err != nil {
			t.Error(err)
		}
	})
	return stats
}

func TestReadaheadKnowsAStreamFromRandomReads(t *testing.T) {
	const size = 64 * content.SegmentSize
	for name, c := range map[string]struct {
		read        func(h *Handle, view func(off int64, n int))
		least, most int64 // bytes fetched ahead
	}{
		"random reads of 4 KiB": {func(_ *Handle, view func(int64, int)) {
			rng := rand.New(rand.NewPCG(1, 2))
			for range 2000 {
				view(rng.Int64N(size-4096), 4096)
			}
		}, 0, 0},
		"random records of 115 KB": {func(_ *Handle, view func(int64, int)) {
			rng := rand.New(rand.NewPCG(1, 2))
			for range 300 {
				view(rng.Int64N(size-115_000), 115_000)
			}
		}, 0, 64 << 20}, // some lie beside one another by chance
		"the header alone": {func(_ *Handle, view func(int64, int)) {
			view(0, 16<<10)
			view(16<<10, 64<<10)
		}, 0, 0},
		"the same part again and again": {func(_ *Handle, view func(int64, int)) {
			for range 100 {
				view(50<<20, 200_000)
			}
		}, 0, 0},
		"every eighth MiB": {func(_ *Handle, view func(int64, int)) {
			for i := range int64(size / content.SegmentSize) {
				view(i*content.SegmentSize, 1<<20)
			}
		}, 0, 0},
		"in order": {func(_ *Handle, view func(int64, int)) {
			for i := range int64(8) {
				view(i<<20, 1<<20)
			}
		}, 60 << 20, 300 << 20},
		"small reads in order": {func(_ *Handle, view func(int64, int)) {
			for off := int64(30 << 20); off < 34<<20; off += 4096 {
				view(off, 4096)
			}
		}, 4 << 20, 20 << 20},
		"as the kernel shuffles them": {func(_ *Handle, view func(int64, int)) {
			for _, i := range []int64{3, 1, 2, 0, 5, 4, 7, 6, 11, 9, 8, 10} {
				view(i<<20, 1<<20)
			}
		}, 50 << 20, 300 << 20},
		"backwards": {func(_ *Handle, view func(int64, int)) {
			for i := int64(40); i > 20; i-- {
				view(i*content.SegmentSize, 128<<10)
			}
		}, 0, 0},
		"one record in the middle": {func(_ *Handle, view func(int64, int)) {
			for i := range int64(10) {
				view(100<<20+i*128<<10, 128<<10)
			}
		}, 512 << 10, 6 << 20},
	} {
		t.Run(name, func(t *testing.T) {
			got := streamed(t, c.read).ReadaheadBytes
			if got < c.least || got > c.most {
				t.Errorf("%d bytes were fetched ahead, want %d to %d", got, c.least, c.most)
			}
		})
	}
}

func TestEveryStreamOfAnObjectIsReadAhead(t *testing.T) {
	const streams = 8
	stats := streamed(t, func(_ *Handle, view func(int64, int)) {
		for step := range int64(40) {
			for i := range int64(streams) {
				view(i*8*content.SegmentSize+step*128<<10, 128<<10)
			}
		}
	})
	// Each waited for a few reads only, until it was known.
	if stats.DemandBytes > streams*3<<20 {
		t.Errorf("%d bytes were fetched only when somebody waited for them", stats.DemandBytes)
	}
	if stats.ReadaheadBytes < streams*3<<20 {
		t.Errorf("%d bytes were read ahead of %d streams", stats.ReadaheadBytes, streams)
	}
}

func TestSecondPassIsReadAheadToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newPatternStore()
		s.link, s.step = newFakeLink(), 64<<10
		c, err := Open(Config{Memory: minMemory}, s, s, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		h, err := c.Open(s.object("object", 64))
		if err != nil {
			t.Fatal(err)
		}
		for pass := range 2 {
			before := c.Stats().Fetched
			sequential(t, h, 1<<20, 1)
			after := c.Stats().Fetched
			if ahead := after.ReadaheadBytes - before.ReadaheadBytes; ahead < 256<<20 {
				t.Errorf("pass %d: %d bytes were read ahead of 512 MiB", pass, ahead)
			}
		}
		if err := errors.Join(h.Close(), c.Close()); err != nil {
			t.Error(err)
		}
	})
}
