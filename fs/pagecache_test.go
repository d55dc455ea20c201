package fs

import (
	"fmt"
	"math"
	"os"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pailfs/pailfs/cache"
	"github.com/pailfs/pailfs/fs/internal/pagecache"
	"github.com/pailfs/pailfs/oss"
)

// fakePages is a page cache that the test knows.
type fakePages struct {
	resident     atomic.Int64 // of each file of the cache
	pages, drops atomic.Uint64
	total, free  atomic.Int64
}

func (p *fakePages) pageCache() *pagecache.Pages {
	return &pagecache.Pages{
		Resident: func(*os.File) int64 { return p.resident.Load() },
		Reclaimed: func() (pagecache.Reclaimed, bool) {
			return pagecache.Reclaimed{Pages: p.pages.Load(), Drops: p.drops.Load()}, true
		},
		Memory: func() (total, free int64) { return p.total.Load(), p.free.Load() },
	}
}

// readOnce mounts a file of 4 MiB that was read once and is whole since, while none of
// its cache file is in memory.
func readOnce(t *testing.T, p *fakePages) (*site, oss.Object) {
	t.Helper()
	p.total.Store(1 << 30)
	w := newWorld()
	o := w.put("file", 4<<20)
	s := mounted(t, w, Config{Passthrough: On, pages: p.pageCache()}, cache.Config{})
	readAndClose(t, s, o)
	makeWhole(t, s, o)
	return s, o
}

// readAndClose reads all of a file and returns when the daemon knows that it is closed.
func readAndClose(t *testing.T, s *site, o oss.Object) {
	t.Helper()
	same(t, readAll(t, s.path(o.Key)), all(o))
	eventually(t, "it is released", func() bool { return s.mount.Status().OpenFiles == 0 })
}

// nodeOf returns the inode of a version.
func nodeOf(t testing.TB, s *site, o oss.Object) *inode {
	t.Helper()
	for _, n := range s.mount.fs.inodes.nodes.all() {
		if n.object == o {
			return n
		}
	}
	t.Fatalf("the kernel knows no inode of %q", o.Key)
	return nil
}

// heldOf returns what the mount's page cache has of an inode.
func heldOf(n *inode) pagecache.Held {
	st := n.opened()
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.mu.held
}

func wantOpens(t *testing.T, s *site, cached, passthrough int64) {
	t.Helper()
	if got := s.mount.Status().Opens; got != (Opens{Cached: cached, Passthrough: passthrough}) {
		t.Fatalf("%+v, want %d cached and %d passed through", got, cached, passthrough)
	}
}

// A file that is read again comes from where it is in memory: not from the disk, and not
// from the daemon.
func TestSecondReadStaysWithThePagesOfTheMount(t *testing.T) {
	untilUndisturbed(t, func(t *testing.T, _ *pages) string {
		var p fakePages
		s, o := readOnce(t, &p)
		before := s.mount.Status().ReadBytes
		for range 3 {
			readAndClose(t, s, o)
		}
		got := s.mount.Status()
		if got.Opens != (Opens{Cached: 4}) || got.ReadBytes != before {
			return fmt.Sprintf("%+v, and READs of %d bytes after the first reading; want four cached, and none", got.Opens, got.ReadBytes-before)
		}
		return ""
	})
}

func TestSecondReadIsPassedThroughWhereThatCostsNoDisk(t *testing.T) {
	for name, change := range map[string]func(p *fakePages){
		"the cache file is in memory":             func(p *fakePages) { p.resident.Store(4 << 20) },
		"it cannot be known what is in memory":    func(p *fakePages) { p.resident.Store(math.MaxInt64) },
		"all pages were dropped":                  func(p *fakePages) { p.drops.Add(1) },
		"an eighth of the memory was reclaimed":   func(p *fakePages) { p.pages.Add(1<<30/8/4096 + 1) },
		"the file is larger than half the memory": func(p *fakePages) { p.total.Store(8<<20 - 1) },
	} {
		t.Run(name, func(t *testing.T) {
			var p fakePages
			s, o := readOnce(t, &p)
			change(&p)
			readAndClose(t, s, o)
			wantOpens(t, s, 1, 1)
		})
	}
}

// Whose pages were asked for again is better passed through.
func TestFileWhosePagesGoIsPassedThrough(t *testing.T) {
	var p fakePages
	s, o := readOnce(t, &p)
	n := nodeOf(t, s, o)
	s.mount.fs.reads.fills(n, o, o.Size, 0) // as if the kernel had asked for all of it again
	readAndClose(t, s, o)
	wantOpens(t, s, 1, 1)
}

// Direct input leaves nothing in the mount's page cache.
func TestDirectInputIsNotHeld(t *testing.T) {
	s := mounted(t, newWorld(), Config{Passthrough: On}, cache.Config{})
	var st inode
	version := oss.Object{Key: "a", Size: 1 << 20}
	s.mount.fs.reads.fills(&st, version, 4096, unix.O_DIRECT)
	s.mount.fs.reads.fills(&st, version, 512, unix.O_RDONLY)
	if got := st.opened().mu.held.Filled; got != 512 {
		t.Errorf("%d bytes are held, want 512", got)
	}
}

// What was read of a file is not all of it.
func TestFileThatWasReadInPartIsPassedThrough(t *testing.T) {
	var p fakePages
	p.total.Store(1 << 30)
	w := newWorld()
	o := w.put("file", 4<<20)
	s := mounted(t, w, Config{Passthrough: On, pages: p.pageCache()}, cache.Config{})
	f, err := os.Open(s.path("file"))
	must(t, err)
	_, err = f.ReadAt(make([]byte, 4096), 1<<20)
	must(t, err)
	must(t, f.Close())
	eventually(t, "it is released", func() bool { return s.mount.Status().OpenFiles == 0 })
	makeWhole(t, s, o)
	readAndClose(t, s, o)
	wantOpens(t, s, 1, 1)
}

// A file that is read again and again is brought to where passthrough costs no disk, once.
func TestFileThatIsReadAgainAndAgainIsBroughtIn(t *testing.T) {
	untilUndisturbed(t, func(t *testing.T, _ *pages) string {
		var p fakePages
		s, o := readOnce(t, &p)
		n := nodeOf(t, s, o)
		for i := range pagecache.BringAfter + 1 {
			if brought := heldOf(n).Brought; brought != (i >= pagecache.BringAfter) {
				return fmt.Sprintf("after %d readings from memory: brought in %v", i, brought)
			}
			readAndClose(t, s, o)
		}
		return ""
	})
}

func TestFileIsBroughtInOnlyWhereMemoryIsFree(t *testing.T) {
	untilUndisturbed(t, func(t *testing.T, _ *pages) string {
		var p fakePages
		s, o := readOnce(t, &p)
		h, err := s.cache.Open(o)
		must(t, err)
		defer func() { must(t, h.Close()) }()
		file, ok := h.WholeFile()
		if !ok {
			t.Fatal("there is no whole file")
		}
		must(t, file.Sync())
		must(t, unix.Fadvise(int(file.Fd()), 0, 0, unix.FADV_DONTNEED))
		if n := pagecache.Resident(file); n != 0 {
			return fmt.Sprintf("%d bytes stay in memory", n)
		}
		p.free.Store(1<<30/pagecache.BringFree + o.Size - 1)
		must(t, s.mount.fs.reads.bringing.BringIn(t.Context(), o))
		if n := pagecache.Resident(file); n != 0 {
			t.Errorf("%d bytes were brought in where memory is wanted for others", n)
		}
		p.free.Store(1<<30/pagecache.BringFree + o.Size)
		must(t, s.mount.fs.reads.bringing.BringIn(t.Context(), o))
		if n := pagecache.Resident(file); n != o.Size {
			return fmt.Sprintf("%d bytes of %d were brought in", n, o.Size)
		}
		return ""
	})
}
