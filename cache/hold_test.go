package cache

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/pailfs/pailfs/oss"
)

// crowd reads objects until the cache has had to evict many times over.
func crowd(t *testing.T, s *fakeStore, c *Cache, name string, n int) {
	t.Helper()
	for i := range n {
		obj := s.put(fmt.Sprint(name, i), 1<<20)
		h, err := c.Open(obj)
		if err != nil {
			t.Fatal(err)
		}
		checkRead(t, s, h, 0, 1<<20)
		if err := h.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func fetchHeld(t *testing.T, c *Cache, obj oss.Object) {
	t.Helper()
	c.Hold(obj)
	if err := c.Fetch(context.Background(), obj); err != nil {
		t.Fatal(err)
	}
}

func TestHeldObjectsStayHoweverMuchIsRead(t *testing.T) {
	s := newFakeStore()
	c := openCache(t, s, Config{Dir: t.TempDir(), Size: 12 << 20})
	var held []oss.Object
	for i := range 4 {
		held = append(held, s.put(fmt.Sprint("held", i), 1<<20))
		fetchHeld(t, c, held[i])
	}
	for range 2 {
		crowd(t, s, c, "other", 40)
		s.resetRequests()
		for _, obj := range held {
			h, err := c.Open(obj)
			if err != nil {
				t.Fatal(err)
			}
			checkRead(t, s, h, 0, 1<<20)
			if err := h.Close(); err != nil { // a use does not end a hold
				t.Fatal(err)
			}
		}
		if n := s.requests(); n != 0 {
			t.Fatalf("%d requests for what is held", n)
		}
	}
	if n := c.HoldsBroken(); n != 0 {
		t.Errorf("%d holds were broken", n)
	}
}

func TestReleasedHoldsGoFirst(t *testing.T) {
	s := newFakeStore()
	c := openCache(t, s, Config{Dir: t.TempDir(), Size: 12 << 20})
	first, second := s.put("first", 2<<20), s.put("second", 2<<20)
	for range 2 {
		fetchHeld(t, c, first)
	}
	fetchHeld(t, c, second)
	c.Unhold(first, true) // one of two
	c.Unhold(second, true)
	for i := 0; c.Residency(second).Whole; i++ {
		crowd(t, s, c, fmt.Sprint("other", i, "-"), 4)
		flush(t, c) // however slow the disk is
		if i > 100 {
			t.Fatal("what was released does not go")
		}
	}
	if !c.Residency(first).Whole {
		t.Error("what is held once more went")
	}
	c.Unhold(first, false)
	c.Unhold(first, false) // once too often
	if used := c.ssd.residents.Held(); used != 0 {
		t.Errorf("%d holds are left", used)
	}
}

func TestWhatWasMerelyFetchedMakesWayForWhatIsHeld(t *testing.T) {
	s := newFakeStore()
	c := openCache(t, s, Config{Dir: t.TempDir(), Size: 8 << 20})
	for i := range 3 {
		if err := c.Fetch(context.Background(), s.put(fmt.Sprint("wanted", i), 2<<20)); err != nil {
			t.Fatal(err)
		}
	}
	held := s.put("held", 6<<20)
	fetchHeld(t, c, held)
	if !c.Residency(held).Whole {
		t.Error("it is not there")
	}
}

func TestMakeRoomTakesWhatIsHeldLastAndTells(t *testing.T) {
	s := newFakeStore()
	c := openCache(t, s, Config{Dir: t.TempDir(), Size: 16 << 20})
	held := s.put("held", 4<<20)
	fetchHeld(t, c, held)
	wanted := s.put("wanted", 4<<20)
	if err := c.Fetch(context.Background(), wanted); err != nil {
		t.Fatal(err)
	}
	c.MakeRoom(1 << 20)
	if !c.Residency(held).Whole || c.Residency(wanted).Whole || c.HoldsBroken() != 0 {
		t.Error("what is held went before what is wanted")
	}
	if freed := c.MakeRoom(4 << 20); freed < 4<<20 {
		t.Errorf("%d bytes were freed", freed)
	}
	if c.Residency(held).Whole || c.HoldsBroken() != 1 {
		t.Errorf("whole %v, %d broken", c.Residency(held).Whole, c.HoldsBroken())
	}
}

func TestAccessesTellWhatIsOpenedAndNeverWait(t *testing.T) {
	s := newFakeStore()
	c := openCache(t, s, Config{Dir: t.TempDir(), Track: 2})
	var want []oss.Object
	for i := range 3 {
		obj := s.put(fmt.Sprint("object", i), 1000)
		want = append(want, obj)
		if err := openObject(t, c, obj).Close(); err != nil { // the third finds no room in the queue
			t.Fatal(err)
		}
	}
	for i := range 2 {
		if got := <-c.Accesses(); got != want[i] {
			t.Errorf("access %d is %+v, want %+v", i, got, want[i])
		}
	}
	if n := len(c.Accesses()); n != 0 {
		t.Errorf("%d accesses are left", n)
	}
}

func TestWhatIsNeverToBeKeptIsNot(t *testing.T) {
	s := newFakeStore()
	dir := t.TempDir()
	c := openCache(t, s, Config{Dir: dir, Never: func(key string) bool { return key == "never" || key == "large" }})
	for name, size := range map[string]int{"never": 300_000, "large": 6 << 20, "kept": 300_000} {
		obj := s.put(name, size)
		for range 2 {
			h, err := c.Open(obj)
			if err != nil {
				t.Fatal(err)
			}
			checkRead(t, s, h, 0, size)
			checkRead(t, s, h, 1000, 1000)
			if err := h.Close(); err != nil {
				t.Fatal(err)
			}
		}
		kept := name == "kept"
		waitUntil(t, "it is as the policy says", func() bool {
			r := c.Residency(obj)
			return r.Whole == kept && (kept || r.SSD == 0 && r.Memory == 0)
		})
		if err := c.Fetch(context.Background(), obj); kept != (err == nil) || !kept && !errors.Is(err, ErrNever) {
			t.Errorf("fetch of %s: %v", name, err)
		}
	}
}

func TestEvictTakesNothingThatIsInUse(t *testing.T) {
	s := newFakeStore()
	c := openCache(t, s, Config{Dir: t.TempDir(), Size: 16 << 20})
	obj := s.put("object", 2<<20)
	fetchHeld(t, c, obj)
	if _, err := c.Evict(obj); !errors.Is(err, ErrHeld) {
		t.Errorf("held: %v", err)
	}
	c.Unhold(obj, false)
	h, err := c.Open(obj)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Evict(obj); !errors.Is(err, ErrInUse) {
		t.Errorf("open: %v", err)
	}
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	if n, err := c.Evict(obj); err != nil || n < 2<<20 {
		t.Errorf("idle: %d, %v", n, err)
	}
	if r := c.Residency(obj); r.SSD != 0 || r.Memory != 0 {
		t.Errorf("left: %+v", r)
	}
	if n, err := c.Evict(obj); err != nil || n != 0 {
		t.Errorf("absent: %d, %v", n, err)
	}
}
