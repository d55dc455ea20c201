package fs

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/pailfs/pailfs/cache"
	"github.com/pailfs/pailfs/manifest"
)

// generations is a tree that shows a world as it was when it was last published.
type generations struct {
	now   atomic.Pointer[world]
	steps chan *manifest.Swap
	// told counts the steps that the mount is done with.
	told atomic.Int64

	lookups, readdirs atomic.Int64
}

var (
	_ manifest.Tree = (*generations)(nil)
	_ Changes       = (*generations)(nil)
)

// following mounts w, of which only what is published is seen.
func following(t testing.TB, w *world) (*site, *generations) {
	t.Helper()
	g := &generations{steps: make(chan *manifest.Swap, 1000)}
	g.now.Store(w.copy())
	return mountedTree(t, w, g, Config{Changes: g}, cache.Config{}, testLog(t)), g
}

// copy returns a world with the names that w has now.
func (w *world) copy() *world {
	c := newWorld()
	w.mu.Lock()
	defer w.mu.Unlock()
	for dir, entries := range w.mu.dirs {
		c.mu.dirs[dir] = maps.Clone(entries)
	}
	return c
}

// publish makes the tree show w as it is.
func (g *generations) publish(w *world) {
	next := w.copy()
	before := g.now.Swap(next)
	g.steps <- &manifest.Swap{Before: before, After: next, Done: func() { g.told.Add(1) }}
}

// Next implements [Changes].
func (g *generations) Next(ctx context.Context) (*manifest.Swap, error) {
	select {
	case s := <-g.steps:
		return s, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Lookup implements [manifest.Tree].
func (g *generations) Lookup(ctx context.Context, dir, name string) (manifest.Entry, manifest.Validity, error) {
	g.lookups.Add(1)
	return g.now.Load().Lookup(ctx, dir, name)
}

// ReadDir implements [manifest.Tree].
func (g *generations) ReadDir(ctx context.Context, dir, after string, limit int) ([]manifest.Entry, manifest.Validity, error) {
	g.readdirs.Add(1)
	return g.now.Load().ReadDir(ctx, dir, after, limit)
}

// ReadLink implements [manifest.Tree].
func (g *generations) ReadLink(ctx context.Context, e manifest.Entry) (string, error) {
	return g.now.Load().ReadLink(ctx, e)
}

// Problems implements [manifest.Tree].
func (g *generations) Problems() manifest.Problems { return manifest.Problems{} }

// settle waits until the mount is done with everything that was published.
func (g *generations) settle(t testing.TB, published int64) {
	t.Helper()
	eventually(t, "the kernel is told of every generation", func() bool { return g.told.Load() == published })
}

// gone reports whether stat says that there is no such name.
func gone(path string) bool {
	var st unix.Stat_t
	return errors.Is(unix.Lstat(path, &st), unix.ENOENT)
}

func TestANewGenerationIsSeenAtOnce(t *testing.T) {
	w := newWorld()
	for _, name := range []string{"goes", "stays", "grows", "turns"} {
		w.put("dir/"+name, 10)
	}
	w.put("dir/old/file", 1)
	s, g := following(t, w)
	listed(t, s.path("dir"))
	for _, name := range []string{"goes", "stays", "grows", "turns", "old/file"} {
		inode64(t, s.path("dir/"+name))
	}
	if !gone(s.path("dir/comes")) || !gone(s.path("dir/new")) {
		t.Fatal("names are there too early")
	}

	w.remove("dir/goes")
	w.remove("dir/turns")
	w.remove("dir/old")
	w.put("dir/comes", 3)
	w.put("dir/grows", 20)
	w.put("dir/turns/file", 1)
	w.put("dir/new/file", 4)
	g.publish(w)
	g.settle(t, 1)
	want := []string{"comes", "grows", "new", "stays", "turns"}
	if d := cmp.Diff(want, listed(t, s.path("dir"))); d != "" {
		t.Error(d)
	}
	for name, there := range map[string]bool{
		"goes": false, "old": false, "old/file": false, "comes": true, "new/file": true, "turns/file": true, "stays": true,
	} {
		if gone(s.path("dir/"+name)) == there {
			t.Errorf("%s: there: %v, want %v", name, !there, there)
		}
	}
	var st unix.Stat_t
	must(t, unix.Lstat(s.path("dir/grows"), &st))
	if st.Size != 20 {
		t.Errorf("grows has %d bytes, want 20", st.Size)
	}
}

func TestRewinddirSeesANewGeneration(t *testing.T) {
	w := newWorld()
	w.put("dir/a", 1)
	s, g := following(t, w)
	fd := openDir(t, s.path("dir"))
	defer closeFD(t, fd)
	for i, name := range []string{"b", "c", "d"} {
		_, err := listRaw(fd, 32<<10)
		must(t, err)
		w.put("dir/"+name, 1)
		g.publish(w)
		g.settle(t, int64(i+1))
		_, err = unix.Seek(fd, 0, unix.SEEK_SET)
		must(t, err)
		entries, err := listRaw(fd, 32<<10)
		must(t, err)
		if got := namesIn(entries); !slices.Contains(got, name) {
			t.Errorf("%s is not in %q, through a directory that stayed open", name, got)
		}
		_, err = unix.Seek(fd, 0, unix.SEEK_SET)
		must(t, err)
	}
}

func TestANewGenerationCostsNothingWhereNothingChanged(t *testing.T) {
	w := newWorld()
	crowd(w, "same", 100)
	crowd(w, "other", 100)
	s, g := following(t, w)
	all := func() {
		for _, dir := range []string{"same", "other"} {
			for _, name := range listed(t, s.path(dir)) {
				inode64(t, s.path(dir+"/"+name))
			}
		}
	}
	all()
	w.put("other/file-000007.jpg", 99)
	g.publish(w)
	g.settle(t, 1)
	lookups, readdirs := g.lookups.Load(), g.readdirs.Load()
	all()
	if n := g.lookups.Load() - lookups; n > 1 {
		t.Errorf("one changed name made %d lookups", n)
	}
	// The directory that changed is read again: its names, and that there are no more.
	if n := g.readdirs.Load() - readdirs; n > 2 {
		t.Errorf("one changed name made %d readings of directories", n)
	}
}

func TestAnOpenReaderKeepsItsBytesAcrossGenerations(t *testing.T) {
	w := newWorld()
	before := w.put("dir/file", 300_000)
	s, g := following(t, w)
	f, err := os.Open(s.path("dir/file"))
	must(t, err)
	defer func() { must(t, f.Close()) }()
	got := make([]byte, before.Size)
	_, err = f.ReadAt(got, 0)
	must(t, err)
	same(t, got, all(before))

	after := w.put("dir/file", 200_000)
	g.publish(w)
	g.settle(t, 1)
	dropPages(t, f)
	clear(got)
	_, err = f.ReadAt(got, 0)
	must(t, err)
	same(t, got, all(before))
	same(t, readAll(t, s.path("dir/file")), all(after))
}

// TestListingAcrossGenerationsShowsEachNameOnce reads a directory piece by piece
// while generations come and others list and stat it.
func TestListingAcrossGenerationsShowsEachNameOnce(t *testing.T) {
	w := newWorld()
	stay := crowd(w, "dir", 5000)
	s, g := following(t, w)
	rng := rand.New(rand.NewPCG(3, 4))
	published := int64(0)
	for round := range 4 {
		fd := openDir(t, s.path("dir"))
		seen := map[string]int{}
		buf := make([]byte, 16<<10)
		for {
			entries, err := getdents(fd, buf)
			must(t, err)
			if len(entries) == 0 {
				break
			}
			for _, name := range namesIn(entries) {
				seen[name]++
			}
			for range 3 {
				name := fmt.Sprintf("dir/file-%06d.png", rng.IntN(5000))
				if rng.IntN(2) == 0 {
					w.put(name, 1)
				} else {
					w.remove(name)
				}
			}
			g.publish(w)
			published++
			if rng.IntN(2) == 0 {
				g.settle(t, published)
			}
			if rng.IntN(4) == 0 {
				listed(t, s.path("dir"))
			}
		}
		closeFD(t, fd)
		for _, name := range stay {
			if seen[name] != 1 {
				t.Fatalf("round %d: %s was listed %d times", round, name, seen[name])
			}
		}
		for name, n := range seen {
			if n != 1 {
				t.Fatalf("round %d: %s was listed %d times", round, name, n)
			}
		}
	}
}

// TestNothingOldIsLearntAfterAGeneration lets programs list and stat names while
// generations come. Answers are believed for ever, so one that arrives after the
// kernel was told to forget it would never be corrected.
func TestNothingOldIsLearntAfterAGeneration(t *testing.T) {
	w := newWorld()
	const dirs, files = 3, 40
	path := func(d, i int) string { return fmt.Sprintf("d%d/f%02d", d, i) }
	for d := range dirs {
		w.mkdir(fmt.Sprintf("d%d", d))
		for i := range files / 2 {
			w.put(path(d, i), 1)
		}
	}
	s, g := following(t, w)
	rng := rand.New(rand.NewPCG(5, 6))
	published := int64(0)
	for round := range 12 * stressFactor() {
		stop := make(chan struct{})
		var programs sync.WaitGroup
		for p := range 4 {
			rng := rand.New(rand.NewPCG(uint64(round), uint64(p)))
			programs.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
					}
					var st unix.Stat_t
					d := rng.IntN(dirs)
					if rng.IntN(8) > 0 {
						_ = unix.Lstat(s.path(path(d, rng.IntN(files))), &st) // that it was asked for counts
						continue
					}
					fd, err := unix.Open(s.path(fmt.Sprintf("d%d", d)), unix.O_RDONLY|unix.O_DIRECTORY, 0)
					if err != nil {
						continue
					}
					entries, _ := listRaw(fd, 4096) // the same
					for _, e := range entries {
						_ = unix.Fstatat(fd, e.Name, &st, unix.AT_SYMLINK_NOFOLLOW) // the same
					}
					_ = unix.Close(fd)
				}
			})
		}
		for range 15 {
			for range 1 + rng.IntN(10) {
				name := path(rng.IntN(dirs), rng.IntN(files))
				if rng.IntN(3) == 0 {
					w.remove(name)
				} else {
					w.put(name, int64(rng.IntN(1000)))
				}
			}
			g.publish(w)
			published++
			if rng.IntN(2) == 0 {
				g.settle(t, published)
			}
		}
		g.settle(t, published)
		close(stop)
		programs.Wait()
		for d := range dirs {
			dir := fmt.Sprintf("d%d", d)
			var want []string
			for i := range files {
				e, _, err := w.Lookup(t.Context(), dir, strings.TrimPrefix(path(d, i), dir+"/"))
				var st unix.Stat_t
				statErr := unix.Lstat(s.path(path(d, i)), &st)
				switch {
				case err != nil && !errors.Is(statErr, unix.ENOENT):
					t.Fatalf("round %d: %s is gone, but stat says %v", round, path(d, i), statErr)
				case err == nil && statErr != nil:
					t.Fatalf("round %d: %s is there, but stat says %v", round, path(d, i), statErr)
				case err == nil && st.Size != e.Object.Size:
					t.Fatalf("round %d: %s has %d bytes, want %d", round, path(d, i), st.Size, e.Object.Size)
				case err == nil:
					want = append(want, e.Name)
				}
			}
			got := listed(t, s.path(dir))
			slices.Sort(got)
			if d := cmp.Diff(want, got); d != "" {
				t.Fatalf("round %d: %s: %s", round, dir, d)
			}
		}
	}
}
