package fs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pailfs/pailfs/cache"
	"github.com/pailfs/pailfs/oss"
)

// differentialSizes are the sizes at and around what pages, requests and extents
// are cut at.
var differentialSizes = []int64{
	0, 1, 100, 4095, 4096, 4097, 65536, 115 << 10, 1<<20 - 1, 1 << 20, 1<<20 + 1, 5<<20 + 123, 16 << 20, 24<<20 + 4095,
}

// TestReadsEqualALocalCopy does the same reads, of every kind that programs do,
// on the mount and on a copy beside it, from several threads of another process,
// while the cache holds a tenth of the data.
func TestReadsEqualALocalCopy(t *testing.T) {
	for _, c := range []struct {
		name string
		cfg  Config
	}{
		{"ordinary", Config{PassthroughMin: 1}},
		{"no passthrough", Config{Passthrough: Off}},
		{"immutable", Config{Immutable: true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w, local := newWorld(), tempDir(t)
			var paths []string
			var total int64
			for i, size := range differentialSizes {
				name := fmt.Sprintf("dir/f%02d", i)
				o := w.put(name, size)
				must(t, os.MkdirAll(filepath.Join(local, "dir"), 0o755))
				must(t, os.WriteFile(filepath.Join(local, name), all(o), 0o644))
				paths, total = append(paths, name), total+size
			}
			s := mounted(t, w, c.cfg, cache.Config{Size: total / 10})
			ops := 400
			if testing.Short() {
				ops = 100
			}
			var r differentialResult
			inReader(t, "differential", differentialArgs{
				Mount: s.dir, Local: local, Scratch: tempDir(t), Paths: paths, Readers: 4, Ops: ops, Seed: rand.Uint64(),
			}, &r)
			for _, kind := range differentialKinds {
				if r.Done[kind.name] == 0 {
					t.Errorf("no %s was done", kind.name)
				}
			}
			t.Logf("%v; %d READs", r.Done, s.mount.Status().Reads)
		})
	}
}

func TestRandomReadsAskForNoMoreThanTheyRead(t *testing.T) {
	w := newWorld()
	o := w.put("big", 1<<30)
	s := mounted(t, w, Config{Passthrough: Off}, cache.Config{})
	f, err := os.Open(s.path("big"))
	must(t, err)
	defer func() { must(t, f.Close()) }()
	rng := rand.New(rand.NewPCG(3, 4))
	got, want := make([]byte, 4096), make([]byte, 4096)
	const reads = 200
	for range reads {
		off := rng.Int64N(1<<30/4096-2)*4096 + 4096
		_, err := f.ReadAt(got, off)
		must(t, err)
		content(o, off, want)
		same(t, got, want)
	}
	if st := s.mount.Status(); st.ReadBytes > reads*4096 {
		t.Errorf("%d reads of 4 KiB made the kernel ask for %d bytes", reads, st.ReadBytes)
	}
}

func TestSequentialReadsArriveInLargeRequests(t *testing.T) {
	w := newWorld()
	o := w.put("big", 64<<20)
	s := mounted(t, w, Config{Passthrough: Off}, cache.Config{})
	same(t, readAll(t, s.path("big")), all(o))
	if st := s.mount.Status(); st.Reads > 100 {
		t.Errorf("reading 64 MiB in order took %d READs", st.Reads)
	}
}

func TestSecondReadComesFromTheKernel(t *testing.T) {
	untilUndisturbed(t, func(t *testing.T, p *pages) (wrong string) {
		w := newWorld()
		o := w.put("file", 300_000)
		s := mounted(t, w, Config{}, cache.Config{})
		same(t, readAll(t, s.path("file")), all(o))
		p.look(t, s.path("file"))
		before := s.mount.Status().Reads
		for range 3 {
			same(t, readAll(t, s.path("file")), all(o))
		}
		if n := s.mount.Status().Reads - before; n != 0 {
			wrong = fmt.Sprintf("reading again made %d READs, want the page cache", n)
		}
		return wrong
	})
}

func TestConcurrentReadersOfOneFile(t *testing.T) {
	w := newWorld()
	o := w.put("file", 42<<20)
	s := mounted(t, w, Config{Passthrough: Off}, cache.Config{Size: 4 << 20})
	want := all(o)
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			f, err := os.Open(s.path("file"))
			if err != nil {
				t.Error(err)
				return
			}
			defer func() { _ = f.Close() }() // only read
			rng := rand.New(rand.NewPCG(uint64(g), 5))
			buf := make([]byte, 200_000)
			for range 60 {
				off := rng.Int64N(o.Size)
				n, err := f.ReadAt(buf, off)
				if err != nil && !errors.Is(err, io.EOF) {
					t.Errorf("read at %d: %v", off, err)
					return
				}
				if string(buf[:n]) != string(want[off:off+int64(n)]) {
					t.Errorf("wrong bytes at %d", off)
					return
				}
				if rng.IntN(5) == 0 {
					_ = unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)
				}
			}
		})
	}
	wg.Wait()
}

func TestShortAnswerOfTheCacheIsAnErrorNotTheEnd(t *testing.T) {
	// A short answer to READ makes the kernel believe that the file ends there. The
	// store here fails in the middle of the object, for a while.
	w := newWorld()
	o := w.put("file", 4<<20)
	s := mounted(t, w, Config{Passthrough: Off}, cache.Config{})
	w.reading(func(_ context.Context, r oss.RangeRequest) error {
		if r.Offset+int64(len(r.Buffer)) > 2<<20 {
			return fmt.Errorf("get %q: %w", r.Object.Key, oss.ErrUnavailable)
		}
		return nil
	})
	_, err := os.ReadFile(s.path("file"))
	if !errors.Is(err, unix.ETIMEDOUT) {
		t.Errorf("reading into the failing half: %v, want ETIMEDOUT", err)
	}
	w.reading(nil)
	same(t, readAll(t, s.path("file")), all(o))
}

// TestWrongBytesDoNotStayInTheKernel spoils one range of an object that is too
// large to be checked before its first byte is returned.
func TestWrongBytesDoNotStayInTheKernel(t *testing.T) {
	for _, size := range []int64{100_000, 6 << 20} {
		w := newWorld()
		w.sums = true
		o := w.put("file", size)
		s := mounted(t, w, Config{}, cache.Config{})
		w.spoiling(func(r oss.RangeRequest) {
			if at := int64(50_000); r.Offset <= at && at < r.Offset+int64(len(r.Buffer)) {
				r.Buffer[at-r.Offset] ^= 1
			}
		})
		if _, err := os.ReadFile(s.path("file")); !errors.Is(err, unix.EIO) {
			t.Fatalf("%d bytes, one of them wrong: %v, want EIO", size, err)
		}
		eventually(t, "it is released", func() bool { return s.mount.Status().OpenFiles == 0 })
		w.spoiling(nil)
		same(t, readAll(t, s.path("file")), all(o))
	}
}

func TestEveryPinEndsWithItsFile(t *testing.T) {
	w := newWorld()
	for i := range 20 {
		w.put(fmt.Sprintf("f%d", i), 2<<20)
	}
	s := mounted(t, w, Config{}, cache.Config{})
	for i := range 20 {
		readAll(t, s.path(fmt.Sprintf("f%d", i)))
	}
	eventually(t, "nothing is open", func() bool { return s.mount.Status().OpenFiles == 0 })
	eventually(t, "nothing is pinned", func() bool { return pinned(s) == 0 })
}

// pinned counts the inodes that hold a handle of the cache.
func pinned(s *site) int {
	count := 0
	for _, n := range s.mount.fs.inodes.nodes.all() {
		if st := n.state.Load(); st != nil {
			st.mu.Lock()
			if st.mu.handle != nil {
				count++
			}
			st.mu.Unlock()
		}
	}
	return count
}
