//go:build !race

package cache

import (
	"context"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/pailfs/pailfs/oss"
)

// TestMemoryStaysWithinTheBudget reads much more than the budget, in several ways,
// and looks at what the kernel says. Under the race detector most of that would be
// the detector's own shadow of it.
func TestMemoryStaysWithinTheBudget(t *testing.T) {
	const memory = 256 << 20
	s := newPatternStore()
	c, err := Open(Config{Memory: memory, Dir: t.TempDir(), Size: 1 << 30, MinFreeBytes: 1, MinFreeInodes: 1}, s, s, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer closeCache(t, c)
	before := rss()
	var most int64
	segments := 256 * rounds(1) // 2 GiB
	read := func(key string, segments, view, readers int) {
		h, err := c.Open(s.object(key, segments))
		if err != nil {
			t.Fatal(err)
		}
		var next atomic.Int64
		var group sync.WaitGroup
		for range readers {
			group.Go(func() {
				for {
					off := next.Add(int64(view)) - int64(view)
					if off >= h.Object().Size {
						return
					}
					v, err := h.View(context.Background(), off, view)
					if err != nil {
						t.Error(err)
						return
					}
					v.Release()
					if off%(64<<20) == 0 {
						most = max(most, rss()) // one reader at a time comes by here, nearly
					}
				}
			})
		}
		group.Wait()
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	}
	read("stream", segments, 1<<20, 1)
	for i := range 200 {
		read(fmt.Sprint("file", i), 1, 128<<10, 2)
	}
	for i := range 5000 {
		obj := oss.Object{Key: fmt.Sprint("small", i), ETag: "E", Size: 115_000}
		h, err := c.Open(obj)
		if err != nil {
			t.Fatal(err)
		}
		v, err := h.View(context.Background(), 0, 128<<10)
		if err != nil {
			t.Fatal(err)
		}
		v.Release()
		_ = h.Close()
	}
	most = max(most, rss())
	t.Logf("%d MB before, at most %d MB, with a budget of %d MB", before>>20, most>>20, memory>>20)
	if most-before > memory+100<<20 {
		t.Errorf("the process grew by %d MB with a budget of %d MB", (most-before)>>20, memory>>20)
	}
}

// rss returns the resident memory of the process.
func rss() int64 {
	content, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	var total, resident int64
	_, _ = fmt.Sscan(string(content), &total, &resident)
	return resident * int64(os.Getpagesize())
}
