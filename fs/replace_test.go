package fs

import (
	"bytes"
	"errors"
	"os"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pailfs/pailfs/cache"
	"github.com/pailfs/pailfs/oss"
)

func TestReadAfterReplaceReturnsESTALE(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(w *world)
	}{
		{"replaced", func(w *world) { w.put("dir/file", 4<<20) }},
		{"replaced by one of another size", func(w *world) { w.put("dir/file", 5) }},
		{"deleted", func(w *world) { w.remove("dir/file") }},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld()
			o := w.put("dir/file", 4<<20)
			s := mounted(t, w, Config{}, cache.Config{})
			f, err := os.Open(s.path("dir/file"))
			must(t, err)
			defer func() { must(t, f.Close()) }()
			c.change(w)
			buf := make([]byte, 4096)
			if _, err := f.ReadAt(buf, 2<<20); !errors.Is(err, unix.ESTALE) {
				t.Fatalf("reading the version that is gone: %v, want ESTALE", err)
			}
			info, err := f.Stat()
			must(t, err)
			if info.Size() != o.Size {
				t.Errorf("the open file has %d bytes now, want those of its version, %d", info.Size(), o.Size)
			}
		})
	}
}

func TestOpenFilesKeepTheVersionThatIsCached(t *testing.T) {
	w := newWorld()
	o := w.put("file", 1<<20)
	s := mounted(t, w, Config{}, cache.Config{})
	makeWhole(t, s, o)
	f, err := os.Open(s.path("file"))
	must(t, err)
	defer func() { must(t, f.Close()) }()
	w.put("file", 1<<20)
	got := make([]byte, o.Size)
	_, err = f.ReadAt(got, 0)
	must(t, err)
	same(t, got, all(o))
}

// TestOpenAfterESTALESeesTheNewVersion holds even if names are believed for ever:
// what was found replaced is not believed any longer.
func TestOpenAfterESTALESeesTheNewVersion(t *testing.T) {
	for _, ttl := range []time.Duration{-1, time.Hour} {
		w := newWorld()
		w.ttl = ttl
		w.put("dir/file", 1<<20)
		s := mounted(t, w, Config{}, cache.Config{})
		f, err := os.Open(s.path("dir/file"))
		must(t, err)
		now := w.put("dir/file", 3000)
		if _, err := f.Read(make([]byte, 10)); !errors.Is(err, unix.ESTALE) {
			t.Fatalf("%v, want ESTALE", err)
		}
		// At once, with the old file still open and with the kernel's old entry.
		same(t, readAll(t, s.path("dir/file")), all(now))
		must(t, f.Close())
		if w.forgets.Load() != 1 {
			t.Errorf("the tree was told %d times to forget the name, want once", w.forgets.Load())
		}
		if n := s.mount.Status().Stale; n != 1 {
			t.Errorf("status counts %d stale objects", n)
		}
	}
}

func TestStatAfterESTALESeesTheNewVersion(t *testing.T) {
	w := newWorld()
	w.put("dir/file", 1<<20)
	s := mounted(t, w, Config{}, cache.Config{})
	f, err := os.Open(s.path("dir/file"))
	must(t, err)
	defer func() { must(t, f.Close()) }()
	w.put("dir/file", 3000)
	_, err = f.Read(make([]byte, 10))
	if !errors.Is(err, unix.ESTALE) {
		t.Fatalf("%v, want ESTALE", err)
	}
	eventually(t, "the kernel is told", func() bool {
		info, err := os.Stat(s.path("dir/file"))
		return err == nil && info.Size() == 3000
	})
}

func TestNewVersionIsSeenWhenItsNameExpires(t *testing.T) {
	w := newWorld()
	w.ttl, w.negativeTTL = 0, 0
	w.put("file", 1)
	s := mounted(t, w, Config{}, cache.Config{})
	for i := range 20 {
		o := w.put("file", int64(1000+i%3*5000))
		same(t, readAll(t, s.path("file")), all(o))
	}
	w.remove("file")
	if _, err := os.Stat(s.path("file")); !os.IsNotExist(err) {
		t.Errorf("after it was deleted: %v", err)
	}
	w.mkdir("file")
	if info, err := os.Stat(s.path("file")); err != nil || !info.IsDir() {
		t.Errorf("after it became a directory: %v, %v", info, err)
	}
}

// TestReplacingWhileReadingNeverMixes replaces a file again and again while
// others read it: every open sees one version, whole, or ESTALE.
func TestReplacingWhileReadingNeverMixes(t *testing.T) {
	w := newWorld()
	w.ttl = 0
	var mu sync.Mutex
	versions := map[int64][]byte{} // by size
	replace := func(i int) {
		mu.Lock()
		defer mu.Unlock()
		o := w.put("file", 700_000+int64(i))
		versions[o.Size] = all(o)
	}
	replace(0)
	s := mounted(t, w, Config{PassthroughMin: 1}, cache.Config{})
	stop := make(chan struct{})
	var readers sync.WaitGroup
	var whole, stale int
	for range 4 {
		readers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				got, err := os.ReadFile(s.path("file"))
				mu.Lock()
				switch {
				case errors.Is(err, unix.ESTALE):
					stale++
				case err != nil:
					t.Errorf("%v", err)
				case !bytes.Equal(got, versions[int64(len(got))]):
					t.Errorf("%d bytes that are no version", len(got))
				default:
					whole++
				}
				mu.Unlock()
			}
		})
	}
	enough := func() bool {
		mu.Lock()
		defer mu.Unlock()
		return whole > 100 && stale > 3
	}
	for i, end := 0, time.Now().Add(patience); i < 100 || !enough() && time.Now().Before(end); i++ {
		replace(i + 1)
		_ = unix.Nanosleep(&unix.Timespec{Nsec: 2e6}, nil) // let them read in between
	}
	close(stop)
	readers.Wait()
	t.Logf("%d whole, %d ESTALE", whole, stale)
	if whole == 0 || stale == 0 {
		t.Errorf("%d whole, %d ESTALE: nothing was raced", whole, stale)
	}
}

func TestEvictingWhileReadingKeepsEveryByte(t *testing.T) {
	w := newWorld()
	var objects []oss.Object
	for _, name := range []string{"a", "b", "c", "d", "e", "f"} {
		objects = append(objects, w.put(name, 3<<20))
	}
	s := mounted(t, w, Config{PassthroughMin: 1}, cache.Config{Size: 4 << 20})
	stop := make(chan struct{})
	var evictor, readers sync.WaitGroup
	evictor.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				for _, o := range objects {
					s.cache.Release(o)
				}
				s.cache.MakeRoom(1 << 40)
				_ = unix.Nanosleep(&unix.Timespec{Nsec: 2e6}, nil)
			}
		}
	})
	for g := range 4 {
		readers.Go(func() {
			for i := range 20 {
				o := objects[(i+g)%len(objects)]
				got, err := os.ReadFile(s.path(o.Key))
				if err != nil {
					t.Error(err)
					return
				}
				if !bytes.Equal(got, all(o)) {
					t.Errorf("%s: wrong bytes", o.Key)
				}
				fd, err := unix.Open(s.path(o.Key), unix.O_RDONLY, 0)
				if err != nil {
					t.Error(err)
					return
				}
				_ = unix.Fadvise(fd, 0, 0, unix.FADV_DONTNEED)
				_ = unix.Close(fd)
			}
		})
	}
	readers.Wait()
	close(stop)
	evictor.Wait()
}
