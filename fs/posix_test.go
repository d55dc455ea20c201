package fs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"testing"

	"github.com/hanwen/go-fuse/v2/posixtest"
	"golang.org/x/sys/unix"

	"github.com/pailfs/pailfs/cache"
)

// posixNeeds says of every test of posixtest what it must be able to write before
// it reads anything. All of them make their own files, so none can run on a mount
// that cannot be written; what they claim of reading is claimed in posixReads, of
// files that are there already.
var posixNeeds = map[string]string{
	"AppendWrite":                "appends",
	"DirSeek":                    "creates files; its reading is here",
	"DirectIO":                   "creates a file; its reading is here",
	"Fallocate":                  "allocates",
	"FallocateKeepSize":          "allocates",
	"FcntlFlockLocksFile":        "creates a file; its locking is here",
	"FcntlFlockSetLk":            "creates a file; its locking is here",
	"FdLeak":                     "creates files; its reading is here",
	"FileBasic":                  "creates a file; its reading is here",
	"FileLarge":                  "creates a file; its reading is here",
	"FstatDeleted":               "deletes files",
	"Link":                       "links",
	"LinkUnlinkRename":           "links and renames",
	"LseekEnxioCheck":            "creates a file; its seeking is here",
	"LseekHoleSeeksToEOF":        "creates a file; its seeking is here",
	"MkdirRmdir":                 "makes directories",
	"NlinkZero":                  "renames over a file",
	"OpenAt":                     "creates a file; its reading is here",
	"OpenSymlinkRace":            "creates links; the race is that of replacing, see TestReplacingWhileReadingNeverMixes",
	"ParallelFileOpen":           "creates a file; its reading is here",
	"ReadDirBasic":               "creates files; its reading is here",
	"ReadDirConsistency":         "creates files; its reading is here",
	"RenameOpenDir":              "renames",
	"RenameOverwriteDestExist":   "renames",
	"RenameOverwriteDestNoExist": "renames",
	"SetattrSymlink":             "sets times",
	"SymlinkReadlink":            "creates a link; its reading is here",
	"Tmpfile":                    "creates files",
	"TruncateFile":               "truncates",
	"TruncateNoFile":             "truncates",
	"XAttr":                      "sets attributes; reading them is in TestExtendedAttributes",
	"XAttrLarge":                 "sets attributes",
}

func TestEveryPosixTestIsAccountedFor(t *testing.T) {
	for name := range posixtest.All {
		if posixNeeds[name] == "" {
			t.Errorf("posixtest.%s is neither run nor named", name)
		}
	}
	for name := range posixNeeds {
		if posixtest.All[name] == nil {
			t.Errorf("posixtest has no %s", name)
		}
	}
}

// posixReads are the claims of posixtest about reading. Each is given the mount.
var posixReads = map[string]func(t *testing.T, s *site){
	"DirectIO": func(t *testing.T, s *site) {
		fd, err := unix.Open(s.path("file"), unix.O_RDONLY|unix.O_DIRECT, 0)
		must(t, err)
		defer closeFD(t, fd)
		buf := aligned(64 << 10)
		n, err := unix.Pread(fd, buf, 0)
		must(t, err)
		same(t, buf[:n], s.expect(t, "file"))
	},
	"FcntlFlockLocks": func(t *testing.T, s *site) {
		open := func() int {
			fd, err := unix.Open(s.path("file"), unix.O_RDONLY, 0)
			must(t, err)
			return fd
		}
		a, b := open(), open()
		must(t, unix.Flock(a, unix.LOCK_EX))
		if err := unix.Flock(b, unix.LOCK_EX|unix.LOCK_NB); !errors.Is(err, unix.EWOULDBLOCK) {
			t.Errorf("flock of a locked file: %v", err)
		}
		lock := unix.Flock_t{Type: unix.F_RDLCK, Len: 10}
		must(t, unix.FcntlFlock(uintptr(a), unix.F_OFD_SETLK, &lock))
		must(t, unix.FcntlFlock(uintptr(b), unix.F_OFD_SETLK, &lock))
		closeFD(t, a)
		must(t, unix.Flock(b, unix.LOCK_EX|unix.LOCK_NB))
		closeFD(t, b)
	},
	"FdLeak": func(t *testing.T, s *site) {
		before := descriptors(t)
		for range 200 {
			readAll(t, s.path("file"))
			listed(t, s.path("dir"))
		}
		eventually(t, "descriptors are as before", func() bool { return descriptors(t) <= before+2 })
	},
	"FileBasic": func(t *testing.T, s *site) {
		same(t, readAll(t, s.path("file")), s.expect(t, "file"))
		info, err := os.Stat(s.path("file"))
		must(t, err)
		if info.Size() != int64(len(s.expect(t, "file"))) || !info.Mode().IsRegular() {
			t.Errorf("%v", info)
		}
	},
	"FileLarge": func(t *testing.T, s *site) {
		f, err := os.Open(s.path("large"))
		must(t, err)
		defer func() { must(t, f.Close()) }()
		var got bytes.Buffer
		_, err = io.CopyBuffer(struct{ io.Writer }{&got}, struct{ io.Reader }{f}, make([]byte, 7777))
		must(t, err)
		same(t, got.Bytes(), s.expect(t, "large"))
	},
	"LseekEnxioCheck": func(t *testing.T, s *site) {
		fd, err := unix.Open(s.path("file"), unix.O_RDONLY, 0)
		must(t, err)
		defer closeFD(t, fd)
		size := int64(len(s.expect(t, "file")))
		for _, c := range []struct {
			off    int64
			whence int
		}{{size, unix.SEEK_DATA}, {size + 1, unix.SEEK_DATA}, {size + 1, unix.SEEK_HOLE}} {
			if _, err := unix.Seek(fd, c.off, c.whence); !errors.Is(err, unix.ENXIO) {
				t.Errorf("lseek(%d, %d): %v, want ENXIO", c.off, c.whence, err)
			}
		}
	},
	"LseekHoleSeeksToEOF": func(t *testing.T, s *site) {
		fd, err := unix.Open(s.path("file"), unix.O_RDONLY, 0)
		must(t, err)
		defer closeFD(t, fd)
		size := int64(len(s.expect(t, "file")))
		if at, err := unix.Seek(fd, size/2, unix.SEEK_HOLE); at != size || err != nil {
			t.Errorf("SEEK_HOLE: %d, %v; want the end, %d", at, err, size)
		}
	},
	"OpenAt": func(t *testing.T, s *site) {
		dir := openDir(t, s.path("dir"))
		defer closeFD(t, dir)
		fd, err := unix.Openat(dir, "f1", unix.O_RDONLY, 0)
		must(t, err)
		defer closeFD(t, fd)
		buf := make([]byte, 100)
		n, err := unix.Read(fd, buf)
		must(t, err)
		same(t, buf[:n], s.expect(t, "dir/f1"))
	},
	"ParallelFileOpen": func(t *testing.T, s *site) {
		var wg sync.WaitGroup
		want := s.expect(t, "file")
		for range 100 {
			wg.Go(func() {
				got, err := os.ReadFile(s.path("file"))
				if err != nil || !bytes.Equal(got, want) {
					t.Errorf("%d bytes, %v", len(got), err)
				}
			})
		}
		wg.Wait()
	},
	"ReadDirBasic": func(t *testing.T, s *site) {
		if got := listed(t, s.path("dir")); fmt.Sprint(got) != "[f0 f1 f2 f3 f4]" {
			t.Errorf("%q", got)
		}
	},
	"ReadDirConsistency": func(t *testing.T, s *site) {
		fd := openDir(t, s.path("dir"))
		defer closeFD(t, fd)
		first, err := listRaw(fd, 4096)
		must(t, err)
		_, err = unix.Seek(fd, 0, unix.SEEK_SET)
		must(t, err)
		again, err := listRaw(fd, 4096)
		must(t, err)
		if fmt.Sprint(first) != fmt.Sprint(again) {
			t.Errorf("%v, then %v", first, again)
		}
	},
	"DirSeek": func(t *testing.T, s *site) {
		fd := openDir(t, s.path("dir"))
		defer closeFD(t, fd)
		whole, err := listRaw(fd, 4096)
		must(t, err)
		for i, e := range whole {
			_, err := unix.Seek(fd, e.Off, unix.SEEK_SET)
			must(t, err)
			rest, err := listRaw(fd, 4096)
			must(t, err)
			if fmt.Sprint(namesIn(rest)) != fmt.Sprint(namesIn(whole[i+1:])) {
				t.Errorf("after %q comes %q", e.Name, namesIn(rest))
			}
		}
	},
	"SymlinkReadlink": func(t *testing.T, s *site) {
		if got, err := os.Readlink(s.path("link")); got != "dir/f1" || err != nil {
			t.Errorf("%q, %v", got, err)
		}
		if _, err := os.Readlink(s.path("file")); !errors.Is(err, unix.EINVAL) {
			t.Errorf("readlink of a file: %v, want EINVAL", err)
		}
	},
}

func TestPosixReads(t *testing.T) {
	for _, cfg := range []Config{{}, {Immutable: true}} {
		w := newWorld()
		w.put("file", 7*1024)
		w.put("large", 3<<20+11)
		for i := range 5 {
			w.put(fmt.Sprintf("dir/f%d", i), int64(10+i))
		}
		w.symlink("link", "dir/f1")
		s := mounted(t, w, cfg, cache.Config{})
		for name, f := range posixReads {
			t.Run(fmt.Sprintf("%s immutable %v", name, cfg.Immutable), func(t *testing.T) { f(t, s) })
		}
	}
}

// expect returns what a file must hold.
func (s *site) expect(t testing.TB, path string) []byte {
	dir, name := split(path)
	return all(mustLookup(t, s.world, dir, name))
}

// descriptors counts what this process has open.
func descriptors(t testing.TB) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	must(t, err)
	return len(entries)
}
