package fs

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pailfs/pailfs/cache"
	"github.com/pailfs/pailfs/oss"
)

func TestLookupFollowsTheTree(t *testing.T) {
	w := newWorld()
	w.put("dir/sub/file", 10)
	s := mounted(t, w, Config{}, cache.Config{})
	for _, c := range []struct {
		name string
		want error
	}{
		{"dir", nil},
		{"dir/sub/file", nil},
		{"dir/none", unix.ENOENT},
		{"none/file", unix.ENOENT},
		{"dir/sub/file/below", unix.ENOTDIR},
		{"dir/" + strings.Repeat("n", 256), unix.ENAMETOOLONG},
	} {
		var st unix.Stat_t
		if err := unix.Stat(s.path(c.name), &st); !errors.Is(err, c.want) {
			t.Errorf("stat %.40q: %v, want %v", c.name, err, c.want)
		}
	}
}

func TestAnswersAreBelievedForTheirValidity(t *testing.T) {
	stats := func(s *site, name string) {
		for range 5 {
			var st unix.Stat_t
			_ = unix.Stat(s.path(name), &st)
		}
	}
	for _, c := range []struct {
		ttl  time.Duration
		want int64
	}{
		{-1, 1},        // for ever
		{time.Hour, 1}, // longer than the test
		{0, 5},         // expired when it is given
	} {
		w := newWorld()
		w.ttl, w.negativeTTL = c.ttl, c.ttl
		w.put("file", 1)
		s := mounted(t, w, Config{}, cache.Config{})
		for _, name := range []string{"file", "none"} {
			before := w.lookups.Load()
			stats(s, name)
			if got := w.lookups.Load() - before; got != c.want {
				t.Errorf("ttl %v: 5 stats of %s made %d lookups, want %d", c.ttl, name, got, c.want)
			}
		}
	}
}

func TestAttributes(t *testing.T) {
	w := newWorld()
	w.put("file", 1000)
	w.symlink("link", "file")
	w.mkdir("dir")
	s := mounted(t, w, Config{UID: 1234, GID: 5678, FileMode: 0o640, DirMode: 0o750}, cache.Config{})
	for _, c := range []struct {
		name   string
		mode   uint32
		size   int64
		blocks int64
	}{
		{"file", unix.S_IFREG | 0o640, 1000, 2},
		{"link", unix.S_IFLNK | 0o777, 4, 0},
		{"dir", unix.S_IFDIR | 0o750, 0, 0},
		{"", unix.S_IFDIR | 0o750, 0, 0},
	} {
		var st unix.Stat_t
		must(t, unix.Lstat(s.path(c.name), &st))
		if st.Mode != c.mode || st.Size != c.size || st.Blocks != c.blocks {
			t.Errorf("%q: mode %o size %d blocks %d, want %o %d %d", c.name, st.Mode, st.Size, st.Blocks, c.mode, c.size, c.blocks)
		}
		if st.Uid != 1234 || st.Gid != 5678 || st.Nlink != 1 {
			t.Errorf("%q: owner %d:%d links %d", c.name, st.Uid, st.Gid, st.Nlink)
		}
		// The C library reads a directory by its block size.
		if dir := c.mode&unix.S_IFMT == unix.S_IFDIR; dir && st.Blksize != dirBlock || !dir && st.Blksize != 4096 {
			t.Errorf("%q: block size %d", c.name, st.Blksize)
		}
		if c.mode&unix.S_IFMT != unix.S_IFDIR && time.Unix(st.Mtim.Unix()).UTC() != bornAt {
			t.Errorf("%q: modified %v, want %v", c.name, time.Unix(st.Mtim.Unix()).UTC(), bornAt)
		}
	}
}

func TestModesAreEnforcedByTheKernel(t *testing.T) {
	w := newWorld()
	w.put("file", 10)
	s := mounted(t, w, Config{UID: 1, GID: 1, FileMode: 0o600, DirMode: 0o755, AllowOther: true}, cache.Config{})
	must(t, os.Chmod(s.dir+"/..", 0o755))
	var got accessResult
	inReader(t, "access", accessArgs{UID: 65534, Path: s.path("file")}, &got)
	if got.Open != int(unix.EACCES) || got.Stat != 0 {
		t.Errorf("another user: open gives %v, stat %v; want EACCES and 0", syscall.Errno(got.Open), syscall.Errno(got.Stat))
	}
	inReader(t, "access", accessArgs{UID: 1, Path: s.path("file")}, &got)
	if got.Open != 0 {
		t.Errorf("the owner: open gives %v", syscall.Errno(got.Open))
	}
}

func TestInodeNumbersAreStable(t *testing.T) {
	w := newWorld()
	for i := range 50 {
		w.put(fmt.Sprintf("dir/f%d", i), int64(i))
	}
	numbers := func() map[string]uint64 {
		s := mounted(t, w, Config{}, cache.Config{})
		defer func() { must(t, s.mount.Unmount()) }()
		found := map[string]uint64{}
		for _, name := range []string{"dir", "dir/f0", "dir/f49"} {
			found[name] = inode64(t, s.path(name))
		}
		entries, err := direntInodes(s.path("dir"))
		must(t, err)
		for name, ino := range entries {
			if st := inode64(t, s.path("dir/"+name)); name != ".." && st != ino {
				t.Errorf("%s: d_ino %d, st_ino %d", name, ino, st)
			}
		}
		return found
	}
	first, again := numbers(), numbers()
	for name, ino := range first {
		if ino != again[name] {
			t.Errorf("%s: inode number %d, after a remount %d", name, ino, again[name])
		}
	}
}

func TestAnotherVersionIsAnotherInode(t *testing.T) {
	w := newWorld()
	w.ttl = 0
	w.put("file", 10)
	s := mounted(t, w, Config{}, cache.Config{})
	before := inode64(t, s.path("file"))
	w.put("file", 10)
	if after := inode64(t, s.path("file")); after == before {
		t.Errorf("both versions have inode number %d", after)
	}
}

func TestInodesLeaveTheTableWhenTheKernelForgets(t *testing.T) {
	w := newWorld()
	const files = 500
	for i := range files {
		w.put(fmt.Sprintf("dir/f%04d", i), 1)
	}
	s := mounted(t, w, Config{}, cache.Config{})
	for range 3 {
		for i := range files {
			inode64(t, s.path(fmt.Sprintf("dir/f%04d", i)))
		}
		if n := s.mount.Status().Inodes; n < files {
			t.Fatalf("%d inodes are known, want at least %d", n, files)
		}
		s.shrink(t)
		eventually(t, "the inodes are forgotten", func() bool { return s.mount.Status().Inodes < files/10 })
	}
}

func TestCollidingInodeNumbersAreTwoInodes(t *testing.T) {
	root := newRoot()
	table := newNodeTable(root)
	node := func(key string) *inode {
		return &inode{id: 77, object: oss.Object{Key: key}}
	}
	a, b := table.acquire(node("a")), table.acquire(node("b"))
	if a == b || a.id == b.id {
		t.Fatalf("two identities share inode %d", a.id)
	}
	if table.acquire(node("b")) != b || table.acquire(node("a")) != a {
		t.Error("an identity is not found again beside one with its number")
	}
	for _, n := range []*inode{a, b} {
		if table.forget(n.id, 1) != nil || table.forget(n.id, 1) != n {
			t.Error("an inode does not leave with its second and last reference")
		}
	}
	if n := table.count.Load(); n != 1 {
		t.Errorf("%d inodes left, want the root", n)
	}
}

func TestConcurrentLookupsAndForgetsKeepCount(t *testing.T) {
	table := newNodeTable(newRoot())
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 5000 {
				want := &inode{id: usable(uint64(10 + (i+g)%16)), object: oss.Object{Key: fmt.Sprint((i + g) % 16)}}
				n := table.acquire(want)
				if table.get(n.id) != n {
					t.Errorf("inode %d with a reference is not in the table", n.id)
					return
				}
				table.forget(n.id, 1)
			}
		})
	}
	wg.Wait()
	if n := table.count.Load(); n != 1 {
		t.Errorf("%d inodes left, want the root", n)
	}
}

func TestSymlinks(t *testing.T) {
	w := newWorld()
	o := w.put("dir/file", 5000)
	w.symlink("dir/link", "file")
	w.symlink("up", "dir/link")
	w.symlink("broken", "none")
	s := mounted(t, w, Config{}, cache.Config{})
	target, err := os.Readlink(s.path("up"))
	must(t, err)
	if target != "dir/link" {
		t.Errorf("target %q", target)
	}
	same(t, readAll(t, s.path("up")), all(o))
	if _, err := os.Stat(s.path("broken")); !os.IsNotExist(err) {
		t.Errorf("stat of a broken link: %v", err)
	}
}
