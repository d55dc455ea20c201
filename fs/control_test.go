package fs

import (
	"context"
	"errors"
	"os"
	"slices"
	"sync"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/pailfs/pailfs/cache"
)

// upper is a Control that knows one command: it answers in upper case.
type upper struct {
	mu        sync.Mutex
	callers   []Caller
	released  []uint64
	processes []uint32
}

// upperCommand is _IOWR('p', 1, 64 bytes).
const upperCommand = 3<<30 | 64<<16 | 'p'<<8 | 1

func (u *upper) ServeControl(_ context.Context, caller Caller, cmd uint32, input, output []byte) (int32, syscall.Errno) {
	if cmd != upperCommand {
		return 0, unix.ENOTTY
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.callers = append(u.callers, caller)
	pid, _ := ProcessOf(caller.TID) // while the thread waits
	u.processes = append(u.processes, pid)
	for i, b := range input {
		if 'a' <= b && b <= 'z' {
			b -= 'a' - 'A'
		}
		output[i] = b
	}
	return 42, 0
}

func (u *upper) Released(handle uint64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.released = append(u.released, handle)
}

// called returns who has called. The calls come through the kernel, which the
// race detector does not see.
func (u *upper) called() []Caller {
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.Clone(u.callers)
}

// shout sends text through the ioctl on path.
func shout(path string, cmd uintptr) (string, int, error) {
	fd, err := unix.Open(path, unix.O_RDONLY, 0)
	if err != nil {
		return "", 0, err
	}
	defer func() { _ = unix.Close(fd) }() // only read
	buf := [64]byte{}
	copy(buf[:], "hello")
	n, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), cmd, uintptr(unsafe.Pointer(&buf)))
	if errno != 0 {
		return "", 0, errno
	}
	return string(buf[:5]), int(n), nil
}

func TestControlIsReachedThroughAnyDirectory(t *testing.T) {
	w := newWorld()
	w.put("dir/sub/file", 10)
	u := &upper{}
	s := mounted(t, w, Config{Control: u, AllowOther: true}, cache.Config{})
	bind := tempDir(t) + "/bind"
	must(t, os.Mkdir(bind, 0o755))
	must(t, unix.Mount(s.path("dir"), bind, "", unix.MS_BIND, ""))
	defer func() { must(t, unix.Unmount(bind, 0)) }()
	must(t, unix.Mount("", bind, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""))
	for _, dir := range []string{s.dir, s.path("dir"), s.path("dir/sub"), bind, bind + "/sub"} {
		if got, n, err := shout(dir, upperCommand); got != "HELLO" || n != 42 || err != nil {
			t.Errorf("%s: %q, %d, %v", dir, got, n, err)
		}
	}
	for i, c := range u.called() {
		if c.UID != 0 || c.GID != 0 || u.processes[i] != uint32(os.Getpid()) {
			t.Errorf("called by %+v of process %d, but I am %d", c, u.processes[i], os.Getpid())
		}
	}
	const unknown = 3<<30 | 64<<16 | 'p'<<8 | 2
	if _, _, err := shout(s.dir, unknown); !errors.Is(err, unix.ENOTTY) {
		t.Errorf("an unknown command: %v, want ENOTTY", err)
	}
}

func TestFilesTakeNoIoctl(t *testing.T) {
	w := newWorld()
	o := w.put("file", 2<<20)
	u := &upper{}
	s := mounted(t, w, Config{Control: u, Passthrough: On}, cache.Config{})
	const shutdown = 0x8004587d // FS_IOC_SHUTDOWN, which would take the disk below down
	for range 2 {               // cached, then passed through
		for _, cmd := range []uintptr{upperCommand, shutdown, unix.FS_IOC_GETFLAGS} {
			if _, _, err := shout(s.path("file"), cmd); !errors.Is(err, unix.ENOTTY) {
				t.Errorf("ioctl %#x on a file: %v, want ENOTTY", cmd, err)
			}
		}
		makeWhole(t, s, o)
	}
	if len(u.called()) != 0 {
		t.Error("Control was asked about a file")
	}
	same(t, readAll(t, s.path("file")), all(o))
}

func TestWithoutControlThereIsNone(t *testing.T) {
	s := mounted(t, newWorld(), Config{}, cache.Config{})
	if _, _, err := shout(s.dir, upperCommand); !errors.Is(err, unix.ENOTTY) {
		t.Errorf("%v, want ENOTTY", err)
	}
}

// closed returns the handles that were released.
func (u *upper) closed() []uint64 {
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.Clone(u.released)
}

func TestControlIsToldWhenAProcessHasClosedItsDirectory(t *testing.T) {
	w := newWorld()
	w.put("dir/file", 10)
	u := &upper{}
	s := mounted(t, w, Config{Control: u}, cache.Config{})
	open := func() *os.File {
		f, err := os.Open(s.path("dir"))
		must(t, err)
		return f
	}
	ask := func(f *os.File) uint64 {
		buf := [64]byte{}
		if _, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), upperCommand, uintptr(unsafe.Pointer(&buf))); errno != 0 {
			t.Fatal(errno)
		}
		calls := u.called()
		return calls[len(calls)-1].Handle
	}
	first, second, silent := open(), open(), open()
	one, two := ask(first), ask(second)
	if one == 0 || two == 0 || one == two || ask(first) != one {
		t.Errorf("two descriptions have the handles %d and %d", one, two)
	}
	again, err := unix.Dup(int(first.Fd()))
	must(t, err)
	must(t, first.Close())
	must(t, silent.Close())
	must(t, second.Close())
	eventually(t, "one was released", func() bool { return len(u.closed()) > 0 })
	must(t, unix.Close(again))
	eventually(t, "both were released", func() bool { return len(u.closed()) > 1 })
	if got := u.closed(); !slices.Equal(got, []uint64{two, one}) {
		t.Errorf("released were %v, want %d, then %d when its copy was closed too", got, two, one)
	}
}
