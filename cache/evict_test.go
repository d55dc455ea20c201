package cache

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/pailfs/pailfs/cache/internal/content"
	"github.com/pailfs/pailfs/cache/internal/disk"
	"github.com/pailfs/pailfs/cache/internal/eviction"
	"github.com/pailfs/pailfs/oss"
)

func TestEvictionKeepsTheTierWithinItsSize(t *testing.T) {
	s, dir := newFakeStore(), t.TempDir()
	const size = 16 << 20
	c := openCache(t, s, Config{Dir: dir, Size: size})
	for i := range 300 {
		h := openObject(t, c, s.put(fmt.Sprint("object", i), 200_000))
		checkRead(t, s, h, 0, 200_000)
		_ = h.Close()
		if used := c.Stats().SSD.Used; used > size {
			t.Fatalf("%d bytes are used of %d", used, size)
		}
	}
	flush(t, c)
	waitUntil(t, "something was evicted", func() bool { return c.Stats().SSD.Evicted > 0 })
	if used := diskUsage(t, dir); used > size+2<<20 {
		t.Errorf("the disk says %d bytes are used of %d", used, size)
	}
	if st := c.Stats().SSD; st.Used < size/2 {
		t.Errorf("only %d bytes are used of %d", st.Used, size)
	}
}

// diskUsage returns what the object files occupy.
func diskUsage(t *testing.T, dir string) (bytes int64) {
	t.Helper()
	files, err := disk.OpenLocal(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer files.Close()
	names := func(dir string) []string {
		names, err := files.List(dir)
		if err != nil {
			t.Fatal(err)
		}
		return names
	}
	for _, a := range names(disk.ObjectsName) {
		for _, name := range names(disk.ObjectsName + "/" + a) {
			if info, err := os.Stat(fmt.Sprint(dir, "/", disk.ObjectsName, "/", a, "/", name)); err == nil {
				bytes += info.Size()
			}
		}
	}
	return bytes
}

func TestTierLeavesWhatOthersKeepBesideIt(t *testing.T) {
	s := newFakeStore()
	const size = 16 << 20
	var beside atomic.Int64
	c := openCache(t, s, Config{Dir: t.TempDir(), Size: size, Beside: beside.Load})
	n := 0
	fill := func() {
		for range 100 {
			n++
			h := openObject(t, c, s.put(fmt.Sprint("object", n), 200_000))
			checkRead(t, s, h, 0, 200_000)
			_ = h.Close()
		}
		flush(t, c)
	}
	fill()
	waitUntil(t, "the tier is full", func() bool { return c.Stats().SSD.Evicted > 0 })
	beside.Store(size / 2)
	waitUntil(t, "the tier has made room", func() bool { return c.Stats().SSD.Used <= size/2 })
	fill()
	if st := c.Stats().SSD; st.Used > size/2 || st.Limit > size/2 {
		t.Errorf("%d bytes are used of %d beside %d of others", st.Used, st.Limit, size/2)
	}
}

func TestOpenObjectsAreNotEvicted(t *testing.T) {
	s := newFakeStore()
	c := openCache(t, s, Config{Dir: t.TempDir(), Size: 8 << 20})
	var pinned []*Handle
	for i := range 20 {
		h := openObject(t, c, s.put(fmt.Sprint("pinned", i), 200_000))
		if err := c.Fetch(context.Background(), h.Object()); err != nil {
			t.Fatal(err)
		}
		pinned = append(pinned, h)
	}
	for i := range 200 {
		h := openObject(t, c, s.put(fmt.Sprint("other", i), 200_000))
		checkRead(t, s, h, 0, 200_000)
		_ = h.Close()
	}
	flush(t, c) // what is being written cannot go
	if freed := c.MakeRoom(1 << 30); freed == 0 {
		t.Error("MakeRoom freed nothing")
	}
	for _, h := range pinned {
		if r := c.Residency(h.Object()); !r.Whole {
			t.Errorf("%s was evicted: %+v", h.Object().Key, r)
		}
		if f, ok := h.WholeFile(); !ok {
			t.Errorf("%s has no file", h.Object().Key)
		} else if _, err := f.Stat(); err != nil {
			t.Error(err)
		}
	}
}

func TestMakeRoomFreesWhatItSays(t *testing.T) {
	s, dir := newFakeStore(), t.TempDir()
	c := openCache(t, s, Config{Dir: dir})
	for i := range 50 {
		if err := c.Fetch(context.Background(), s.put(fmt.Sprint("object", i), 200_000)); err != nil {
			t.Fatal(err)
		}
	}
	before := diskUsage(t, dir)
	freed := c.MakeRoom(3 << 20)
	if freed < 3<<20 || freed > 4<<20 {
		t.Errorf("%d bytes were freed of 3 MiB", freed)
	}
	if after := diskUsage(t, dir); before-after < 3<<20-100_000 {
		t.Errorf("the disk says %d bytes were freed", before-after)
	}
	if freed := c.MakeRoom(1 << 40); freed < 5<<20 {
		t.Errorf("%d bytes were freed of all", freed)
	}
	if n := diskUsage(t, dir); n != 0 {
		t.Errorf("%d bytes are left", n)
	}
}

func TestFreeSpaceAndInodesAreLeftToOthers(t *testing.T) {
	s := newFakeStore()
	for name, lack := range map[string]disk.Space{
		"bytes":  {Bytes: 1 << 30, FreeBytes: 0, Inodes: 1000, FreeInodes: 900},
		"inodes": {Bytes: 1 << 30, FreeBytes: 1 << 29, Inodes: 1000, FreeInodes: 0},
	} {
		t.Run(name, func(t *testing.T) {
			c, disk := openFaulty(t, s, Config{Dir: t.TempDir()})
			c.ssd.evictor.minFreeInodes = 5
			c.ssd.evictor.minFreeBytes = 1 << 20
			for i := range 40 {
				if err := c.Fetch(context.Background(), s.put(fmt.Sprint("object", i), 200_000)); err != nil {
					t.Fatal(err)
				}
			}
			disk.set(func() { disk.mu.free = &lack })
			c.ssd.evictor.crowded()
			waitUntil(t, "something was evicted", func() bool { return c.Stats().SSD.Evicted >= 5 })
		})
	}
}

func TestEvictionWhileReadingNeverShowsWrongBytes(t *testing.T) {
	s := newFakeStore()
	c := openCache(t, s, Config{Dir: t.TempDir(), Size: 8 << 20, Memory: minMemory})
	var objects []oss.Object
	for i := range 30 {
		objects = append(objects, s.put(fmt.Sprint("object", i), 100_000+i*40_000))
	}
	var group sync.WaitGroup
	for g := range 6 {
		group.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(g), 1))
			for range 150 {
				obj := objects[rng.IntN(len(objects))]
				h, err := c.Open(obj)
				if err != nil {
					t.Error(err)
					return
				}
				for range 3 {
					off := rng.Int64N(obj.Size)
					if err := compareRead(s, h, off, rng.IntN(200_000)); err != nil {
						t.Error(err)
					}
					if f, ok := h.WholeFile(); ok {
						p := make([]byte, min(1000, obj.Size-off))
						if _, err := f.ReadAt(p, off); err != nil || string(p) != string(s.content(obj)[off:off+int64(len(p))]) {
							t.Errorf("the file of %s is wrong: %v", obj.Key, err)
						}
					}
				}
				_ = h.Close()
				switch rng.IntN(10) {
				case 0:
					c.MakeRoom(1 << 20)
				case 1:
					c.Release(obj)
				case 2:
					if err := c.Fetch(context.Background(), obj); err != nil && !errors.Is(err, errBusy) && !errors.Is(err, errDiskFull) {
						t.Error(err)
					}
				}
			}
		})
	}
	group.Wait()
}

func TestReleasedObjectsAreEvictedFirst(t *testing.T) {
	s := newFakeStore()
	c := openCache(t, s, Config{Dir: t.TempDir()})
	var objects []oss.Object
	for i := range 20 {
		objects = append(objects, s.put(fmt.Sprint("object", i), 200_000))
		if err := c.Fetch(context.Background(), objects[i]); err != nil {
			t.Fatal(err)
		}
	}
	c.Release(objects[7])
	c.Release(objects[13])
	flush(t, c)
	c.MakeRoom(300_000)
	for i, obj := range objects {
		if whole := c.Residency(obj).Whole; whole == (i == 7 || i == 13) {
			t.Errorf("object %d: whole is %v", i, whole)
		}
	}
}

func TestFetchBringsTheWholeObject(t *testing.T) {
	for _, size := range []int{0, 1, 115_000, content.SmallObject, 1<<20 + 1, 100 << 20} {
		s := newFakeStore()
		c := openCache(t, s, Config{Dir: t.TempDir()})
		obj := s.put("object", size)
		if err := c.Fetch(context.Background(), obj); err != nil {
			t.Fatal(err)
		}
		if r := c.Residency(obj); !r.Whole {
			t.Errorf("%d bytes: %+v", size, r)
		}
		want := (size + content.SegmentSize - 1) / content.SegmentSize
		if n := s.requests(); n != want {
			t.Errorf("%d bytes: %d requests, want %d", size, n, want)
		}
		if err := c.Fetch(context.Background(), obj); err != nil {
			t.Error(err)
		}
		h := openObject(t, c, obj)
		if _, ok := h.WholeFile(); !ok && size > 0 {
			t.Errorf("%d bytes: no whole file", size)
		}
		checkRead(t, s, h, int64(size)/2, 100_000)
		if n := s.requests(); n != want {
			t.Errorf("%d bytes: %d requests after it was read, want %d", size, n, want)
		}
		if used := c.Stats().SSD.Used; size > 0 && used != content.OnDisk(int64(size))+eviction.Overhead {
			t.Errorf("%d bytes: %d are accounted for", size, used)
		}
	}
}

func TestFetchCompletesWhatIsThere(t *testing.T) {
	s := newFakeStore()
	c := openCache(t, s, Config{Dir: t.TempDir()})
	obj := s.put("object", 30<<20)
	h := openObject(t, c, obj)
	checkRead(t, s, h, 9<<20, 1<<20)
	checkRead(t, s, h, 20<<20, 3<<20)
	waitUntil(t, "it is on SSD", func() bool { return c.Residency(obj).SSD >= 4<<20 })
	asked := s.asked()
	if err := c.Fetch(context.Background(), obj); err != nil {
		t.Fatal(err)
	}
	if n := s.asked() - asked; n > obj.Size-4<<20 {
		t.Errorf("%d bytes were asked for of which 4 MiB were there", n)
	}
	if _, ok := h.WholeFile(); !ok {
		t.Error("no whole file")
	}
}

func TestReadJoinsAFetch(t *testing.T) {
	s := newFakeStore()
	c := openCache(t, s, Config{Dir: t.TempDir()})
	obj := s.put("object", 500_000)
	waiting, release := gateStore(s, 0)
	defer release()
	fetched, read := make(chan error, 1), make(chan error, 1)
	go func() { fetched <- c.Fetch(context.Background(), obj) }()
	<-waiting
	h := openObject(t, c, obj)
	go func() {
		_, err := h.ReadAt(context.Background(), make([]byte, 1000), 77)
		read <- err
	}()
	waitUntil(t, "the read waits", func() bool { return waitingReaders(h.object) == 1 })
	release()
	if err := errors.Join(<-fetched, <-read); err != nil {
		t.Error(err)
	}
	if n := s.requests(); n != 1 {
		t.Errorf("%d requests, want 1", n)
	}
}

func TestFetchWaitsForRoom(t *testing.T) {
	s := newFakeStore()
	c := openCache(t, s, Config{Dir: t.TempDir(), Size: 8 << 20})
	var fetched []oss.Object
	for i := range 3 {
		fetched = append(fetched, s.put(fmt.Sprint("wanted", i), 2<<20))
		if err := c.Fetch(context.Background(), fetched[i]); err != nil {
			t.Fatal(err)
		}
	}
	done := make(chan error, 1)
	another := s.put("another", 2<<20)
	go func() { done <- c.Fetch(context.Background(), another) }()
	waitUntil(t, "somebody waits for room", func() bool {
		return c.ssd.residents.Waiting() == 1
	})
	select {
	case err := <-done:
		t.Fatalf("it did not wait: %v", err)
	default:
	}
	c.Release(fetched[1])
	if err := <-done; err != nil {
		t.Error(err)
	}
	if c.Residency(fetched[1]).Whole || !c.Residency(fetched[0]).Whole {
		t.Error("the wrong one went")
	}

	ctx, cancel := context.WithCancel(context.Background())
	go func() { done <- c.Fetch(ctx, s.put("yet another", 2<<20)) }()
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled fetch gave %v", err)
	}
	if err := c.Fetch(context.Background(), s.put("huge", 9<<20)); !errors.Is(err, ErrNoSpace) {
		t.Errorf("what can never fit gave %v", err)
	}
}

func TestFetchThatFailsLeavesNothingBehind(t *testing.T) {
	s, dir := newFakeStore(), t.TempDir()
	c := openCache(t, s, Config{Dir: dir})
	for name, fail := range map[string]error{"denied": oss.ErrAccessDenied, "changed": oss.ErrChanged} {
		obj := s.put(name, 20<<20)
		s.set(func() { s.mu.fail = func(oss.RangeRequest) error { return fail } })
		s.set(func() { s.mu.step = 1000 })
		s.set(func() {
			s.mu.gate = func(_ context.Context, _ oss.RangeRequest, n int) error {
				if n >= 5000 {
					return fail
				}
				return nil
			}
		})
		if err := c.Fetch(context.Background(), obj); !errors.Is(err, fail) {
			t.Errorf("got %v, want %v", err, fail)
		}
		if _, err := os.Stat(objectFile(dir, obj)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("a file is left: %v", err)
		}
	}
	if st := c.Stats().SSD; st.Used != 0 || st.Objects != 0 {
		t.Errorf("%+v", st)
	}
	s.set(func() { s.mu.fail, s.mu.gate, s.mu.step = nil, nil, 0 })
	obj := s.put("corrupt", 20<<20)
	s.corrupt("corrupt", 1000)
	if err := c.Fetch(context.Background(), obj); !errors.Is(err, oss.ErrCorrupted) {
		t.Errorf("got %v", err)
	}
	waitUntil(t, "nothing is left", func() bool { return c.Stats().SSD.Used == 0 })
}

func TestCancelledFetchStopsItsRequests(t *testing.T) {
	s := newFakeStore()
	c := openCache(t, s, Config{Dir: t.TempDir()})
	waiting, release := gateStore(s, 0)
	defer release()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	obj := s.put("object", 100<<20)
	go func() { done <- c.Fetch(ctx, obj) }()
	<-waiting
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if n := c.Stats().Fetched.InFlight; n != 0 {
		t.Errorf("%d requests are still in flight", n)
	}
}

func TestFetchWithoutAnSSDGoesThroughMemory(t *testing.T) {
	s := newFakeStore()
	c := openCache(t, s, Config{})
	obj := s.put("object", 20<<20)
	if err := c.Fetch(context.Background(), obj); err != nil {
		t.Fatal(err)
	}
	s.resetRequests()
	checkRead(t, s, openObject(t, c, obj), 0, 1<<20)
	if n := s.requests(); n != 0 {
		t.Errorf("%d requests", n)
	}
	if err := c.Fetch(context.Background(), s.put("huge", 120<<20)); !errors.Is(err, ErrNoSpace) {
		t.Errorf("got %v", err)
	}
}
