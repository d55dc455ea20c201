package fs

import (
	"fmt"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pailfs/pailfs/cache"
)

// walker lists directories one after another on one thread, all names of each before
// it asks for attributes, with the buffers of the C library.
type walker struct {
	t *testing.T
	s *site
}

// visit lists a directory, asks for the attributes of its files if stat is set, and
// returns how many lookups that made.
func (w *walker) visit(dir string, files int, stat bool) int64 {
	w.t.Helper()
	fd := openDir(w.t, w.s.path(dir))
	defer closeFD(w.t, fd)
	var st unix.Stat_t
	must(w.t, unix.Fstat(fd, &st))
	buf := make([]byte, st.Blksize)
	before := w.s.lookups.Load()
	var found []string
	for {
		some, err := getdents(fd, buf)
		must(w.t, err)
		if len(some) == 0 {
			break
		}
		found = append(found, namesIn(some)...)
	}
	if len(found) != files {
		w.t.Fatalf("%s: %d names, want %d", dir, len(found), files)
	}
	for _, name := range found {
		if stat {
			must(w.t, unix.Fstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW))
		}
	}
	return w.s.lookups.Load() - before
}

// As find(1) and du(1) do: the kernel cannot know while they read the names that they
// want the attributes too. Before 6.16 it asked for a page of a directory at a time,
// whatever the reader's buffer: this holds from there on.
func TestWhoStatsWhatItHasListedIsGivenAttributes(t *testing.T) {
	const dirs, files = 6, 1000
	for _, mode := range []string{"ordinary", "numbered"} {
		t.Run(mode, func(t *testing.T) {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			w := newWorld()
			for i := range 3 * dirs {
				crowd(w, fmt.Sprintf("d%02d", i), files)
			}
			crowd(w, "small", 20)
			var s *site
			if mode == "numbered" {
				s, _ = numberedSite(t, w)
			} else {
				s = mounted(t, w, Config{}, cache.Config{})
			}
			at := func(i int) string {
				name := fmt.Sprintf("d%02d", i)
				inode64(t, s.path(name))
				return name
			}
			walk := &walker{t, s}
			if n := walk.visit(at(0), files, true); n < files/2 || n > files-firstPlus {
				t.Errorf("%d lookups in the first of the directories", n)
			}
			for i := 1; i < dirs; i++ {
				if n := walk.visit(at(i), files, true); n > 5 {
					t.Errorf("%d lookups in directory %d of those whose files are looked at", n, i)
				}
				if n := walk.visit("small", 20, true); i == 1 && n > 1 {
					t.Errorf("%d lookups in a small directory", n)
				}
			}
			// One directory tells that the attributes are not wanted any more.
			walk.visit(at(dirs), files, false)
			before := s.mount.Status().Inodes
			for i := dirs + 1; i < 2*dirs; i++ {
				walk.visit(at(i), files, false)
			}
			if n := s.mount.Status().Inodes - before; n > dirs*(firstPlus+1) {
				t.Errorf("names of %d directories made %d inodes", dirs-1, n)
			}
			// And one that they are wanted again.
			walk.visit(at(2*dirs), files, true)
			if n := walk.visit(at(2*dirs+1), files, true); n > 5 {
				t.Errorf("%d lookups by a reader that looks at files again", n)
			}
		})
	}
}
