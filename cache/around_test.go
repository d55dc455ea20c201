package cache

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pailfs/pailfs/cache/internal/content"
	"github.com/pailfs/pailfs/oss"
)

// randomly reads a page at n random places within the first bytes of an object, one after
// another over a link, and returns what was fetched once nothing is in flight, how many
// requests that took and for how long the reads waited.
func randomly(t *testing.T, memory int64, segments int, within int64, n int) (stats Stats, requests int64, waited time.Duration) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := newPatternStore()
		s.link, s.step = newFakeLink(), 16<<10
		c, err := Open(Config{Memory: memory}, s, s, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		h, err := c.Open(s.object("object", segments))
		if err != nil {
			t.Fatal(err)
		}
		rng := rand.New(rand.NewPCG(3, 4))
		for range n {
			v, err := h.View(context.Background(), rng.Int64N(within)&^4095, 4096)
			if err != nil {
				t.Fatal(err)
			}
			v.Release()
		}
		waited = time.Duration(h.object.waited.Load())
		waitUntil(t, "nothing is in flight", func() bool { return c.Stats().Fetched.InFlight == 0 })
		stats, requests = c.Stats(), s.requests.Load()
		if err := errors.Join(h.Close(), c.Close()); err != nil {
			t.Error(err)
		}
	})
	return stats, requests, waited
}

func TestFewRandomReadsFetchTheirBlocksAlone(t *testing.T) {
	for n := 1; n <= aroundAfter; n++ {
		stats, requests, _ := randomly(t, 1<<30, 32, 32*content.SegmentSize, n)
		if got := stats.Fetched; requests != int64(n) || got.DemandBytes != int64(n)*content.BlockSize || got.AroundBytes != 0 {
			t.Errorf("%d reads: %d requests, %+v; want a block each", n, requests, got)
		}
	}
}

func TestTenRandomReadsFetchLittle(t *testing.T) {
	stats, _, _ := randomly(t, 1<<30, 32, 32*content.SegmentSize, 10)
	if got := stats.Fetched; got.AroundBytes == 0 || got.AroundBytes > aroundOfTen || got.DemandBytes > 10*content.BlockSize {
		t.Errorf("%+v, want at most %d bytes around ten blocks", got, aroundOfTen)
	}
}

// Dense reads bring the whole object, once, and are few to wait for it.
func TestManyRandomReadsFetchTheObjectOnce(t *testing.T) {
	const segments, reads = 32, 500
	stats, requests, waited := randomly(t, 1<<30, segments, segments*content.SegmentSize, reads)
	got := stats.Fetched
	t.Logf("%d requests, %+v, %d reads waited %v", requests, got, stats.Reads.OSS, waited)
	if sum := got.DemandBytes + got.AroundBytes; sum > segments*content.SegmentSize {
		t.Errorf("%d bytes were fetched of an object of %d", sum, segments*content.SegmentSize)
	}
	if alone := got.DemandBytes / content.BlockSize; alone > 40 {
		t.Errorf("%d of %d reads were fetched for, want at most 40", alone, reads)
	}
	if most := int64(40 + 2*segments*content.SegmentSize/aroundRange); requests > most {
		t.Errorf("%d requests, want at most %d", requests, most)
	}
}

// What is read in one place of a large object brings in that place.
func TestRandomReadsInOnePlaceFetchThatPlace(t *testing.T) {
	const within = 4 * content.SegmentSize
	stats, _, _ := randomly(t, 1<<30, 32, within, 14)
	if got := stats.Fetched.AroundBytes; got == 0 || got > within {
		t.Errorf("%d bytes were fetched around reads of %d, want no more than that", got, within)
	}
}

// Reads that lie far apart bring in nothing.
func TestSparseRandomReadsFetchTheirBlocksAlone(t *testing.T) {
	const reads = 100
	stats, requests, _ := randomly(t, 1<<30, 1<<17, 1<<40, reads)
	if got := stats.Fetched; requests != reads || got.AroundBytes != 0 {
		t.Errorf("%d requests, %+v; want one a read and nothing more", requests, got)
	}
}

// What nothing can keep is not fetched.
func TestNothingIsFetchedAroundReadsThatCannotBeKept(t *testing.T) {
	const reads = 60
	stats, _, _ := randomly(t, minMemory, 32, 32*content.SegmentSize, reads)
	if got := stats.Fetched; got.AroundBytes != 0 {
		t.Errorf("%+v: more was fetched than memory keeps", got)
	}
}

// A reader who goes away has cost the link no more time than it has cost him, beside what
// one request brings.
func TestWhatIsFetchedAroundReadsTakesNoLongerThanTheyWaited(t *testing.T) {
	for n := 5; n < 60; n += 6 {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			stats, _, waited := randomly(t, 1<<30, 32, 32*content.SegmentSize, n)
			// The link brings 600 MB/s at most.
			if took := time.Duration(float64(stats.Fetched.AroundBytes) / 600e6 * 1e9); took > waited {
				t.Errorf("%d bytes took %v, the reads had waited %v", stats.Fetched.AroundBytes, took, waited)
			}
		})
	}
}

func TestLinkIsUsedOnceByWhatStreamsTogether(t *testing.T) {
	var l linkUse
	l.begin(10 * time.Millisecond)
	l.begin(20 * time.Millisecond)
	l.end(30*time.Millisecond, 1000)
	l.end(50*time.Millisecond, 1000)
	if got := l.after(time.Hour, 0); got != 40*time.Millisecond {
		t.Errorf("%v were used, want 40 ms", got)
	}
	if got := l.after(time.Hour, 500); got != 50*time.Millisecond {
		t.Errorf("%v will have been used, want 50 ms", got)
	}
}

// On SSD, too, nothing is fetched twice, and every byte is right.
func TestRandomReadsOnSSDFetchNothingTwice(t *testing.T) {
	s := newFakeStore()
	obj := s.put("a", 40<<20+777)
	s.set(func() {
		s.mu.gate = func(context.Context, oss.RangeRequest, int) error { time.Sleep(time.Millisecond); return nil }
		s.mu.step = content.BlockSize
	})
	c := openCache(t, s, Config{Dir: t.TempDir()})
	h := openObject(t, c, obj)
	rng := rand.New(rand.NewPCG(5, 6))
	for range 200 {
		checkRead(t, s, h, rng.Int64N(obj.Size-4096), 4096)
	}
	waitUntil(t, "nothing is in flight", func() bool { return c.Stats().Fetched.InFlight == 0 })
	if stats := c.Stats(); s.asked() > obj.Size && stats.SSD.DroppedBytes == 0 {
		t.Errorf("%d bytes were asked for of %d, %+v", s.asked(), obj.Size, stats)
	}
}
