package cache

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pailfs/pailfs/cache/internal/content"
	"github.com/pailfs/pailfs/oss"
)

// inodeOf returns the number of the file at path.
func inodeOf(t testing.TB, path string) uint64 {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		t.Fatal(err)
	}
	return st.Ino
}

// spoilFile overwrites a file with something else, of the same length.
func spoilFile(t testing.TB, path string, size int64) {
	t.Helper()
	if err := os.WriteFile(path, bytes.Repeat([]byte{0xEE}, int(size)), 0o600); err != nil {
		t.Fatal(err)
	}
}

// wholeHandle opens obj, reads it and waits until its file is handed out.
func wholeHandle(t *testing.T, s *fakeStore, c *Cache, obj oss.Object) (*Handle, *os.File) {
	t.Helper()
	h := openObject(t, c, obj)
	checkAll(t, s, h)
	var f *os.File
	waitUntil(t, "the file is whole", func() (ok bool) { f, ok = h.WholeFile(); return ok })
	return h, f
}

// checkAll reads the whole object.
func checkAll(t testing.TB, s *fakeStore, h *Handle) {
	t.Helper()
	for off := int64(0); off < h.Object().Size; off += 1 << 20 {
		checkRead(t, s, h, off, 1<<20)
	}
}

func TestTakeGivesTheFileThatReadersHave(t *testing.T) {
	for _, size := range []int{700_000, 20<<20 + 77} {
		s, dir, staged := newFakeStore(), t.TempDir(), filepath.Join(t.TempDir(), "staged")
		c := openCache(t, s, Config{Dir: dir})
		obj := s.put("object", size)
		h, f := wholeHandle(t, s, c, obj)
		before := inodeOf(t, objectFile(dir, obj))

		if err := c.Take(t.Context(), obj, staged); err != nil {
			t.Fatal(err)
		}
		content, err := os.ReadFile(staged)
		if err != nil || !bytes.Equal(content, s.content(obj)) {
			t.Errorf("%d bytes: what was taken is not the content: %v", size, err)
		}
		if inodeOf(t, staged) != before {
			t.Errorf("%d bytes: a copy was made beside a reader of the file", size)
		}
		spoilFile(t, staged, obj.Size)
		var p [1]byte
		if _, err := f.ReadAt(p[:], obj.Size-1); err != nil || p[0] != 0xEE {
			t.Errorf("%d bytes: the reader of the file sees %#x, %v", size, p[0], err)
		}
		if _, ok := h.WholeFile(); ok {
			t.Errorf("%d bytes: the file is handed out as the object although it was given away", size)
		}
		// Through the cache the object is what it was.
		checkAll(t, s, h)
		closeCache2(t, h, c)
		c = openCache(t, s, Config{Dir: dir})
		h = openObject(t, c, obj)
		checkAll(t, s, h)
		if n := c.Stats().SSD.Damaged; n != 0 {
			t.Errorf("%d bytes: %d pieces were damaged: the index knew the file that was given away", size, n)
		}
	}
}

// closeCache2 closes a handle and its cache.
func closeCache2(t *testing.T, h *Handle, c *Cache) {
	t.Helper()
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	closeCache(t, c)
}

func TestTakeCopiesOrFetchesWhatIsNotThere(t *testing.T) {
	for name, cfg := range map[string]Config{
		"memory only":       {},
		"SSD":               {Dir: "make"},
		"SSD of small size": {Dir: "make", Size: minSSD},
	} {
		t.Run(name, func(t *testing.T) {
			s := newFakeStore()
			if cfg.Dir != "" {
				cfg.Dir = t.TempDir()
			}
			c := openCache(t, s, cfg)
			for i, size := range []int{0, 1, 4096, content.SmallObject, content.SmallObject + 1, 9<<20 + 5} {
				obj := s.put(fmt.Sprint("object", i), size)
				dst := filepath.Join(t.TempDir(), "staged")
				if err := c.Take(t.Context(), obj, dst); err != nil {
					t.Fatal(err)
				}
				content, err := os.ReadFile(dst)
				if err != nil || !bytes.Equal(content, s.content(obj)) {
					t.Errorf("%d bytes: %d came, %v", size, len(content), err)
				}
				info, err := os.Stat(dst)
				if err != nil || info.Mode().Perm() != 0o600 {
					t.Errorf("%d bytes: %v, %v", size, info.Mode(), err)
				}
			}
		})
	}
}

func TestTakeLeavesNothingWhenItFails(t *testing.T) {
	s, dir := newFakeStore(), t.TempDir()
	c := openCache(t, s, Config{Dir: dir})
	for _, size := range []int{5000, 9 << 20} {
		obj := s.put("object", size)
		s.set(func() { s.mu.fail = func(oss.RangeRequest) error { return oss.ErrUnavailable } })
		dst := filepath.Join(t.TempDir(), "staged")
		if err := c.Take(t.Context(), obj, dst); !errors.Is(err, oss.ErrUnavailable) {
			t.Errorf("%d bytes: %v", size, err)
		}
		if _, err := os.Lstat(dst); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%d bytes: something was left: %v", size, err)
		}
		s.set(func() { s.mu.fail = nil })
		if err := c.Take(t.Context(), obj, dst); err != nil {
			t.Errorf("%d bytes: %v", size, err)
		}
		if err := c.Take(t.Context(), obj, dst); !errors.Is(err, os.ErrExist) {
			t.Errorf("%d bytes: over a file that exists: %v", size, err)
		}
	}
}

func TestTakeChecksWhatAnEarlierProcessLeft(t *testing.T) {
	s, dir := newFakeStore(), t.TempDir()
	obj := s.put("object", 9<<20)
	warm(t, s, dir, obj)
	f, err := os.OpenFile(objectFile(dir, obj), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte("rotten"), 3<<20); err != nil {
		t.Fatal(err)
	}
	_ = f.Close()
	c := openCache(t, s, Config{Dir: dir})
	dst := filepath.Join(t.TempDir(), "staged")
	if err := c.Take(t.Context(), obj, dst); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(dst)
	if err != nil || !bytes.Equal(content, s.content(obj)) {
		t.Errorf("a rotten block was given away: %v", err)
	}
}

func TestAdoptedFilesAreReadWithoutARequest(t *testing.T) {
	s, dir := newFakeStore(), t.TempDir()
	c := openCache(t, s, Config{Dir: dir})
	var objects []oss.Object
	for i, size := range []int{1, 4096, 115_000, content.SmallObject, 3 << 20, 20<<20 + 77} {
		obj := s.put(fmt.Sprint("object", i), size)
		objects = append(objects, obj)
		path := stage(t, s, obj)
		number := inodeOf(t, path)
		if ok, err := c.Adopt(t.Context(), obj, oss.CRC64(s.content(obj)), path); !ok || err != nil {
			t.Fatalf("%d bytes: %v, %v", size, ok, err)
		}
		if inodeOf(t, objectFile(dir, obj)) != number {
			t.Errorf("%d bytes were copied", size)
		}
		h := openObject(t, c, obj)
		if _, ok := h.WholeFile(); !ok {
			t.Errorf("%d bytes: not handed out although all is there and checked", size)
		}
		checkAll(t, s, h)
		_ = h.Close()
	}
	flush(t, c)
	closeCache(t, c)
	c = openCache(t, s, Config{Dir: dir})
	for _, obj := range objects {
		h := openObject(t, c, obj)
		checkAll(t, s, h)
	}
	if n := s.requests(); n != 0 {
		t.Errorf("%d requests, want none", n)
	}
}

// stage writes the content of obj to a file as write-back does.
func stage(t testing.TB, s *fakeStore, obj oss.Object) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "staged")
	if err := os.WriteFile(path, s.content(obj), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestAdoptRefuses(t *testing.T) {
	s, dir := newFakeStore(), t.TempDir()
	c := openCache(t, s, Config{Dir: dir, Size: 16 << 20})
	obj := s.put("object", 5<<20)
	crc := oss.CRC64(s.content(obj))
	kept := func(path string) {
		t.Helper()
		if _, err := os.Stat(path); err != nil {
			t.Errorf("the file is gone: %v", err)
		}
	}

	path := stage(t, s, obj)
	if ok, err := c.Adopt(t.Context(), obj, crc+1, path); ok || !errors.Is(err, oss.ErrCorrupted) {
		t.Errorf("another checksum: %v, %v", ok, err)
	}
	kept(path)
	longer := obj
	longer.Size++
	if ok, err := c.Adopt(t.Context(), longer, crc, path); ok || !errors.Is(err, oss.ErrCorrupted) {
		t.Errorf("another size: %v, %v", ok, err)
	}
	kept(path)
	if ok, err := c.Adopt(t.Context(), obj, crc, path+"x"); ok || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v, %v", ok, err)
	}
	large := s.put("large", 17<<20)
	largePath := stage(t, s, large)
	if ok, err := c.Adopt(t.Context(), large, oss.CRC64(s.content(large)), largePath); ok || err != nil {
		t.Errorf("larger than the tier: %v, %v", ok, err)
	}
	kept(largePath)

	h := openObject(t, c, obj)
	checkRead(t, s, h, 0, 1<<20)
	waitUntil(t, "a part is on SSD", func() bool { return c.Residency(obj).SSD > 0 })
	if ok, err := c.Adopt(t.Context(), obj, crc, path); ok || err != nil {
		t.Errorf("partly there already: %v, %v", ok, err)
	}
	kept(path)
	memory := openCache(t, s, Config{})
	if ok, err := memory.Adopt(t.Context(), obj, crc, path); ok || err != nil {
		t.Errorf("no SSD tier: %v, %v", ok, err)
	}
	kept(path)
}

func TestAdoptMakesRoom(t *testing.T) {
	s := newFakeStore()
	c := openCache(t, s, Config{Dir: t.TempDir(), Size: 16 << 20})
	for i := range 6 {
		obj := s.put(fmt.Sprint("object", i), 5<<20)
		if ok, err := c.Adopt(t.Context(), obj, oss.CRC64(s.content(obj)), stage(t, s, obj)); !ok || err != nil {
			t.Fatalf("object %d: %v, %v", i, ok, err)
		}
	}
}

// TestAdoptedFilesSurviveACrash kills the cache at various points after an
// adoption: the object is whole or absent, never wrong, and what the index says is
// there.
func TestAdoptedFilesSurviveACrash(t *testing.T) {
	for round := range rounds(8) {
		seed := uint64(round) + 1
		rng := rand.New(rand.NewPCG(seed, seed))
		s, dir := newFakeStore(), t.TempDir()
		c, _ := openFaulty(t, s, Config{Dir: dir})
		var objects []oss.Object
		for i := range 12 {
			obj := s.put(fmt.Sprint("object", i), 1+rng.IntN(3<<20))
			objects = append(objects, obj)
			if ok, err := c.Adopt(t.Context(), obj, oss.CRC64(s.content(obj)), stage(t, s, obj)); !ok || err != nil {
				t.Fatalf("seed %d: %v, %v", seed, ok, err)
			}
			if rng.IntN(4) == 0 {
				if err := c.ssd.indexer.commit(); err != nil {
					t.Fatal(err)
				}
			}
			if rng.IntN(3) == 0 {
				taken := objects[rng.IntN(len(objects))]
				dst := filepath.Join(t.TempDir(), "staged")
				if err := c.Take(t.Context(), taken, dst); err != nil {
					t.Fatal(err)
				}
				spoilFile(t, dst, taken.Size)
			}
		}
		c.crash(t)
		c, _ = openFaulty(t, s, Config{Dir: dir})
		for _, obj := range objects {
			h := openObject(t, c, obj)
			checkAll(t, s, h)
			_ = h.Close()
		}
		if n := c.Stats().SSD.Damaged; n != 0 {
			t.Errorf("seed %d: %d things were damaged: the index said more than there was", seed, n)
		}
		closeCache(t, c)
	}
}

// TestTakeAndAdoptBesideReaders takes, changes and gives back files while others
// read, fetch, evict and release the same objects. Whatever a reader gets through
// the cache is the object.
func TestTakeAndAdoptBesideReaders(t *testing.T) {
	s := newFakeStore()
	c := openCache(t, s, Config{Dir: t.TempDir(), Size: 48 << 20})
	var objects []oss.Object
	for i, size := range []int{4096, 115_000, 700_000, 1<<20 + 5, 5 << 20, 9<<20 + 1} {
		objects = append(objects, s.put(fmt.Sprint("object", i), size))
	}
	var stop atomic.Bool
	var others sync.WaitGroup
	var reads, wholes atomic.Int64
	for worker := range 3 {
		others.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(worker), 7))
			for !stop.Load() {
				obj := objects[rng.IntN(len(objects))]
				switch rng.IntN(12) {
				case 0:
					c.MakeRoom(4 << 20)
				case 1:
					c.Release(obj)
				case 2:
					_ = c.Fetch(t.Context(), obj) // eviction may take what it brings
				default:
					h, err := c.Open(obj)
					if err != nil {
						t.Error(err)
						return
					}
					if _, ok := h.WholeFile(); ok {
						wholes.Add(1)
					}
					if err := compareRead(s, h, rng.Int64N(obj.Size), 1+rng.IntN(1<<20)); err != nil {
						t.Errorf("%s: %v", obj.Key, err)
						stop.Store(true)
					}
					reads.Add(1)
					_ = h.Close()
				}
			}
		})
	}
	rng := rand.New(rand.NewPCG(1, 2))
	dir := t.TempDir()
	adoptions := 0
	// Chance decides what meets what: it goes on until everything has happened.
	shown := func() bool {
		return adoptions > 0 && reads.Load() > 0 && wholes.Load() > 0 && c.metrics.given.Load() > 0
	}
	for round := 0; (round < rounds(60) || round < 10_000 && !shown()) && !stop.Load(); round++ {
		obj := objects[rng.IntN(len(objects))]
		path := filepath.Join(dir, fmt.Sprint(round))
		if err := c.Take(t.Context(), obj, path); err != nil {
			t.Fatal(err)
		}
		content, err := os.ReadFile(path)
		if err != nil || !bytes.Equal(content, s.content(obj)) {
			t.Fatalf("%s: what was taken is not the content: %v", obj.Key, err)
		}
		spoilFile(t, path, obj.Size)
		if rng.IntN(2) == 0 {
			back := stage(t, s, obj)
			ok, err := c.Adopt(t.Context(), obj, oss.CRC64(s.content(obj)), back)
			if err != nil {
				t.Fatal(err)
			}
			if ok {
				adoptions++
			}
		}
	}
	stop.Store(true)
	others.Wait()
	if !shown() {
		t.Errorf("%d adoptions, %d reads, %d whole files, %d given: the test shows nothing",
			adoptions, reads.Load(), wholes.Load(), c.metrics.given.Load())
	}
	if n := c.Stats().Corrupted; n != 0 {
		t.Errorf("%d objects counted as corrupted", n)
	}
}
