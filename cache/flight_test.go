package cache

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/pailfs/pailfs/cache/internal/content"
	"github.com/pailfs/pailfs/oss"
)

// gateStore makes every request wait at the given number of arrived bytes until
// release is called.
func gateStore(s *fakeStore, at int) (waiting <-chan oss.RangeRequest, release func()) {
	arrived := make(chan oss.RangeRequest, 1000)
	open := make(chan struct{})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.gate = func(ctx context.Context, r oss.RangeRequest, n int) error {
		if n < at {
			return nil
		}
		select {
		case <-open:
			return nil
		default:
		}
		arrived <- r
		select {
		case <-open:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return arrived, sync.OnceFunc(func() { close(open) })
}

func TestConcurrentReadsOfOneRangeMakeOneRequest(t *testing.T) {
	s := newFakeStore()
	c := openCache(t, s, Config{})
	for _, size := range []int{100_000, 10 << 20} {
		h := openObject(t, c, s.put("object", size))
		s.resetRequests()
		waiting, release := gateStore(s, 0)
		defer release()
		var group sync.WaitGroup
		for range 50 {
			group.Go(func() {
				p := make([]byte, 30_000)
				if _, err := h.ReadAt(context.Background(), p, 66_000); err != nil {
					t.Error(err)
				} else if !bytes.Equal(p, s.content(h.Object())[66_000:96_000]) {
					t.Error("wrong bytes")
				}
			})
		}
		<-waiting
		waitUntil(t, "all readers wait", func() bool { return waitingReaders(h.object) == 50 })
		release()
		group.Wait()
		if n := s.requests(); n != 1 {
			t.Errorf("%d requests for an object of %d bytes, want 1", n, size)
		}
	}
}

// waitingReaders counts who waits for a flight of o.
func waitingReaders(o *object) (n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, seg := range o.mu.segments {
		if seg == nil {
			continue
		}
		for _, e := range seg.extents {
			if f := e.flight; f != nil {
				f.mu.Lock()
				n += f.mu.readers
				f.mu.Unlock()
			}
		}
	}
	return n
}

// waitUntil polls for something that other goroutines bring about. The limit ends
// what hangs.
func waitUntil(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
}

func TestMissingBlocksOfOneReadAreOneRequest(t *testing.T) {
	s := newFakeStore()
	c := openCache(t, s, Config{})
	h := openObject(t, c, s.put("object", 20<<20))
	checkRead(t, s, h, 9<<20+5, 1<<20)
	if n := s.requests(); n != 1 {
		t.Errorf("%d requests for 1 MiB, want 1", n)
	}
	if n := s.asked(); n > 1<<20+content.BlockSize {
		t.Errorf("%d bytes asked for", n)
	}
}

func TestRandomReadAsksForOneBlock(t *testing.T) {
	s := newFakeStore()
	c := openCache(t, s, Config{})
	h := openObject(t, c, s.put("object", 100<<20))
	const reads = 200
	for i := range int64(reads) {
		checkRead(t, s, h, content.BlockSize+(i*7919*4096)%(98<<20), 4096)
	}
	if n := s.asked(); n > reads*content.BlockSize {
		t.Errorf("%d random reads of 4 KiB asked for %d bytes, more than a block each", reads, n)
	}
}

func TestReaderWaitsForItsOwnBytesOnly(t *testing.T) {
	s := newFakeStore()
	c := openCache(t, s, Config{})
	h := openObject(t, c, s.put("object", 20<<20))
	s.set(func() { s.mu.step = 16 << 10 })
	_, release := gateStore(s, 48<<10)
	defer release()

	// The first request brings 1 MiB and stops after 48 KiB of it.
	checkRead(t, s, h, 0, 4096)
	checkRead(t, s, h, 40_000, 5000)
	if n := s.requests(); n != 1 {
		t.Errorf("%d requests, want 1", n)
	}
	if n := s.asked(); n != firstFetch {
		t.Errorf("%d bytes asked for at the beginning of an object, want %d", n, firstFetch)
	}
}

func TestSmallObjectIsCheckedBeforeItsFirstByte(t *testing.T) {
	s := newFakeStore()
	c := openCache(t, s, Config{Dir: t.TempDir()})
	obj := s.put("object", content.SmallObject)
	s.corrupt("object", content.SmallObject-1)
	h := openObject(t, c, obj)
	s.set(func() { s.mu.step = 4096 })
	_, release := gateStore(s, content.SmallObject-4096)
	defer release()

	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	if _, err := h.ReadAt(ctx, make([]byte, 10), 0); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("read before the object was whole: %v", err)
	}
	release()
	p := make([]byte, 10)
	if n, err := h.ReadAt(context.Background(), p, 0); !errors.Is(err, oss.ErrCorrupted) || n != 0 {
		t.Errorf("read of a corrupted object: %d, %v", n, err)
	}
	if r := c.Residency(obj); r != (Residency{}) {
		t.Errorf("something of it is kept: %+v", r)
	}
}

func TestSmallObjectIsOneRequestWhereverItIsRead(t *testing.T) {
	s := newFakeStore()
	c := openCache(t, s, Config{Dir: t.TempDir()})
	for _, off := range []int64{0, 100_000, content.SmallObject - 10} {
		s.resetRequests()
		obj := s.put(fmt.Sprint("object", off), content.SmallObject)
		h := openObject(t, c, obj)
		checkRead(t, s, h, off, 4096)
		for off := int64(0); off < obj.Size; off += 10_000 {
			checkRead(t, s, h, off, 10_000)
		}
		if n := s.requests(); n != 1 || s.asked() != obj.Size {
			t.Errorf("read at %d: %d requests for %d bytes, want 1 for %d", off, n, s.asked(), obj.Size)
		}
	}
}

func TestLargeObjectIsCheckedWhenItIsWhole(t *testing.T) {
	for _, dir := range []string{"", t.TempDir()} {
		s := newFakeStore()
		c := openCache(t, s, Config{Dir: dir})
		obj := s.put("object", 20<<20)
		s.corrupt("object", 13<<20)
		h := openObject(t, c, obj)
		var failed error
		for off := int64(0); off < obj.Size && failed == nil; off += 1 << 20 {
			_, failed = h.ReadAt(context.Background(), make([]byte, 1<<20), off)
		}
		if !errors.Is(failed, oss.ErrCorrupted) {
			t.Errorf("reading all of a corrupted object gave %v", failed)
		}
		// But for what the read may have asked for anew while the rest was thrown away.
		waitUntil(t, "nothing of it is kept", func() bool {
			r := c.Residency(obj)
			return max(r.Memory, r.SSD) <= 1<<20
		})
		if c.Stats().Corrupted == 0 {
			t.Error("not counted")
		}
		if _, err := h.ReadAt(context.Background(), make([]byte, 10), 0); !errors.Is(err, oss.ErrCorrupted) {
			t.Errorf("a later read gave %v", err)
		}
		s.corrupt("object", 13<<20)
		checkRead(t, s, openObject(t, c, obj), 13<<20, 100)
	}
}

func TestCorruptedObjectCanBeReadOnceItIsGoodAgain(t *testing.T) {
	s := newFakeStore()
	c := openCache(t, s, Config{Dir: t.TempDir()})
	obj := s.put("object", 200_000)
	s.corrupt("object", 1)
	h := openObject(t, c, obj)
	if _, err := h.ReadAt(context.Background(), make([]byte, 10), 0); !errors.Is(err, oss.ErrCorrupted) {
		t.Fatal(err)
	}
	s.corrupt("object", 1)
	checkRead(t, s, h, 0, 200_000)
	waitUntil(t, "it is on SSD", func() bool { return c.Residency(obj).Whole })
}

func TestObjectWithoutChecksumIsRead(t *testing.T) {
	s := newFakeStore()
	s.set(func() { s.mu.noCRC = true })
	c := openCache(t, s, Config{Dir: t.TempDir()})
	obj := s.put("object", 3<<20)
	h := openObject(t, c, obj)
	checkRead(t, s, h, 0, 3<<20)
	waitUntil(t, "it is on SSD", func() bool { return c.Residency(obj).Whole })
	if _, ok := h.WholeFile(); !ok {
		t.Error("no whole file")
	}
}

func TestErrorsOfTheStoreReachTheReader(t *testing.T) {
	s := newFakeStore()
	c := openCache(t, s, Config{})
	for _, want := range []error{oss.ErrChanged, oss.ErrNotFound, oss.ErrAccessDenied, oss.ErrUnavailable} {
		h := openObject(t, c, s.put(want.Error(), 3<<20))
		s.set(func() { s.mu.fail = func(oss.RangeRequest) error { return want } })
		_, err := h.ReadAt(context.Background(), make([]byte, 1<<20), 1<<20)
		if !errors.Is(err, want) {
			t.Errorf("%v, want %v", err, want)
		}
		if _, err := h.View(context.Background(), 2<<20, 100_000); !errors.Is(err, want) {
			t.Errorf("view: %v, want %v", err, want)
		}
		s.set(func() { s.mu.fail = nil })
		checkRead(t, s, h, 0, 3<<20)
	}
}

func TestWhatArrivedBeforeAFailureIsKept(t *testing.T) {
	s := newFakeStore()
	c := openCache(t, s, Config{})
	h := openObject(t, c, s.put("object", 20<<20))
	s.set(func() { s.mu.step = 10_000 })
	boom := errors.New("boom")
	s.set(func() {
		s.mu.gate = func(_ context.Context, _ oss.RangeRequest, n int) error {
			if n > 300_000 {
				return boom
			}
			return nil
		}
	})
	if _, err := h.ReadAt(context.Background(), make([]byte, 1<<20), 0); !errors.Is(err, boom) {
		t.Fatal(err)
	}
	s.set(func() { s.mu.gate = nil })
	s.resetRequests()
	checkRead(t, s, h, 0, 4*content.BlockSize)
	if n := s.requests(); n != 0 {
		t.Errorf("%d requests for what had arrived", n)
	}
	checkRead(t, s, h, 0, 1<<20)
	if n := s.asked(); n != 1<<20-4*content.BlockSize {
		t.Errorf("%d bytes asked for", n)
	}
}

func TestCancelledReaderReturnsAndOthersGoOn(t *testing.T) {
	s := newFakeStore()
	c := openCache(t, s, Config{})
	h := openObject(t, c, s.put("object", 500_000))
	waiting, release := gateStore(s, 0)
	defer release()

	ctx, cancel := context.WithCancel(context.Background())
	first, second := make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := h.ReadAt(ctx, make([]byte, 100), 0)
		first <- err
	}()
	<-waiting
	go func() {
		v, err := h.View(context.Background(), 50, 100)
		if err == nil {
			v.Release()
		}
		second <- err
	}()
	waitUntil(t, "both wait", func() bool { return waitingReaders(h.object) == 2 })
	cancel()
	if err := <-first; !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled reader got %v", err)
	}
	release()
	if err := <-second; err != nil {
		t.Errorf("other reader got %v", err)
	}
	if n := s.requests(); n != 1 {
		t.Errorf("%d requests, want 1", n)
	}
}

func TestCloseOfTheLastHandleStopsReadahead(t *testing.T) {
	s := newPatternStore()
	stopped := make(chan struct{}, 100)
	blocking := &blockingReader{patternStore: s, from: 2 << 20, stopped: stopped}
	c, err := Open(Config{Memory: 256 << 20}, blocking, blocking, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer closeCache(t, c)
	h, err := c.Open(s.object("object", 32))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.ReadAt(context.Background(), make([]byte, 1<<20), 0); err != nil {
		t.Fatal(err)
	}
	if _, err := h.ReadAt(context.Background(), make([]byte, 1<<20), 1<<20); err != nil {
		t.Fatal(err)
	}
	waitUntil(t, "readahead is under way", func() bool { return c.Stats().Fetched.InFlight >= 8 })
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	waitUntil(t, "nothing is in flight", func() bool { return c.Stats().Fetched.InFlight == 0 })
	if len(stopped) < 8 {
		t.Errorf("%d requests were stopped", len(stopped))
	}
}

// blockingReader never answers requests for what lies beyond an offset.
type blockingReader struct {
	*patternStore
	from    int64
	stopped chan<- struct{}
}

func (r *blockingReader) ReadRange(ctx context.Context, q oss.RangeRequest) (oss.RangeResult, error) {
	if q.Offset >= r.from {
		<-ctx.Done()
		r.stopped <- struct{}{}
		return oss.RangeResult{}, ctx.Err()
	}
	return r.patternStore.ReadRange(ctx, q)
}

func TestReadAfterCloseOfTheCacheFails(t *testing.T) {
	s := newFakeStore()
	c := openCache(t, s, Config{})
	h := openObject(t, c, s.put("object", 5<<20))
	waiting, release := gateStore(s, 0)
	defer release()
	failed := make(chan error, 1)
	go func() {
		_, err := h.ReadAt(context.Background(), make([]byte, 100), 0)
		failed <- err
	}()
	<-waiting
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-failed; err == nil {
		t.Error("a read that was waiting succeeded")
	}
	if _, err := h.ReadAt(context.Background(), make([]byte, 100), 1<<20); !errors.Is(err, errClosed) {
		t.Errorf("a read after Close gave %v", err)
	}
	if _, err := c.Open(s.put("other", 1)); !errors.Is(err, errClosed) {
		t.Errorf("Open after Close gave %v", err)
	}
}
