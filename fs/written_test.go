package fs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pailfs/pailfs/fs/writeback"
	"github.com/pailfs/pailfs/oss"
	"github.com/pailfs/pailfs/oss/ossemu"
)

// bothModes runs a test on a mount that passes through and on one that does not.
func bothModes(t *testing.T, f func(t *testing.T, w *written)) {
	for _, mode := range []Choice{On, Off} {
		t.Run("passthrough "+mode.String(), func(t *testing.T) {
			f(t, mountWritten(t, startStore(t), writtenOptions{config: Config{Passthrough: mode, PassthroughMin: 1}}))
		})
	}
}

func TestWhatIsWrittenIsReadAndPublished(t *testing.T) {
	bothModes(t, func(t *testing.T, w *written) {
		for i, size := range []int{0, 1, 4096, 200_000, 3<<20 + 7} {
			name := fmt.Sprint("file", i)
			content := random(uint64(i), size)
			must(t, os.WriteFile(w.path(name), content, 0o644))
			same(t, readAll(t, w.path(name)), content)
			number := inode64(t, w.path(name))
			w.drain(t)
			w.holds(t, name, content)
			same(t, readAll(t, w.path(name)), content)
			if got := inode64(t, w.path(name)); got != number {
				t.Errorf("%s: the inode number was %d and is %d", name, number, got)
			}
		}
	})
}

func TestExistingObjectsAreEdited(t *testing.T) {
	bothModes(t, func(t *testing.T, w *written) {
		old := random(7, 2<<20)
		w.Put("object", old)
		number := inode64(t, w.path("object"))
		f, err := os.OpenFile(w.path("object"), os.O_RDWR, 0)
		must(t, err)
		want := bytes.Clone(old)
		copy(want[1<<20:], "edited")
		_, err = f.WriteAt([]byte("edited"), 1<<20)
		must(t, err)
		got := make([]byte, 10)
		_, err = f.ReadAt(got, 1<<20-2)
		must(t, err)
		same(t, got, want[1<<20-2:1<<20+8])
		must(t, f.Close())
		a, err := os.OpenFile(w.path("object"), os.O_WRONLY|os.O_APPEND, 0)
		must(t, err)
		_, err = a.WriteString("appended")
		must(t, err)
		must(t, a.Close())
		want = append(want, "appended"...)
		must(t, os.Truncate(w.path("object"), 2<<20+4))
		want = want[:2<<20+4]
		same(t, readAll(t, w.path("object")), want)
		if got := inode64(t, w.path("object")); got != number {
			t.Errorf("the inode number was %d and is %d", number, got)
		}
		w.drain(t)
		w.holds(t, "object", want)
		same(t, readAll(t, w.path("object")), want)
	})
}

// TestWriterBesideAReaderInPassthrough opens an object that the kernel reads
// itself: reader, writer and mapping must see one file.
func TestWriterBesideAReaderInPassthrough(t *testing.T) {
	w := mountWritten(t, startStore(t), writtenOptions{config: Config{Passthrough: On, PassthroughMin: 1}})
	old := random(3, 4<<20)
	w.Put("object", old)
	var r *os.File
	eventually(t, "the object is passed through", func() bool {
		same(t, readAll(t, w.path("object")), old)
		before := w.mount.Status().Opens.Passthrough
		var err error
		r, err = os.Open(w.path("object"))
		must(t, err)
		if w.mount.Status().Opens.Passthrough > before {
			return true
		}
		must(t, r.Close())
		return false
	})
	defer func() { must(t, r.Close()) }()
	for round := range 3 {
		f, err := os.OpenFile(w.path("object"), os.O_RDWR, 0)
		must(t, err)
		want := bytes.Clone(old)
		copy(want[1<<20:], fmt.Sprint("round ", round))
		_, err = f.WriteAt(want[1<<20:1<<20+10], 1<<20)
		must(t, err)
		got := make([]byte, len(want))
		_, err = r.ReadAt(got, 0)
		must(t, err)
		same(t, got, want)
		must(t, f.Close())
		w.drain(t)
		w.holds(t, "object", want)
		same(t, readAll(t, w.path("object")), want)
	}
	must(t, os.WriteFile(w.path("object"), []byte("replaced"), 0o644))
	got := make([]byte, 100)
	n, _ := r.ReadAt(got, 0)
	same(t, got[:n], []byte("replaced"))
	w.drain(t)
	w.holds(t, "object", []byte("replaced"))
}

func TestTruncatingAFileThatIsOpenElsewhere(t *testing.T) {
	bothModes(t, func(t *testing.T, w *written) {
		w.Put("object", random(4, 1<<20))
		r, err := os.Open(w.path("object"))
		must(t, err)
		defer func() { must(t, r.Close()) }()
		buf := make([]byte, 100)
		_, err = r.ReadAt(buf, 0)
		must(t, err)
		must(t, os.WriteFile(w.path("object"), []byte("short"), 0))
		n, err := r.ReadAt(buf, 0)
		if n != 5 || string(buf[:n]) != "short" {
			t.Errorf("the reader sees %q, %v", buf[:n], err)
		}
		w.drain(t)
		w.holds(t, "object", []byte("short"))
	})
}

func TestUnlinkedAndRenamedWhileOpen(t *testing.T) {
	bothModes(t, func(t *testing.T, w *written) {
		f, err := os.Create(w.path("file"))
		must(t, err)
		_, err = f.WriteString("before ")
		must(t, err)
		must(t, os.Rename(w.path("file"), w.path("moved")))
		_, err = f.WriteString("after")
		must(t, err)
		must(t, os.WriteFile(w.path("file"), []byte("another"), 0o644))
		same(t, readAll(t, w.path("moved")), []byte("before after"))
		must(t, os.Remove(w.path("moved")))
		_, err = f.WriteString(" all")
		must(t, err)
		got := make([]byte, 16)
		n, _ := f.ReadAt(got, 0)
		same(t, got[:n], []byte("before after all"))
		info, err := f.Stat()
		must(t, err)
		if links := info.Sys().(*syscall.Stat_t).Nlink; links != 0 {
			t.Errorf("%d links", links)
		}
		must(t, f.Close())
		w.drain(t)
		w.holds(t, "file", []byte("another"))
		if keys := w.Keys(""); len(keys) != 1 {
			t.Errorf("%q", keys)
		}
	})
}

func TestCleanFilesStayReadableWhenTheyLoseTheirName(t *testing.T) {
	bothModes(t, func(t *testing.T, w *written) {
		names := []string{"removed", "replaced"}
		for _, name := range names {
			w.Put(name, random(9, 300_000))
		}
		for _, name := range names {
			f, err := os.Open(w.path(name))
			must(t, err)
			defer func() { must(t, f.Close()) }()
			if name == "removed" {
				must(t, os.Remove(w.path(name)))
			} else {
				must(t, os.WriteFile(w.path("new"), []byte("new"), 0o644))
				must(t, os.Rename(w.path("new"), w.path(name)))
			}
			w.drain(t)
			got := make([]byte, 300_000)
			_, err = f.ReadAt(got, 0)
			must(t, err)
			same(t, got, random(9, 300_000))
		}
	})
}

// heldReader lets somebody do something before the first request reaches the bucket.
type heldReader struct {
	oss.RangeReader
	before func()
}

func (r *heldReader) ReadRange(ctx context.Context, request oss.RangeRequest) (oss.RangeResult, error) {
	r.before()
	return r.RangeReader.ReadRange(ctx, request)
}

// TestReadDuringTheRenamingOfItsFile has a read meet the old key of a file that was
// renamed, when it is copied already and its old key deleted.
func TestReadDuringTheRenamingOfItsFile(t *testing.T) {
	var w *written
	var renamed error
	rename := sync.OnceFunc(func() {
		renamed = errors.Join(os.Rename(w.path("before"), w.path("after")), w.space.Flush(t.Context(), ""))
	})
	w = mountWritten(t, startStore(t), writtenOptions{
		config: Config{Passthrough: Off},
		reader: func(r oss.RangeReader) oss.RangeReader { return &heldReader{r, rename} },
	})
	content := random(3, 100_000)
	w.Put("before", content)
	// The kernel tries a page again whose reading ahead failed: nothing is read ahead
	// past its cache.
	f, err := os.OpenFile(w.path("before"), os.O_RDONLY|unix.O_DIRECT, 0)
	must(t, err)
	defer func() { must(t, f.Close()) }()
	got := make([]byte, len(content))
	_, err = f.ReadAt(got, 0)
	must(t, err)
	same(t, got, content)
	must(t, renamed)
	if keys := w.Keys(""); len(keys) != 1 || keys[0] != "after" {
		t.Errorf("the bucket holds %q", keys)
	}
}

func TestDirectoriesAreMadeRenamedAndRemoved(t *testing.T) {
	bothModes(t, func(t *testing.T, w *written) {
		w.Put("old/a", []byte("a"))
		w.Put("old/deep/b", []byte("b"))
		must(t, os.MkdirAll(w.path("new/sub"), 0o755))
		must(t, os.WriteFile(w.path("old/c"), []byte("c"), 0o644))
		number := inode64(t, w.path("old/deep"))
		open, err := os.Open(w.path("old/deep/b"))
		must(t, err)
		defer func() { must(t, open.Close()) }()
		must(t, os.Rename(w.path("old"), w.path("new/sub/moved")))
		if got := inode64(t, w.path("new/sub/moved/deep")); got != number {
			t.Errorf("the number of a directory was %d and is %d", number, got)
		}
		for name, want := range map[string]string{"a": "a", "deep/b": "b", "c": "c"} {
			same(t, readAll(t, w.path("new/sub/moved/"+name)), []byte(want))
		}
		if _, err := os.Stat(w.path("old")); !errors.Is(err, unix.ENOENT) {
			t.Errorf("the old name: %v", err)
		}
		same(t, readAll(t, fmt.Sprintf("/proc/self/fd/%d", open.Fd())), []byte("b"))
		if err := os.Remove(w.path("new/sub")); !errors.Is(err, unix.ENOTEMPTY) {
			t.Errorf("rmdir of a directory with something in it: %v", err)
		}
		must(t, os.RemoveAll(w.path("new/sub/moved/deep")))
		must(t, os.Mkdir(w.path("new/sub/moved/deep"), 0o755))
		must(t, os.WriteFile(w.path("new/sub/moved/deep/again"), []byte("again"), 0o644))
		w.drain(t)
		got := w.Keys("")
		files := 0
		for _, key := range got {
			if key[len(key)-1] != '/' {
				files++
			}
		}
		if files != 3 {
			t.Errorf("%q", got)
		}
		w.holds(t, "new/sub/moved/deep/again", []byte("again"))
	})
}

func TestMadeAgainInADirectoryThatWasRemoved(t *testing.T) {
	bothModes(t, func(t *testing.T, w *written) {
		must(t, os.Mkdir(w.path("d"), 0o755))
		old, err := os.Open(w.path("d"))
		must(t, err)
		defer func() { must(t, old.Close()) }()
		must(t, os.Remove(w.path("d")))
		must(t, os.Mkdir(w.path("d"), 0o755))
		must(t, os.WriteFile(w.path("d/file"), []byte("x"), 0o644))
		if got := listed(t, w.path("d")); fmt.Sprint(got) != "[file]" {
			t.Errorf("%q", got)
		}
		if _, err := unix.Openat(int(old.Fd()), "x", unix.O_CREAT|unix.O_WRONLY, 0o644); !errors.Is(err, unix.ENOENT) {
			t.Errorf("create in a directory that is gone: %v", err)
		}
	})
}

func TestSymlinksAreMade(t *testing.T) {
	bothModes(t, func(t *testing.T, w *written) {
		must(t, os.Symlink("/usr/bin/python3", w.path("link")))
		if got, err := os.Readlink(w.path("link")); got != "/usr/bin/python3" || err != nil {
			t.Errorf("%q, %v", got, err)
		}
		w.drain(t)
		w.holds(t, "link", []byte("/usr/bin/python3"))
	})
}

func TestMappedStoresArePublished(t *testing.T) {
	bothModes(t, func(t *testing.T, w *written) {
		must(t, os.WriteFile(w.path("file"), make([]byte, 1<<20), 0o644))
		f, err := os.OpenFile(w.path("file"), os.O_RDWR, 0)
		must(t, err)
		// A page fault on a mount of our own may stop this process for good: another one
		// maps the file.
		must(t, f.Close())
		script := `import mmap,sys
f=open(sys.argv[1],"r+b"); m=mmap.mmap(f.fileno(),0); f.close()
m[0:5]=b"first"; m.flush(); m[4096:4100]=b"last"
m.close()`
		out, err := exec.Command("python3", "-c", script, w.path("file")).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		want := make([]byte, 1<<20)
		copy(want, "first")
		copy(want[4096:], "last")
		same(t, readAll(t, w.path("file")), want)
		w.drain(t)
		w.holds(t, "file", want)
	})
}

func TestErrnosOfWhatCannotBe(t *testing.T) {
	w := mountWritten(t, startStore(t), writtenOptions{})
	must(t, os.WriteFile(w.path("file"), []byte("x"), 0o644))
	must(t, os.Mkdir(w.path("dir"), 0o755))
	must(t, os.WriteFile(w.path("dir/inside"), []byte("x"), 0o644))
	long := string(bytes.Repeat([]byte("n"), 256))
	for _, c := range []struct {
		doing string
		err   error
		want  error
	}{
		{"link", os.Link(w.path("file"), w.path("link")), unix.EPERM},
		{"make a device", unix.Mknod(w.path("device"), unix.S_IFCHR|0o644, int(unix.Mkdev(1, 3))), unix.EPERM},
		{"exclusive create", create(w.path("file"), unix.O_EXCL), unix.EEXIST},
		{"mkdir over a file", os.Mkdir(w.path("file"), 0o755), unix.EEXIST},
		{"rmdir of a file", unix.Rmdir(w.path("file")), unix.ENOTDIR},
		{"unlink of a directory", unix.Unlink(w.path("dir")), unix.EISDIR},
		{"rmdir of a full directory", unix.Rmdir(w.path("dir")), unix.ENOTEMPTY},
		{"rename of a directory over a file", os.Rename(w.path("dir"), w.path("file")), unix.ENOTDIR},
		{"exchange", unix.Renameat2(-1, w.path("file"), -1, w.path("dir"), unix.RENAME_EXCHANGE), unix.EINVAL},
		{"rename over with NOREPLACE", unix.Renameat2(-1, w.path("file"), -1, w.path("dir/inside"), unix.RENAME_NOREPLACE), unix.EEXIST},
		{"chmod", os.Chmod(w.path("file"), 0o600), unix.EPERM},
		{"chmod to what it is", os.Chmod(w.path("file"), 0o644), nil},
		{"setxattr", unix.Setxattr(w.path("file"), "user.x", []byte("x"), 0), unix.EOPNOTSUPP},
		{"a name of 256 bytes", create(w.path(long), 0), unix.ENAMETOOLONG},
		{"a name that no key has", create(w.path("x%~"), 0), unix.EILSEQ},
		{"create in a directory that is none", create(w.path("file/x"), 0), unix.ENOTDIR},
		{"unlink of nothing", unix.Unlink(w.path("nothing")), unix.ENOENT},
	} {
		if !errors.Is(c.err, c.want) {
			t.Errorf("%s: %v, want %v", c.doing, c.err, c.want)
		}
	}
}

// Nothing keeps the time longer: the object has its own.
func TestTimesOfWrittenFilesAreSetWithoutAttributes(t *testing.T) {
	e := startStore(t)
	e.Put("old", []byte("x"))
	w := mountWritten(t, e, writtenOptions{})
	must(t, e.Server.SetFaults([]ossemu.Fault{{KeyContains: "large", Kind: ossemu.FaultError, Code: "InternalError"}}))
	past := time.Unix(1_600_000_000, 0)
	must(t, os.WriteFile(w.path("file"), []byte("content"), 0o644))
	must(t, os.Chtimes(w.path("file"), past, past))
	must(t, os.Mkdir(w.path("dir"), 0o755))
	must(t, os.Chtimes(w.path("dir"), past, past))
	for _, name := range []string{"file", "dir"} {
		if info, err := os.Stat(w.path(name)); err != nil || !info.ModTime().Equal(past) {
			t.Errorf("%s: %v, %v", name, info.ModTime(), err)
		}
	}
	if err := os.Chtimes(w.path("old"), past, past); !errors.Is(err, unix.EPERM) {
		t.Errorf("the time of an object: %v", err)
	}
	must(t, e.Server.SetFaults(nil))
	w.drain(t)
	w.holds(t, "file", []byte("content"))
	before := w.Requests("PutObject")
	must(t, os.Chtimes(w.path("file"), past.Add(time.Hour), past.Add(time.Hour)))
	w.drain(t)
	if n := w.Requests("PutObject") - before; n != 0 {
		t.Errorf("%d uploads for a time that nothing keeps", n)
	}
}

func create(path string, flags int) error {
	fd, err := unix.Open(path, unix.O_CREAT|unix.O_WRONLY|flags, 0o644)
	if err != nil {
		return err
	}
	return unix.Close(fd)
}

func TestStatfsOfAWrittenMountIsTheStagingRoom(t *testing.T) {
	w := mountWritten(t, startStore(t), writtenOptions{space: writeback.Config{StagingSize: 64 << 20}})
	room := func() (size, free int64) {
		var st unix.Statfs_t
		must(t, unix.Statfs(w.dir, &st))
		return int64(st.Blocks) * st.Bsize, int64(st.Bavail) * st.Bsize
	}
	if size, free := room(); size != 64<<20 || free > size {
		t.Errorf("%d bytes, %d free", size, free)
	}
}

func TestStatfsAnswersWithoutTheStagingDirectory(t *testing.T) {
	base := tempDir(t)
	w := mountWritten(t, startStore(t), writtenOptions{base: base})
	must(t, os.RemoveAll(base+"/staging"))
	var st unix.Statfs_t
	must(t, unix.Statfs(w.dir, &st))
	if st.Bavail != 0 || st.Blocks == 0 {
		t.Errorf("%d of %d blocks are free where nothing can be written", st.Bavail, st.Blocks)
	}
}

// A size that is set while somebody writes, or by opening a file that is being read,
// is a part of what is written: nothing is to be published before that is closed.
func TestSizeSetBesideAWriterIsNoCommit(t *testing.T) {
	e := startStore(t)
	e.Put("f", []byte("good"))
	w := mountWritten(t, e, writtenOptions{})
	reader, err := os.Open(w.path("f"))
	must(t, err)
	defer reader.Close()
	for _, flags := range []int{os.O_RDWR, os.O_RDWR | os.O_TRUNC} {
		f, err := os.OpenFile(w.path("f"), flags, 0)
		must(t, err)
		must(t, f.Truncate(1<<20))
		must(t, os.Truncate(w.path("f"), 2<<20))
		if due := w.space.Pending("", 10); len(due) > 0 {
			t.Errorf("a size beside a writer is to be published: %+v", due)
		}
		w.holds(t, "f", []byte("good"))
		must(t, f.Truncate(4))
		_, err = f.WriteAt([]byte("good"), 0)
		must(t, err)
		must(t, f.Close())
		w.drain(t)
		w.holds(t, "f", []byte("good"))
	}
	must(t, os.Truncate(w.path("f"), 2))
	w.drain(t)
	w.holds(t, "f", []byte("go"))
}

// A program that waits for room to make a file holds up nobody who renames a directory.
func TestRenamingADirectoryWaitsForNoWriter(t *testing.T) {
	e := startStore(t)
	w := mountWritten(t, e, writtenOptions{space: writeback.Config{StagingSize: 1 << 20, FullWait: 10 * patience}})
	must(t, os.Mkdir(w.path("d"), 0o755))
	must(t, os.Mkdir(w.path("other"), 0o755)) // the kernel holds the directory in which a file is made
	must(t, e.Server.SetFaults([]ossemu.Fault{{KeyContains: "large", Kind: ossemu.FaultError, Code: "InternalError"}}))
	must(t, os.WriteFile(w.path("d/large"), random(1, 2<<20), 0o644))
	for used := int64(0); used < 1<<20; time.Sleep(10 * time.Millisecond) {
		var err error
		used, _, err = w.space.Usage()
		must(t, err)
	}
	made := make(chan error, 1)
	go func() { made <- os.WriteFile(w.path("other/waits"), nil, 0o644) }()
	for i := range 40 {
		from, to := "d", "e"
		if i%2 == 1 {
			from, to = to, from
		}
		must(t, os.Rename(w.path(from), w.path(to)))
		time.Sleep(10 * time.Millisecond)
	}
	select {
	case err := <-made:
		t.Fatalf("the file was made, %v: nobody waited", err)
	default:
	}
	must(t, e.Server.SetFaults(nil))
	w.drain(t)
	must(t, <-made)
}
