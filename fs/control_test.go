package fs

import (
	"context"
	"errors"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
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

// gathering is a Control whose calls wait for one another.
type gathering struct {
	running, most atomic.Int64
	over          chan struct{}
}

func (g *gathering) ServeControl(context.Context, Caller, uint32, []byte, []byte) (int32, syscall.Errno) {
	n := g.running.Add(1)
	defer g.running.Add(-1)
	for most := g.most.Load(); n > most && !g.most.CompareAndSwap(most, n); most = g.most.Load() {
	}
	<-g.over
	return 0, 0
}

func (g *gathering) Released(uint64) {}

// largeCommand is _IOWR('p', 2, 16 KiB - 1): a request that go-fuse keeps in the buffer into which
// it was read.
const largeCommand = 3<<30 | (16<<10-1)<<16 | 'p'<<8 | 2

func TestRequestsThatAreServedAtOnceHaveABound(t *testing.T) {
	const callers, bound = 200, requestMemory / maxRead
	g := &gathering{over: make(chan struct{})}
	end := sync.OnceFunc(func() { close(g.over) })
	defer end() // before the mount is taken away
	w := newWorld()
	w.put("file", 10)
	s := mounted(t, w, Config{Control: g}, cache.Config{})
	fd, err := unix.Open(s.dir, unix.O_RDONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(fd) }() // only read
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			var buf [16 << 10]byte
			if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), largeCommand, uintptr(unsafe.Pointer(&buf))); errno != 0 {
				t.Error(errno)
			}
		})
	}
	eventually(t, "many are served at once", func() bool { return g.most.Load() >= bound/2 })
	// Beyond the bound there is nothing to wait for. For a while it is looked for.
	for until := time.Now().Add(time.Second); g.most.Load() <= bound && time.Now().Before(until); time.Sleep(10 * time.Millisecond) {
	}
	end()
	all.Wait()
	if got := g.most.Load(); got > bound {
		t.Errorf("%d requests with buffers of %d bytes were served at once, want at most %d", got, maxRead, bound)
	}
}
