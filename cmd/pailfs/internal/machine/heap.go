package machine

import (
	"context"
	"math"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	// heapBase is what Go's runtime may take of the kernel however little is alive. Of the 150 MB
	// that a daemon promises to stay within beside its memory tier, some 22 are pages of its
	// program; the rest is for what is taken between two looks.
	heapBase = 112 << 20
	// heapSpare is what it may take beside twice what is alive, what lies unused between that, and the
	// stacks: its own tables.
	heapSpare = 32 << 20
	// heapLook is how often the limit follows what is alive.
	heapLook = time.Second
	// restLooks is over how many looks a daemon is busy or rests.
	restLooks = 10
	// busyBytes is what a busy daemon allocates in that time, or a part of what is alive: busyPart.
	busyBytes = 8 << 20
	busyPart  = 16
)

// Heap keeps what Go's runtime takes of the kernel near what is alive. The runtime gives memory
// back at its leisure, with a hundredth of a processor: where processors are short, what a peak
// took stays for minutes, and the next peak comes on top of it. Beyond a limit it gives memory back
// before it takes more. A fixed limit would have it collect all the time once so much is alive;
// this one is always well beyond what the collector lets pile up.
type Heap struct {
	ceiling int64
	limited bool
	// chosen says that GOGC is set: then the limit is the ceiling, for what is alive does not say how
	// much may pile up.
	chosen  bool
	current int64 // the limit that is set
	// looks are those of this stretch of restLooks, allocated is how much had been when it began.
	looks     int
	allocated uint64
	// peaked says that it was busy since memory was given back.
	peaked bool
}

// LimitHeap collects at half of growth, which costs little for a heap of some tens of megabytes
// and keeps the daemon near the size of its memory tier, whose buffers lie outside the heap. The
// limit never exceeds nine tenths of what the machine or control group has beside memory, the size
// of that tier in bytes, 0 for its default: the collector works harder before a control group
// kills. GOGC and GOMEMLIMIT, if set, win.
func LimitHeap(memory int64) *Heap {
	h := &Heap{ceiling: math.MaxInt64, limited: os.Getenv("GOMEMLIMIT") == "", chosen: os.Getenv("GOGC") != ""}
	if !h.chosen {
		debug.SetGCPercent(50)
	}
	if available, err := Memory(); err == nil {
		if memory == 0 {
			memory = available / 8 // as the cache chooses, or more
		}
		h.ceiling = max(available/10*9-memory, 256<<20)
	}
	h.look(heapNow())
	return h
}

// Run keeps it so until ctx ends.
func (h *Heap) Run(ctx context.Context) {
	tick := time.NewTicker(heapLook)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			h.look(heapNow())
		}
	}
}

// heapUse is what the runtime says of its memory, in bytes: what was alive on the heap when it last
// collected, what was ever allocated there, and what the limit counts too though no collection frees
// it: the stacks, and what is unused of the heap between what is alive. After a peak of small things
// of which some stay, that can be many times what is alive.
type heapUse struct{ live, allocated, stacks, unused uint64 }

func heapNow() heapUse {
	s := []metrics.Sample{
		{Name: "/gc/heap/live:bytes"},
		{Name: "/gc/heap/allocs:bytes"},
		{Name: "/memory/classes/heap/stacks:bytes"},
		{Name: "/memory/classes/heap/unused:bytes"},
	}
	metrics.Read(s)
	return heapUse{s[0].Value.Uint64(), s[1].Value.Uint64(), s[2].Value.Uint64(), s[3].Value.Uint64()}
}

// look lets the limit follow, and gives what a peak took back once the daemon rests.
func (h *Heap) look(now heapUse) {
	if h.limited {
		h.set(h.limit(now))
	}
	if h.rests(now) {
		debug.FreeOSMemory()
	}
}

// limit returns what the runtime may take with so much alive.
func (h *Heap) limit(now heapUse) int64 {
	if h.chosen {
		return h.ceiling
	}
	return min(h.ceiling, max(heapBase, 2*int64(now.live)+int64(now.stacks)+int64(now.unused)+heapSpare))
}

// set stops all goroutines for a moment, so what is as it was is left alone.
func (h *Heap) set(limit int64) {
	if limit != h.current {
		h.current = limit
		debug.SetMemoryLimit(limit)
	}
}

// rests reports whether the daemon has come to rest: once after each time that it was busy.
func (h *Heap) rests(now heapUse) bool {
	if h.looks++; h.looks < restLooks {
		return false
	}
	busy := now.allocated-h.allocated >= max(busyBytes, now.live/busyPart)
	h.looks, h.allocated = 0, now.allocated
	rests := h.peaked && !busy
	h.peaked = busy
	return rests
}
