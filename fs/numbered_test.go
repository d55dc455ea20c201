package fs

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/pailfs/pailfs/cache"
	"github.com/pailfs/pailfs/fs/internal/listing"
	"github.com/pailfs/pailfs/fs/internal/seeks"
	"github.com/pailfs/pailfs/manifest"
)

// countable is a world whose entries are numbered.
type countable struct {
	*world
	asked atomic.Int64
	// looked counts the entries that were looked at.
	looked atomic.Int64
}

var _ listing.Numbered = (*countable)(nil)

// ReadDirAt implements [listing.Numbered].
func (c *countable) ReadDirAt(ctx context.Context, dir string, position int64, _ bool, yield func(int64, *manifest.Entry) bool) error {
	c.asked.Add(1)
	sorted, err := c.begin(ctx, "readdir", dir, dir)
	if err != nil {
		return err
	}
	// Positions have gaps, as in a manifest that holds what is not shown.
	for at := position; at < 2*int64(len(sorted)); at++ {
		if at%2 == 0 {
			continue
		}
		c.looked.Add(1)
		if e := sorted[at/2]; !yield(at, &e) {
			return nil
		}
	}
	return nil
}

// numberedSite mounts a countable world, immutably.
func numberedSite(t testing.TB, w *world) (*site, *countable) {
	t.Helper()
	c := &countable{world: w}
	return mountedTree(t, w, c, Config{Immutable: true}, cache.Config{}, testLog(t)), c
}

func TestNumberedListingIsWholeAndThenTheKernels(t *testing.T) {
	untilUndisturbed(t, wholeAndThenTheKernels)
}

func wholeAndThenTheKernels(t *testing.T, p *pages) string {
	w := newWorld()
	want := crowd(w, "dir", crowdSize())
	s, c := numberedSite(t, w)
	wrong := listedOnce(t, s, p, want, &c.asked)
	if n := w.readdirs.Load(); n != 0 {
		t.Errorf("%d pieces were read by cursor", n)
	}
	fd := openDir(t, s.path("dir"))
	defer closeFD(t, fd)
	entries, err := listRaw(fd, 32<<10)
	must(t, err)
	for _, e := range entries[len(entries)-10:] {
		if got := inode64(t, s.path("dir/"+e.Name)); got != e.Ino {
			t.Errorf("%s is inode %d among names, %d by itself", e.Name, e.Ino, got)
		}
	}
	return wrong
}

func TestNumberedListingKeepsNumbersTypesAndAttributes(t *testing.T) {
	w := newWorld()
	w.put("dir/file", 7)
	w.mkdir("dir/sub")
	w.symlink("dir/link", "file")
	s, _ := numberedSite(t, w)
	fd := openDir(t, s.path("dir"))
	defer closeFD(t, fd)
	entries, err := listRaw(fd, 32<<10)
	must(t, err)
	types := map[string]byte{}
	for _, e := range entries {
		types[e.Name] = e.Type
		if e.Name == ".." {
			continue
		}
		if got := inode64(t, s.path("dir/"+e.Name)); got != e.Ino {
			t.Errorf("%s is inode %d in the listing, %d by itself", e.Name, e.Ino, got)
		}
	}
	want := map[string]byte{".": unix.DT_DIR, "..": unix.DT_DIR, "file": unix.DT_REG, "sub": unix.DT_DIR, "link": unix.DT_LNK}
	if d := cmp.Diff(want, types); d != "" {
		t.Error(d)
	}
	if n := w.lookups.Load(); n > 1 {
		t.Errorf("%d lookups; the listing came with attributes", n)
	}
	same(t, readAll(t, s.path("dir/file")), all(w.mu.dirs["dir"]["file"].Object))
	if target, err := os.Readlink(s.path("dir/link")); err != nil || target != "file" {
		t.Errorf("link to %q, %v", target, err)
	}
}

// TestNumberedPositionsHoldForEveryReader lets readers jump about in a directory
// while others open and close it and the kernel drops what it has cached: whatever
// follows a position must be what followed it before.
func TestNumberedPositionsHoldForEveryReader(t *testing.T) {
	w := newWorld()
	want := crowd(w, "dir", 20_000)
	s, _ := numberedSite(t, w)
	var readers, disturbers sync.WaitGroup
	stop := make(chan struct{})
	id := inode64(t, s.path("dir"))
	disturbers.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				s.mount.fs.inodes.notify.Content(id)
				if fd, err := unix.Open(s.path("dir"), unix.O_RDONLY|unix.O_DIRECTORY, 0); err == nil {
					_, _ = getdents(fd, make([]byte, 4096)) // that somebody read is all that counts
					_ = unix.Close(fd)
				}
			}
		}
	})
	for g := range 4 {
		readers.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(g), 9))
			for range 3 {
				if err := seekAbout(s.path("dir"), want, rng); err != nil {
					t.Errorf("reader %d: %v", g, err)
				}
			}
		})
	}
	readers.Wait()
	close(stop)
	disturbers.Wait()
}

func TestNumberedListingErrorsReachTheReader(t *testing.T) {
	w := newWorld()
	w.put("dir/a", 1)
	s, _ := numberedSite(t, w)
	w.failing(func(_ context.Context, op, _ string) error {
		if op == "readdir" {
			return fmt.Errorf("the manifest is in flames: %w", errors.ErrUnsupported)
		}
		return nil
	})
	fd := openDir(t, s.path("dir"))
	defer closeFD(t, fd)
	if _, err := listRaw(fd, 32<<10); !errors.Is(err, unix.EIO) {
		t.Errorf("%v, want EIO", err)
	}
	w.failing(nil)
	if got := listed(t, s.path("dir")); len(got) != 1 {
		t.Errorf("afterwards it lists %q", got)
	}
}

// TestSeekingInAFrozenDirectoryLooksAtFewEntries goes to every position of a directory in
// turn and reads one entry there, with a buffer for thousands, by one open directory and by
// several side by side.
func TestSeekingInAFrozenDirectoryLooksAtFewEntries(t *testing.T) {
	const files = 3000
	w := newWorld()
	crowd(w, "dir", files)
	s, c := numberedSite(t, w)
	first := openDir(t, s.path("dir"))
	defer closeFD(t, first)
	whole, err := listRaw(first, 256<<10)
	must(t, err)
	id := inode64(t, s.path("dir"))
	for _, readers := range []int{1, 3} {
		// Nobody reads from the start, so that the kernel goes on having nothing to answer with.
		s.mount.fs.inodes.notify.ContentNow(id)
		fds := make([]int, readers)
		for i := range fds {
			fds[i] = openDir(t, s.path("dir"))
		}
		before, asked := c.looked.Load(), c.asked.Load()
		buf := make([]byte, 256<<10)
		for i, e := range whole[:len(whole)-1] {
			for _, fd := range fds {
				_, err := unix.Seek(fd, e.Off, unix.SEEK_SET)
				must(t, err)
				next, err := getdents(fd, buf)
				must(t, err)
				if len(next) == 0 || next[0].Name != whole[i+1].Name {
					t.Fatalf("after %q comes %q, want %q", e.Name, namesIn(next), whole[i+1].Name)
				}
			}
		}
		looked, requests := c.looked.Load()-before, c.asked.Load()-asked
		if requests < files*int64(readers)/2 {
			t.Errorf("%d readers: the kernel answered by itself: %d requests", readers, requests)
		}
		if most := int64(seeks.First * files * readers); looked > most {
			t.Errorf("%d readers: %d entries were looked at for %d seeks, want at most %d", readers, looked, files*readers, most)
		}
		for _, fd := range fds {
			closeFD(t, fd)
		}
	}
}

// TestReadersOfAFrozenDirectorySideBySideAreNotTakenForSeeking: each is given as much at once
// as if it were alone.
func TestReadersOfAFrozenDirectorySideBySideAreNotTakenForSeeking(t *testing.T) {
	const files, readers = 9000, 6
	w := newWorld()
	want := crowd(w, "dir", files)
	s, c := numberedSite(t, w)
	id := inode64(t, s.path("dir"))
	fds, got := make([]int, readers), make([][]string, readers)
	for i := range fds {
		fds[i] = openDir(t, s.path("dir"))
		defer closeFD(t, fds[i])
	}
	buf := make([]byte, 64<<10)
	requests := int64(0)
	for more := true; more; {
		more = false
		for i, fd := range fds {
			s.mount.fs.inodes.notify.ContentNow(id)
			before := c.asked.Load()
			entries, err := getdents(fd, buf)
			must(t, err)
			got[i] = append(got[i], namesIn(entries)...)
			more = more || len(entries) > 0
			requests += c.asked.Load() - before
		}
	}
	for i := range got {
		if d := cmp.Diff(want, got[i]); d != "" {
			t.Errorf("reader %d: %s", i, d)
		}
	}
	// An entry of such a name takes 32 bytes of the buffer at least.
	if most := int64(readers * (files/500 + 4)); requests > most {
		t.Errorf("%d requests by %d readers, want at most %d", requests, readers, most)
	}
}
