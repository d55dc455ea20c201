package fs

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pailfs/pailfs/fs/internal/names"
	"github.com/pailfs/pailfs/manifest"
	"github.com/pailfs/pailfs/manifest/attributes"
	"github.com/pailfs/pailfs/oss"
	"github.com/pailfs/pailfs/oss/ossemu/ossemutest"
)

// counted counts the questions for names and for attributes of many.
type counted struct {
	*attributes.Tree
	lookups, completed atomic.Int64
}

func (c *counted) Lookup(ctx context.Context, dir, name string) (manifest.Entry, manifest.Validity, error) {
	if dir != "" {
		c.lookups.Add(1)
	}
	return c.Tree.Lookup(ctx, dir, name)
}

// Complete waits for as long as it takes: what an answer gives up after a second depends on the
// machine.
func (c *counted) Complete(ctx context.Context, dir string, entries []manifest.Entry) {
	c.completed.Add(1)
	c.Tree.Complete(context.WithoutCancel(ctx), dir, entries)
}

// mountModes mounts directories of files of which each has a mode of its own.
func mountModes(t *testing.T, dirs, files int) (*written, *counted, *ossemutest.Emulator) {
	t.Helper()
	e := startStore(t)
	client := writtenClient(t, e, testLog(t))
	for d := range dirs {
		for i := range files {
			_, err := client.As(oss.Upload).Put(t.Context(), fmt.Sprintf("d%d/%04d", d, i), strings.NewReader("x"),
				oss.PutOptions{Meta: map[string]string{"mode": fmt.Sprint(0o100000 + modeOf(i))}, RoughTime: true})
			must(t, err)
		}
	}
	must(t, client.Close())
	tree := new(counted)
	w := mountWritten(t, e, writtenOptions{config: Config{Attrs: true}, ttl: time.Hour, shown: func(shown *attributes.Tree) manifest.Tree {
		tree.Tree = shown
		return tree
	}})
	return w, tree, e
}

func modeOf(i int) uint32 { return 0o400 + uint32(i)%0o400 }

// listAndStat lists dir with a buffer of size bytes, and looks at each name, at once or when it
// has all; it compares the modes.
func listAndStat(t *testing.T, w *written, dir string, files, size int, atOnce bool) {
	t.Helper()
	fd := openDir(t, w.path(dir))
	defer closeFD(t, fd)
	var later []string
	look := func(found []string) {
		for _, name := range found {
			var st unix.Stat_t
			must(t, unix.Fstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW))
			var i int
			_, err := fmt.Sscanf(name, "%04d", &i)
			must(t, err)
			if got := st.Mode & names.Permissions; got != modeOf(i) {
				t.Errorf("%s/%s has mode %o, want %o", dir, name, got, modeOf(i))
			}
		}
	}
	buf := make([]byte, size)
	for {
		some, err := getdents(fd, buf)
		must(t, err)
		if len(some) == 0 {
			break
		}
		later = append(later, namesIn(some)...)
		if atOnce {
			look(namesIn(some))
		}
	}
	if len(later) != files {
		t.Errorf("%d names of %s, want %d", len(later), dir, files)
	}
	if !atOnce {
		look(later)
	}
}

// As ls -l does, which has one thread. Each name is asked for once, and few are looked up.
func TestListingBringsTheAttributesOfManyNames(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	const files = 900 // one page
	w, tree, e := mountModes(t, 1, files)
	before := e.Requests("HeadObject")
	listAndStat(t, w, "d0", files, dirBlock, true)
	if n := tree.lookups.Load(); n > 2*firstPlus {
		t.Errorf("%d lookups, want those of the first names only", n)
	}
	if tree.completed.Load() == 0 {
		t.Error("the attributes of no page are asked for together")
	}
	// And the marker of the directory.
	if n := e.Requests("HeadObject") - before; n > files+1 {
		t.Errorf("%d HEADs for %d files", n, files)
	}
}

// As os.walk and lstat do: all names first. The second directory comes with its attributes.
func TestWhoStatsAfterListingIsGivenAttributesOfTheNextAtOnce(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	const files = 600
	w, tree, e := mountModes(t, 2, files)
	before := e.Requests("HeadObject")
	listAndStat(t, w, "d0", files, dirBlock, false)
	if n := tree.completed.Load(); n > 0 {
		t.Errorf("who has looked at nothing yet is asked for: %d times", n)
	}
	was := tree.lookups.Load()
	listAndStat(t, w, "d1", files, dirBlock, false)
	if n := tree.lookups.Load() - was; n > 3 {
		t.Errorf("%d lookups in the second directory", n)
	}
	if n := e.Requests("HeadObject") - before; n > 2*files+2 {
		t.Errorf("%d HEADs for %d files", n, 2*files)
	}
}

// Names alone cost no HEAD of a file.
func TestListingOfNamesAsksForNoAttributes(t *testing.T) {
	const files = 600
	w, tree, e := mountModes(t, 1, files)
	for range 3 {
		fd := openDir(t, w.path("d0"))
		buf := make([]byte, dirBlock)
		for {
			some, err := getdents(fd, buf)
			must(t, err)
			if len(some) == 0 {
				break
			}
		}
		closeFD(t, fd)
	}
	if n := e.Requests("HeadObject"); n > 1 || tree.completed.Load() > 0 { // the marker of the directory
		t.Errorf("%d HEADs for names", n)
	}
}
