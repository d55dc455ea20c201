package machine

import (
	"context"
	"math"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"testing"
	"testing/synctest"
	"time"
)

// heapOfATest leaves the collector as it was when the test ends.
func heapOfATest(t *testing.T) {
	t.Helper()
	percent, limit := debug.SetGCPercent(100), debug.SetMemoryLimit(-1)
	t.Cleanup(func() {
		debug.SetGCPercent(percent)
		debug.SetMemoryLimit(limit)
	})
	t.Setenv("GOGC", "")
	t.Setenv("GOMEMLIMIT", "")
}

func TestTheLimitFollowsWhatIsAlive(t *testing.T) {
	for _, c := range []struct{ ceiling, live, stacks, unused, want int64 }{
		{math.MaxInt64, 0, 0, 0, 112 << 20},
		{math.MaxInt64, 40 << 20, 0, 0, 112 << 20},
		{math.MaxInt64, 100 << 20, 0, 0, 232 << 20},
		{math.MaxInt64, 8 << 30, 0, 0, 16<<30 + 32<<20},
		{math.MaxInt64, 10 << 20, 200 << 20, 0, 252 << 20},
		{math.MaxInt64, 10 << 20, 0, 300 << 20, 352 << 20},
		{256 << 20, 200 << 20, 0, 0, 256 << 20},
	} {
		h := Heap{ceiling: c.ceiling}
		if got := h.limit(heapUse{live: uint64(c.live), stacks: uint64(c.stacks), unused: uint64(c.unused)}); got != c.want {
			t.Errorf("with %d MiB alive, %d of stacks, %d unused, at most %d: %d MiB, want %d", c.live>>20, c.stacks>>20, c.unused>>20, c.ceiling>>20, got>>20, c.want>>20)
		}
	}
}

// What a peak of small things leaves is a heap of holes, which no collection shrinks: a limit below its
// size would have it collected without a pause.
func TestAHeapOfHolesIsNotCollectedAllTheTime(t *testing.T) {
	heapOfATest(t)
	debug.SetGCPercent(50)
	peak := make([]*[1 << 10]byte, 256<<10) // eight to each 8 KiB that the runtime cuts up
	for i := range peak {
		peak[i] = new([1 << 10]byte)
	}
	for i := range peak {
		if i%8 != 0 {
			peak[i] = nil
		}
	}
	runtime.GC()
	now := heapNow()
	if now.live > 40<<20 || now.unused < 200<<20 {
		t.Fatalf("%d MiB are alive, %d unused", now.live>>20, now.unused>>20)
	}
	h := Heap{ceiling: math.MaxInt64, limited: true}
	h.look(now)
	goal := []metrics.Sample{{Name: "/gc/heap/goal:bytes"}}
	metrics.Read(goal)
	runtime.KeepAlive(peak)
	if got := goal[0].Value.Uint64(); got < now.live/4*5 {
		t.Errorf("with %d MiB alive and %d unused, limited to %d, it is collected at %d", now.live>>20, now.unused>>20, h.current>>20, got>>20)
	}
}

func TestADaemonRestsOnceAfterItWasBusy(t *testing.T) {
	const mib = 1 << 20
	for name, c := range map[string]struct {
		live      uint64
		allocated []uint64 // in each stretch
		rests     []bool
	}{
		"after a peak":               {20 * mib, []uint64{90 * mib, mib, mib, 0}, []bool{false, true, false, false}},
		"after each peak":            {20 * mib, []uint64{90 * mib, mib, 8 * mib, mib}, []bool{false, true, false, true}},
		"not between peaks":          {20 * mib, []uint64{90 * mib, 90 * mib, 90 * mib}, []bool{false, false, false}},
		"not if it was never busy":   {20 * mib, []uint64{7 * mib, mib, 7 * mib}, []bool{false, false, false}},
		"a large one is busy by far": {1600 * mib, []uint64{99 * mib, mib, 100 * mib, mib}, []bool{false, false, false, true}},
	} {
		var h Heap
		now := heapUse{live: c.live}
		for i, allocated := range c.allocated {
			now.allocated += allocated
			var got bool
			for range restLooks {
				got = h.rests(now)
			}
			if got != c.rests[i] {
				t.Errorf("%s, stretch %d: rests %t", name, i, got)
			}
		}
	}
}

// What a peak took goes back to the kernel within half a minute of rest, of which the collector, which
// comes every two minutes, knows nothing; and the limit follows what is alive.
func TestWhatAPeakTookIsGivenBackAtRest(t *testing.T) {
	heapOfATest(t)
	synctest.Test(t, func(t *testing.T) {
		h := LimitHeap(0)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			h.Run(ctx)
		}()
		peak := make([]byte, 256<<20)
		clear(peak)
		runtime.GC() // it is alive
		time.Sleep(2 * time.Second)
		limit, before := debug.SetMemoryLimit(-1), heldByHeap()
		runtime.KeepAlive(peak)
		time.Sleep(30 * time.Second)
		after := heldByHeap()
		stop()
		<-ended
		if want := int64(2*256<<20 + 32<<20); limit < want || limit > want+64<<20 {
			t.Errorf("with 256 MiB alive the limit is %d MiB", limit>>20)
		}
		if before < 256<<20 || after > before-250<<20 {
			t.Errorf("%d MiB before, %d MiB after half a minute of rest", before>>20, after>>20)
		}
		if limit := debug.SetMemoryLimit(-1); limit > 150<<20 {
			t.Errorf("the limit is %d MiB then", limit>>20)
		}
	})
}

func TestAChosenLimitStays(t *testing.T) {
	heapOfATest(t)
	t.Setenv("GOGC", "77")
	t.Setenv("GOMEMLIMIT", "3GiB")
	debug.SetGCPercent(77)
	debug.SetMemoryLimit(3 << 30)
	LimitHeap(0).look(heapNow())
	if limit := debug.SetMemoryLimit(-1); limit != 3<<30 {
		t.Errorf("the limit is %d", limit)
	}
	if percent := debug.SetGCPercent(100); percent != 77 {
		t.Errorf("GOGC is %d", percent)
	}
}

// Who chose how much piles up gets that much, up to the ceiling.
func TestAChosenGrowthIsNotLimitedByWhatIsAlive(t *testing.T) {
	heapOfATest(t)
	t.Setenv("GOGC", "400")
	h := LimitHeap(0)
	for _, live := range []uint64{0, 1 << 30} {
		if got := h.limit(heapUse{live: live}); got != h.ceiling {
			t.Errorf("with %d MiB alive the limit is %d MiB, want %d", live>>20, got>>20, h.ceiling>>20)
		}
	}
}

// heldByHeap is how much of the kernel's memory the runtime holds, in bytes.
func heldByHeap() int64 {
	s := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(s)
	return int64(s[0].Value.Uint64() - s[1].Value.Uint64())
}
