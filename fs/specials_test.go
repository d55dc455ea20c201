package fs

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// specialsSite is a mount on which a fifo and a socket, which listens, are in a directory.
type specialsSite struct {
	*written
	log      *lines
	listener net.Listener
}

func mountSpecials(t *testing.T) *specialsSite {
	t.Helper()
	s := &specialsSite{log: &lines{}}
	s.written = mountWritten(t, startStore(t), writtenOptions{config: Config{Attrs: true}, log: s.log.logger()})
	must(t, os.Mkdir(s.path("dir"), 0o755))
	must(t, unix.Mkfifo(s.path("dir/fifo"), 0o640))
	s.listener = listen(t, s.path("dir"), "socket")
	return s
}

// short calls use with a path that leads to dir/name and is short enough for a socket.
func short(t testing.TB, dir, name string, use func(path string)) {
	t.Helper()
	fd := openDir(t, dir)
	defer closeFD(t, fd)
	use(fmt.Sprintf("/proc/self/fd/%d/%s", fd, name))
}

// listen binds a socket that answers with what it is sent, until the test ends.
func listen(t testing.TB, dir, name string) (l net.Listener) {
	t.Helper()
	short(t, dir, name, func(path string) {
		var err error
		l, err = net.ListenUnix("unix", &net.UnixAddr{Name: path})
		must(t, err)
		l.(*net.UnixListener).SetUnlinkOnClose(false)
	})
	t.Cleanup(func() { _ = l.Close() }) // it may be closed
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.Copy(c, c) // the client sees what is wrong
			_ = c.Close()
		}
	}()
	return l
}

// echo sends something to the socket dir/name and fails unless it comes back.
func echo(t testing.TB, dir, name string) {
	t.Helper()
	short(t, dir, name, func(path string) {
		c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path})
		must(t, err)
		_, err = c.Write([]byte("hello"))
		must(t, err)
		must(t, c.CloseWrite())
		answer, err := io.ReadAll(c)
		must(t, errors.Join(err, c.Close()))
		if string(answer) != "hello" {
			t.Errorf("the answer is %q", answer)
		}
	})
}

// pass sends something through the fifo at path.
func pass(t testing.TB, path string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	must(t, err)
	_, err = f.WriteString("through")
	must(t, err)
	buf := make([]byte, 7)
	_, err = io.ReadFull(f, buf)
	must(t, errors.Join(err, f.Close()))
	if string(buf) != "through" {
		t.Errorf("%q came through", buf)
	}
}

func TestFifosAndSocketsWorkAndAreNeverPublished(t *testing.T) {
	s := mountSpecials(t)
	pass(t, s.path("dir/fifo"))
	echo(t, s.path("dir"), "socket")
	must(t, os.WriteFile(s.path("dir/file"), []byte("content"), 0o644))
	d := openDir(t, s.path("dir"))
	entries, err := listRaw(d, 4096)
	must(t, err)
	closeFD(t, d)
	got := map[string]byte{}
	for _, e := range entries {
		got[e.Name] = e.Type
		if st := inode64(t, s.path("dir/"+e.Name)); e.Name != ".." && st != e.Ino {
			t.Errorf("%s has inode number %d, in the listing %d", e.Name, st, e.Ino)
		}
	}
	want := map[string]byte{".": unix.DT_DIR, "..": unix.DT_DIR, "file": unix.DT_REG, "fifo": unix.DT_FIFO, "socket": unix.DT_SOCK}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	must(t, os.Rename(s.path("dir"), s.path("moved")))
	pass(t, s.path("moved/fifo"))
	echo(t, s.path("moved"), "socket")
	must(t, os.Rename(s.path("moved/socket"), s.path("renamed")))
	echo(t, s.dir, "renamed")
	s.drain(t)
	if keys := fmt.Sprint(s.Keys("")); keys != "[moved/ moved/file]" {
		t.Errorf("the bucket has %s", keys)
	}
	must(t, s.listener.Close())
	s.stop()
	again := mountWritten(t, s.Emulator, writtenOptions{config: Config{Attrs: true}})
	if names := listed(t, again.path("moved")); fmt.Sprint(names) != "[file]" {
		t.Errorf("after a remount there are %q", names)
	}
	if _, err := os.Lstat(again.path("renamed")); !errors.Is(err, unix.ENOENT) {
		t.Errorf("after a remount the socket: %v", err)
	}
}

// TestFifosAreListedAmongManyNames: a listing has specials behind all others, by pages.
func TestFifosAreListedAmongManyNames(t *testing.T) {
	s := mountSpecials(t)
	want := map[string]bool{"fifo": true, "socket": true}
	for i := range 150 {
		file, fifo := fmt.Sprintf("file%03d", i), fmt.Sprintf("local%03d", i)
		must(t, os.WriteFile(s.path("dir/"+file), nil, 0o644))
		must(t, unix.Mkfifo(s.path("dir/"+fifo), 0o600))
		want[file], want[fifo] = true, true
	}
	for _, first := range []string{".lock", "0fifo", "#x"} { // no cursor of a file sorts before them
		must(t, unix.Mkfifo(s.path("dir/"+first), 0o600))
		want[first] = true
	}
	fd := openDir(t, s.path("dir"))
	defer closeFD(t, fd)
	whole, err := listRaw(fd, 500)
	must(t, err)
	got := map[string]bool{}
	for i, e := range whole {
		if e.Name != "." && e.Name != ".." {
			if got[e.Name] {
				t.Errorf("%s is listed twice", e.Name)
			}
			got[e.Name] = true
		}
		if i%37 != 0 || i+1 == len(whole) {
			continue
		}
		_, err := unix.Seek(fd, e.Off, unix.SEEK_SET)
		must(t, err)
		next, err := getdents(fd, make([]byte, 500))
		must(t, err)
		if len(next) == 0 || next[0].Name != whole[i+1].Name {
			t.Errorf("after %q comes %q, want %q", e.Name, namesIn(next), whole[i+1].Name)
		}
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

// TestAnObjectTakesTheNameOfAFifo: what somebody else puts into the bucket is not hidden by
// what only this mount has.
func TestAnObjectTakesTheNameOfAFifo(t *testing.T) {
	s := mountSpecials(t)
	held, err := os.OpenFile(s.path("dir/fifo"), os.O_RDWR, 0)
	must(t, err)
	s.drain(t)
	s.Put("dir/fifo", []byte("content of others"))
	s.Put("dir/socket", []byte("more"))
	eventually(t, "the object is seen", func() bool {
		b, err := readRegular(s.path("dir/fifo"))
		return err == nil && string(b) == "content of others"
	})
	eventually(t, "the listing shows the other one", func() bool {
		d := openDir(t, s.path("dir"))
		defer closeFD(t, d)
		entries, err := listRaw(d, 4096)
		must(t, err)
		for _, e := range entries {
			if e.Name == "socket" {
				return e.Type == unix.DT_REG || e.Type == unix.DT_UNKNOWN
			}
		}
		return false
	})
	if n := s.log.count("an object was put in the place of a fifo or socket", "path=/dir/fifo"); n != 1 {
		t.Errorf("the log tells of it %d times", n)
	}
	// Who has it open goes on.
	_, err = held.WriteString("x")
	must(t, err)
	_, err = io.ReadFull(held, make([]byte, 1))
	must(t, errors.Join(err, held.Close()))
}

// readRegular reads a file, and does not wait at a fifo.
func readRegular(path string) ([]byte, error) {
	info, err := os.Lstat(path)
	if err != nil || !info.Mode().IsRegular() {
		return nil, errors.Join(err, errDiffers)
	}
	return os.ReadFile(path)
}

// TestAttributesOfAFifoAreKeptWithoutMetadata: a mount that keeps no attributes in the
// bucket has those of what is not there.
func TestAttributesOfAFifoAreKeptWithoutMetadata(t *testing.T) {
	w := mountWritten(t, startStore(t), writtenOptions{})
	path := w.path("fifo")
	must(t, unix.Mkfifo(path, 0o640))
	past := time.Unix(1_600_000_000, 5)
	must(t, errors.Join(os.Chmod(path, 0o622), os.Chown(path, 7, 8), os.Chtimes(path, past, past)))
	var st unix.Stat_t
	must(t, unix.Lstat(path, &st))
	if st.Mode != unix.S_IFIFO|0o622 || st.Uid != 7 || st.Gid != 8 || st.Nlink != 1 || time.Unix(st.Mtim.Unix()) != past || time.Unix(st.Atim.Unix()) != past {
		t.Errorf("%+v", st)
	}
	if time.Since(time.Unix(st.Ctim.Unix())) > patience {
		t.Errorf("changed at %v", time.Unix(st.Ctim.Unix()))
	}
}
