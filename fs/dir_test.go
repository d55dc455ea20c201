package fs

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/pailfs/pailfs/cache"
	"github.com/pailfs/pailfs/fs/internal/listing"
	"github.com/pailfs/pailfs/fs/internal/seeks"
)

// openDir opens a directory without the buffering of package os.
func openDir(t testing.TB, path string) int {
	t.Helper()
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	must(t, err)
	return fd
}

func closeFD(t testing.TB, fd int) {
	t.Helper()
	must(t, unix.Close(fd))
}

func namesIn(entries []rawDirent) []string {
	var found []string
	for _, e := range entries {
		if e.Name != "." && e.Name != ".." {
			found = append(found, e.Name)
		}
	}
	return found
}

// listed returns what a fresh open of a directory lists, in its order.
func listed(t testing.TB, path string) []string {
	t.Helper()
	fd := openDir(t, path)
	defer closeFD(t, fd)
	entries, err := listRaw(fd, 32<<10)
	must(t, err)
	return namesIn(entries)
}

func TestListingShowsNamesAndTypes(t *testing.T) {
	w := newWorld()
	w.put("dir/file", 1)
	w.mkdir("dir/sub")
	w.symlink("dir/link", "file")
	s := mounted(t, w, Config{}, cache.Config{})
	fd := openDir(t, s.path("dir"))
	defer closeFD(t, fd)
	entries, err := listRaw(fd, 32<<10)
	must(t, err)
	got := map[string]byte{}
	for _, e := range entries {
		got[e.Name] = e.Type
	}
	want := map[string]byte{".": unix.DT_DIR, "..": unix.DT_DIR, "file": unix.DT_REG, "sub": unix.DT_DIR, "link": unix.DT_LNK}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if got := listed(t, s.path("dir/sub")); len(got) != 0 {
		t.Errorf("an empty directory lists %q", got)
	}
}

func TestAwkwardNamesAreListedAndRead(t *testing.T) {
	w := newWorld()
	awkward := []string{
		" leading", "trailing ", "new\nline", "tab\t", "quo\"te'", "back\\slash", "*?[", "-rf", "~", ".hidden", "...",
		"\xff\xfe not UTF-8", "e\u0301 combining", "日本語", "🚀", strings.Repeat("x", 255), strings.Repeat("é", 127), "a:b|c", "%2F",
	}
	want := map[string][]byte{}
	for i, name := range awkward {
		want[name] = all(w.put("dir/"+name, int64(100+i)))
	}
	s := mounted(t, w, Config{}, cache.Config{})
	got := map[string][]byte{}
	for _, name := range listed(t, s.path("dir")) {
		got[name] = readAll(t, s.dir+"/dir/"+name)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

// crowd makes a directory of n files and returns their names in order.
func crowd(w *world, dir string, n int) []string {
	var all []string
	for i := range n {
		name := fmt.Sprintf("file-%06d.jpg", i)
		w.put(dir+"/"+name, 1)
		all = append(all, name)
	}
	return all
}

func TestLargeDirectoryIsListedOnceAndWhole(t *testing.T) {
	untilUndisturbed(t, func(t *testing.T, p *pages) string {
		w := newWorld()
		want := crowd(w, "dir", crowdSize())
		s := mounted(t, w, Config{}, cache.Config{})
		return listedOnce(t, s, p, want, &w.readdirs)
	})
}

// listedOnce lists the directory "dir" twice and returns what is wrong if the
// second listing asks the tree.
func listedOnce(t *testing.T, s *site, p *pages, want []string, asked *atomic.Int64) (wrong string) {
	t.Helper()
	if d := cmp.Diff(want, listed(t, s.path("dir"))); d != "" {
		t.Fatalf("first listing: %.2000s", d)
	}
	p.look(t, s.path("dir"))
	before := asked.Load()
	if d := cmp.Diff(want, listed(t, s.path("dir"))); d != "" {
		t.Fatalf("second listing: %.2000s", d)
	}
	if n := asked.Load() - before; n != 0 {
		wrong = fmt.Sprintf("the second listing asked the tree %d times, want the kernel's cache", n)
	}
	p.look(t, s.path("dir"))
	if n := s.mount.Status().Inodes; n > 2000 {
		t.Errorf("listing the names made %d inodes", n)
	}
	return wrong
}

func crowdSize() int {
	if testing.Short() {
		return 10_000
	}
	return 100_000
}

// TestSeekingReadersOfALargeDirectory lets readers jump about in one directory:
// whatever follows a remembered position must be what followed it before.
func TestSeekingReadersOfALargeDirectory(t *testing.T) {
	for _, c := range []struct {
		name string
		ttl  time.Duration
	}{{"kernel cache kept", -1}, {"kernel cache dropped at every open", 0}} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld()
			w.ttl = c.ttl
			want := crowd(w, "dir", crowdSize())
			s := mounted(t, w, Config{}, cache.Config{})
			var wg sync.WaitGroup
			for g := range 8 {
				wg.Go(func() {
					rng := rand.New(rand.NewPCG(uint64(g), 7))
					if err := seekAbout(s.path("dir"), want, rng); err != nil {
						t.Errorf("reader %d: %v", g, err)
					}
				})
			}
			wg.Wait()
		})
	}
}

func seekAbout(path string, want []string, rng *rand.Rand) error {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }() // only read
	buf := make([]byte, 4096+rng.IntN(28<<10))
	after := map[int64]int{0: 0} // offset → index in want of what follows it
	at := 0
	for range 200 {
		switch rng.IntN(10) {
		case 0: // rewinddir
			if _, err := unix.Seek(fd, 0, unix.SEEK_SET); err != nil {
				return err
			}
			at = 0
		case 1, 2: // seekdir to a place that telldir gave
			for off, index := range after { // any of them
				if _, err := unix.Seek(fd, off, unix.SEEK_SET); err != nil {
					return err
				}
				at = index
				break
			}
		default:
			entries, err := getdents(fd, buf)
			if err != nil {
				return err
			}
			for _, e := range entries {
				if e.Name != "." && e.Name != ".." {
					if at >= len(want) || e.Name != want[at] {
						return fmt.Errorf("entry %d is %q", at, e.Name)
					}
					at++
				}
				after[e.Off] = at
			}
			if len(entries) == 0 && at != len(want) {
				return fmt.Errorf("the directory ends after %d of %d entries", at, len(want))
			}
		}
	}
	return nil
}

// Offsets that the kernel has kept of a directory that was closed lead to the same
// names although others before them have gone meanwhile: as a program meets that
// removes what it lists.
func TestListingGoesOnWhereTheKernelsCacheEnds(t *testing.T) {
	untilUndisturbed(t, goesOnWhereTheKernelsCacheEnds)
}

func goesOnWhereTheKernelsCacheEnds(t *testing.T, p *pages) (wrong string) {
	w := newWorld()
	want := crowd(w, "dir", 3000)
	s := mounted(t, w, Config{}, cache.Config{})
	listed(t, s.path("dir")) // the kernel keeps it
	p.look(t, s.path("dir"))
	eventually(t, "it is released", func() bool { return s.mount.Status().OpenDirs == 0 })

	fd := openDir(t, s.path("dir"))
	defer closeFD(t, fd)
	before := w.readdirs.Load()
	buf := make([]byte, 4096)
	var got []string
	for removed := 0; ; {
		entries, err := getdents(fd, buf)
		must(t, err)
		if len(entries) == 0 {
			break
		}
		got = append(got, namesIn(entries)...)
		if removed == 0 && w.readdirs.Load() != before {
			wrong = "the beginning does not come from the kernel's cache"
		}
		for ; removed < len(got); removed++ {
			w.remove("dir/" + got[removed])
		}
		// As a removal through the mount does.
		s.mount.fs.inodes.notify.ContentNow(inode64(t, s.path("dir")))
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("%d of %d names: %.1000s", len(got), len(want), d)
	}
	return wrong
}

func TestListingSeesChangesWhenItExpires(t *testing.T) {
	w := newWorld()
	w.ttl = 0
	w.put("dir/a", 1)
	w.put("dir/c", 1)
	s := mounted(t, w, Config{}, cache.Config{})
	steps := []struct {
		change func()
		want   []string
	}{
		{func() {}, []string{"a", "c"}},
		{func() { w.put("dir/b", 1) }, []string{"a", "b", "c"}},
		{func() { w.remove("dir/a") }, []string{"b", "c"}},
		{func() { w.remove("dir/b"); w.remove("dir/c") }, nil},
		{func() { w.put("dir/d", 1) }, []string{"d"}},
	}
	for i, step := range steps {
		step.change()
		if d := cmp.Diff(step.want, listed(t, s.path("dir"))); d != "" {
			t.Errorf("step %d: %s", i, d)
		}
	}
}

func TestRewinddirSeesChangesWhenTheListingExpires(t *testing.T) {
	w := newWorld()
	w.ttl = 50 * time.Millisecond
	w.put("dir/a", 1)
	s := mounted(t, w, Config{}, cache.Config{})
	fd := openDir(t, s.path("dir"))
	defer closeFD(t, fd)
	list := func() []string {
		_, err := unix.Seek(fd, 0, unix.SEEK_SET)
		must(t, err)
		entries, err := listRaw(fd, 32<<10)
		must(t, err)
		return namesIn(entries)
	}
	if d := cmp.Diff([]string{"a"}, list()); d != "" {
		t.Fatal(d)
	}
	for _, name := range []string{"b", "c", "d"} {
		w.put("dir/"+name, 1)
		eventually(t, name+" is seen through a directory that stays open", func() bool { return slices.Contains(list(), name) })
	}
}

// TestChangesWhileReadingKeepTheOtherNames holds what POSIX asks: a name that is
// there all the time is listed exactly once, whatever comes and goes beside it.
func TestChangesWhileReadingKeepTheOtherNames(t *testing.T) {
	w := newWorld()
	w.ttl = 0
	stay := crowd(w, "dir", 5000)
	s := mounted(t, w, Config{}, cache.Config{})
	rng := rand.New(rand.NewPCG(1, 2))
	for round := range 5 {
		fd := openDir(t, s.path("dir"))
		other := openDir(t, s.path("dir"))
		seen := map[string]int{}
		buf := make([]byte, 8<<10)
		for {
			entries, err := getdents(fd, buf)
			must(t, err)
			if len(entries) == 0 {
				break
			}
			for _, name := range namesIn(entries) {
				seen[name]++
			}
			name := fmt.Sprintf("dir/file-%06d.png", rng.IntN(5000))
			if rng.IntN(2) == 0 {
				w.put(name, 1)
			} else {
				w.remove(name)
			}
			if rng.IntN(4) == 0 { // somebody else starts over, and mixes the kernel's cache
				_, err := unix.Seek(other, 0, unix.SEEK_SET)
				must(t, err)
				_, err = getdents(other, buf)
				must(t, err)
			}
		}
		for _, name := range stay {
			if seen[name] != 1 {
				t.Fatalf("round %d: %s was listed %d times", round, name, seen[name])
			}
		}
		closeFD(t, fd)
		closeFD(t, other)
	}
}

func TestPositionsSurviveTheReaderThatMadeThem(t *testing.T) {
	w := newWorld()
	want := crowd(w, "dir", 5000)
	s := mounted(t, w, Config{}, cache.Config{})
	fd := openDir(t, s.path("dir"))
	buf := make([]byte, 8<<10)
	var off int64
	var at int
	for range 3 {
		entries, err := getdents(fd, buf)
		must(t, err)
		at += len(namesIn(entries))
		off = entries[len(entries)-1].Off
	}
	closeFD(t, fd) // and with it goes what we remember of positions
	eventually(t, "the directory is released", func() bool { return s.mount.Status().OpenDirs == 0 })
	fd = openDir(t, s.path("dir"))
	defer closeFD(t, fd)
	_, err := unix.Seek(fd, off, unix.SEEK_SET)
	must(t, err)
	entries, err := listRaw(fd, 32<<10)
	must(t, err)
	if d := cmp.Diff(want[at:], namesIn(entries)); d != "" {
		t.Errorf("after entry %d: %.2000s", at, d)
	}
}

func TestListingWithAttributesSavesLookups(t *testing.T) {
	w := newWorld()
	crowd(w, "dir", 50)
	s := mounted(t, w, Config{}, cache.Config{})
	inode64(t, s.path("dir"))
	before := w.lookups.Load()
	for _, name := range listed(t, s.path("dir")) {
		info, err := os.Lstat(s.path("dir/" + name))
		must(t, err)
		if info.Size() != 1 {
			t.Errorf("%s has %d bytes", name, info.Size())
		}
	}
	if n := w.lookups.Load() - before; n != 0 {
		t.Errorf("listing and stat of 50 files made %d lookups", n)
	}
}

func TestListAndStatAsOneGoesMakesFewLookups(t *testing.T) {
	w := newWorld()
	const files = 20_000
	crowd(w, "dir", files)
	s := mounted(t, w, Config{}, cache.Config{})
	fd := openDir(t, s.path("dir"))
	defer closeFD(t, fd)
	buf := make([]byte, 32<<10)
	for {
		entries, err := getdents(fd, buf)
		must(t, err)
		if len(entries) == 0 {
			break
		}
		for _, e := range entries {
			var st unix.Stat_t
			must(t, unix.Fstatat(fd, e.Name, &st, unix.AT_SYMLINK_NOFOLLOW))
		}
	}
	if n := w.lookups.Load(); n > files/10 {
		t.Errorf("stat of every entry as it is listed made %d lookups for %d files", n, files)
	}
}

func TestListingErrorsReachTheReader(t *testing.T) {
	w := newWorld()
	crowd(w, "dir", 3000)
	s := mounted(t, w, Config{}, cache.Config{})
	calls := 0
	w.failing(func(_ context.Context, op, _ string) error {
		if op == "readdir" {
			if calls++; calls == 2 || calls == 3 {
				return errors.New("the store is in flames")
			}
		}
		return nil
	})
	fd := openDir(t, s.path("dir"))
	defer closeFD(t, fd)
	seen := map[string]bool{}
	failures := 0
	buf := make([]byte, 8<<10)
	for {
		entries, err := getdents(fd, buf)
		if err != nil {
			if !errors.Is(err, unix.EIO) {
				t.Fatal(err)
			}
			failures++
			continue // as a patient reader would
		}
		if len(entries) == 0 {
			break
		}
		for _, name := range namesIn(entries) {
			seen[name] = true
		}
	}
	// The first error comes when entries are at hand and is tried again.
	if failures != 1 || len(seen) != 3000 {
		t.Errorf("%d failures, %d names; want the error once and then all 3000", failures, len(seen))
	}
}

// TestSeekingCostsTheSameInALargeDirectory goes to every position of a directory and reads
// one entry there, as seekdir(3) and readdir(3) do, with a buffer for thousands. What the
// tree is asked for, and what the kernel is told, does not grow with the directory.
func TestSeekingCostsTheSameInALargeDirectory(t *testing.T) {
	const most = seeks.First * listing.SoughtPage // entries a position, of the tree and in answers
	for _, files := range []int{100, 3000} {
		w := newWorld()
		w.ttl = 0 // or the kernel would answer by itself
		crowd(w, "dir", files)
		s := mounted(t, w, Config{}, cache.Config{})
		first := openDir(t, s.path("dir"))
		defer closeFD(t, first)
		whole, err := listRaw(first, 256<<10)
		must(t, err)
		fd := openDir(t, s.path("dir")) // for which the kernel drops what it has
		defer closeFD(t, fd)
		before, given, buf := w.listed.Load(), 0, make([]byte, 256<<10)
		for i, e := range whole[:len(whole)-1] {
			_, err := unix.Seek(fd, e.Off, unix.SEEK_SET)
			must(t, err)
			next, err := getdents(fd, buf)
			must(t, err)
			if len(next) == 0 || next[0].Name != whole[i+1].Name {
				t.Fatalf("%d files: after %q comes %q, want %q", files, e.Name, namesIn(next), whole[i+1].Name)
			}
			given += len(next)
		}
		asked := int(w.listed.Load() - before)
		if given > most*files || asked > most*files {
			t.Errorf("%d files: %d entries were asked of the tree and %d given, at %d positions", files, asked, given, len(whole))
		}
	}
}

// TestSeekingReaderWhoReadsOnGetsAllThereIs: few entries first, and then the more.
func TestSeekingReaderWhoReadsOnGetsAllThereIs(t *testing.T) {
	w := newWorld()
	w.ttl = 0
	want := crowd(w, "dir", 9000)
	s := mounted(t, w, Config{}, cache.Config{})
	fd := openDir(t, s.path("dir"))
	defer closeFD(t, fd)
	start, err := getdents(fd, make([]byte, 256<<10))
	must(t, err)
	from := len(start) / 2
	_, err = unix.Seek(fd, start[from-1].Off, unix.SEEK_SET)
	must(t, err)
	rest, err := listRaw(fd, 256<<10)
	must(t, err)
	got := append(namesIn(start[:from]), namesIn(rest)...)
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}
