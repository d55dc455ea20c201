package cache

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"github.com/pailfs/pailfs/cache/internal/content"
	"github.com/pailfs/pailfs/oss"
)

// outrunBySSD returns an object that SSD is said to have, and has not, whenever it is
// looked for: as if others dropped and brought it again each time.
func outrunBySSD(t *testing.T, s *fakeStore, size int) (*Cache, *Handle) {
	t.Helper()
	dir := t.TempDir()
	obj := s.put("object", size)
	warm(t, s, dir, obj)
	c := openCache(t, s, Config{Dir: dir})
	h := openObject(t, c, obj)
	c.ssd.load(h.object)
	h.object.mu.Lock()
	defer h.object.mu.Unlock()
	if h.object.mu.disk.file != nil || !h.object.mu.disk.readable() {
		t.Fatal("the object is not on SSD alone")
	}
	h.object.mu.disk.exists = false
	return c, h
}

func TestReadThatSSDOutrunsFetchesItself(t *testing.T) {
	for _, size := range []int{100_000, content.SmallObject, 9<<20 + 17} {
		s := newFakeStore()
		_, h := outrunBySSD(t, s, size)
		checkRead(t, s, h, 50_000, 20_000)
		checkRead(t, s, h, 0, min(size, MaxView))
		checkRead(t, s, h, int64(size)-1, 10)
		if s.requests() == 0 {
			t.Error("nothing was fetched")
		}
	}
}

func TestReadThatSSDOutrunsIsOfOneVersion(t *testing.T) {
	s := newFakeStore()
	_, h := outrunBySSD(t, s, 5<<20)
	s.put("object", 5<<20+1)
	if _, err := h.ReadAt(t.Context(), make([]byte, 10), 0); !errors.Is(err, oss.ErrChanged) {
		t.Errorf("got %v", err)
	}
	s = newFakeStore()
	_, h = outrunBySSD(t, s, 5<<20)
	s.corrupt("object", 4)
	if _, err := h.ReadAt(t.Context(), make([]byte, 10), 0); !errors.Is(err, oss.ErrCorrupted) {
		t.Errorf("content that is not that of before gave %v", err)
	}
}

func TestReadThatSSDOutrunsEndsWithItsReader(t *testing.T) {
	s := newFakeStore()
	c, h := outrunBySSD(t, s, 5<<20)
	waiting, release := gateStore(s, 0)
	defer release()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	read := func(ctx context.Context) {
		_, err := h.ReadAt(ctx, make([]byte, 10), 0)
		ended <- err
	}
	go read(ctx)
	<-waiting
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the reader who gave up got %v", err)
	}
	go read(t.Context())
	<-waiting
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if err := <-ended; !errors.Is(err, errClosed) {
		t.Errorf("the reader whose cache was closed got %v", err)
	}
	if n := c.memory.budget.inUse(); n != 0 {
		t.Errorf("%d bytes of memory are still in use", n)
	}
}

func TestReadThatFlightsOutrunFetchesItself(t *testing.T) {
	s := newFakeStore()
	c := openCache(t, s, Config{})
	h := openObject(t, c, s.put("object", 8<<20))
	// Whenever it looks, the reader finds what was being fetched for others, who gave it up.
	o := h.object
	o.mu.Lock()
	given := o.newFlight(content.Span{Segment: 0, First: 2, End: 6}, forAhead)
	o.mu.Unlock()
	given.end(context.Canceled)
	p := make([]byte, 1<<20)
	if _, err := h.ReadAt(t.Context(), p, 3*content.BlockSize); err != nil {
		t.Error(err)
	}
	if !bytes.Equal(p, s.content(h.Object())[3*content.BlockSize:][:len(p)]) {
		t.Error("wrong bytes")
	}
	given.settle(c.ctx, oss.RangeResult{}, context.Canceled)
	checkRead(t, s, h, 0, 8<<20)
}
