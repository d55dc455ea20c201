package cache

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/pailfs/pailfs/oss"
)

// goneSoon waits until SSD has nothing of obj.
func goneSoon(t *testing.T, c *Cache, obj oss.Object) {
	t.Helper()
	waitUntil(t, "what was dropped is gone", func() bool {
		c.ssd.evictor.crowded() // it looks every few seconds, and when it is asked to
		return c.Residency(obj) == (Residency{})
	})
}

func TestDroppedObjectGoesWhenNobodyHasItOpen(t *testing.T) {
	s := newFakeStore()
	c := openCache(t, s, Config{Dir: t.TempDir(), Size: 64 << 20})
	old, other := s.put("checkpoint", 9<<20), s.put("other", 2<<20)
	for _, obj := range []oss.Object{old, other} {
		if err := c.Fetch(context.Background(), obj); err != nil {
			t.Fatal(err)
		}
	}
	h, err := c.Open(old)
	if err != nil {
		t.Fatal(err)
	}
	checkRead(t, s, h, 0, 1<<20)
	c.Drop(old)
	for range 3 {
		c.ssd.evictor.crowded()
		time.Sleep(20 * time.Millisecond)
	}
	s.resetRequests()
	checkRead(t, s, h, 0, 7<<20)
	checkRead(t, s, h, 7<<20, 2<<20)
	if n := s.requests(); n != 0 {
		t.Errorf("%d requests for what was open when it was dropped", n)
	}
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	goneSoon(t, c, old)
	if !c.Whole(other) {
		t.Error("another object went as well")
	}
	// It is counted once its file is gone, too.
	waitUntil(t, "it is counted", func() bool { return c.ssd.metrics.outdated.Load() > 0 })
	c.Drop(old) // it is not there
	goneSoon(t, c, old)
	if n := c.ssd.metrics.outdated.Load(); n != 1 {
		t.Errorf("%d objects were counted", n)
	}
}

// What is held goes when it is held no longer, and what is wanted again stays.
func TestDroppedObjectThatIsWantedStays(t *testing.T) {
	s := newFakeStore()
	c := openCache(t, s, Config{Dir: t.TempDir(), Size: 64 << 20})
	held, again := s.put("held", 2<<20), s.put("again", 2<<20)
	fetchHeld(t, c, held)
	c.Drop(held)
	if err := c.Fetch(context.Background(), again); err != nil {
		t.Fatal(err)
	}
	c.Drop(again)
	h, err := c.Open(again)
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	third := s.put("third", 2<<20)
	if err := c.Fetch(context.Background(), third); err != nil {
		t.Fatal(err)
	}
	c.Drop(third)
	goneSoon(t, c, third) // the evictor has looked
	if !c.Whole(held) || !c.Whole(again) {
		t.Errorf("held: %+v, opened again: %+v", c.Residency(held), c.Residency(again))
	}
	c.Unhold(held, false)
	goneSoon(t, c, held)
}

// TestReadersOfDroppedObjectsReadThem: whoever opened a version has its bytes, while it is dropped
// again and again.
func TestReadersOfDroppedObjectsReadThem(t *testing.T) {
	s := newFakeStore()
	c := openCache(t, s, Config{Dir: t.TempDir(), Size: 64 << 20})
	obj := s.put("object", 3<<20)
	ctx, stop := context.WithTimeout(context.Background(), 2*time.Second)
	defer stop()
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			for ctx.Err() == nil {
				h, err := c.Open(obj)
				if err != nil {
					t.Error(err)
					return
				}
				if err := compareRead(s, h, 1<<20, 2<<20); err != nil {
					t.Error(err)
				}
				if err := h.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for ctx.Err() == nil {
		c.Drop(obj)
		c.ssd.evictor.crowded()
		time.Sleep(time.Millisecond)
	}
	readers.Wait()
	c.Drop(obj)
	goneSoon(t, c, obj)
}
