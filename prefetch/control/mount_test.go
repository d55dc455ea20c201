package control

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	fusefs "github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"

	"github.com/pailfs/pailfs/prefetch/budget"
)

// directory is a directory that passes ioctls to a mux, or knows none if the
// mux is nil.
type directory struct {
	fusefs.Inode
	mux *Mux
}

var _ = fusefs.NodeIoctler((*directory)(nil))

func (d *directory) Ioctl(ctx context.Context, _ fusefs.FileHandle, cmd uint32, _ uint64, input, output []byte) (int32, syscall.Errno) {
	if d.mux == nil {
		return 0, syscall.ENOTTY
	}
	caller, _ := fuse.FromContext(ctx)
	return d.mux.ServeControl(ctx, Caller{UID: caller.Uid, GID: caller.Gid, PID: caller.Pid}, cmd, input, output)
}

// mountAt mounts a tree a/b/c of directories at dir.
func mountAt(dir string, mux *Mux) (*fuse.Server, error) {
	root := &directory{mux: mux}
	return fusefs.Mount(dir, root, &fusefs.Options{
		MountOptions: fuse.MountOptions{AllowOther: true, DirectMountStrict: true, FsName: "control-test", Name: "pailfs"},
		OnAdd: func(ctx context.Context) {
			parent := &root.Inode
			for _, name := range []string{"a", "b", "c"} {
				child := parent.NewPersistentInode(ctx, &directory{mux: mux}, fusefs.StableAttr{Mode: syscall.S_IFDIR})
				parent.AddChild(name, child, false)
				parent = child
			}
		},
	})
}

// mountDir returns a directory that every user can reach.
func mountDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "pailfs-control-")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.Remove(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// mount serves m, or no control channel if m is nil, and returns where.
func mount(t testing.TB, m *Mux) string {
	t.Helper()
	dir := mountDir(t)
	server, err := mountAt(dir, m)
	if err != nil {
		t.Fatalf("mount: %v", err)
	}
	t.Cleanup(func() {
		if err := server.Unmount(); err != nil {
			t.Errorf("unmount: %v", err)
		}
	})
	return dir
}

// bindReadOnly shows source at a new place through a read-only bind mount, as a
// container with a read-only volume of a subdirectory sees it.
func bindReadOnly(t *testing.T, source string) string {
	t.Helper()
	dir := mountDir(t)
	if err := unix.Mount(source, dir, "", unix.MS_BIND, ""); err != nil {
		t.Fatalf("bind: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Errorf("unmount bind: %v", err)
		}
	})
	if err := unix.Mount("", dir, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		t.Fatalf("make bind read-only: %v", err)
	}
	return dir
}

func dial(t testing.TB, path string) *Client {
	t.Helper()
	c, err := Dial(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func TestCallsThroughTheKernel(t *testing.T) {
	m := newTestMux(t, MuxConfig{}, nil)
	dir := mount(t, m)
	for name, path := range map[string]string{
		"root":                   dir,
		"subdirectory":           filepath.Join(dir, "a/b"),
		"read-only bind of a/b":  bindReadOnly(t, filepath.Join(dir, "a/b")),
		"directory of that bind": filepath.Join(bindReadOnly(t, filepath.Join(dir, "a")), "b/c"),
	} {
		t.Run(name, func(t *testing.T) {
			c := dial(t, path)
			if h := c.Hello(); h.Version != "1.2.3" || h.Protocol != Version {
				t.Errorf("hello is %+v", h)
			}
			var who Caller
			if err := c.Call(t.Context(), "whoami", nil, &who); err != nil {
				t.Fatal(err)
			}
			if int(who.UID) != os.Getuid() || int(who.GID) != os.Getgid() || who.PID == 0 {
				t.Errorf("the kernel says the caller is %+v", who)
			}
			var big string
			if err := c.Call(t.Context(), "big", bigParams{1 << 20}, &big); err != nil || len(big) != 1<<20 {
				t.Errorf("1 MiB arrived as %d bytes, %v", len(big), err)
			}
			var slept string
			if err := c.Call(t.Context(), "sleep", sleepParams{1000}, &slept); err != nil || slept != "slept" {
				t.Errorf("a waiting call gave %q, %v", slept, err)
			}
			if err := c.Call(t.Context(), "fail", nil, nil); !errors.Is(err, &Error{Code: CodeFailed}) {
				t.Errorf("a failing call gave %v", err)
			}
		})
	}
	assertNothingHeld(t, m)
}

func TestUnmountSucceedsAfterClientsAreClosed(t *testing.T) {
	dir := mountDir(t)
	server, err := mountAt(dir, newTestMux(t, MuxConfig{}, nil))
	if err != nil {
		t.Fatal(err)
	}
	c, err := Dial(dir)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	result := make(chan error, 1)
	go func() { result <- c.Call(ctx, "sleep", sleepParams{3_600_000}, nil) }()
	time.Sleep(20 * time.Millisecond)
	cancel()
	if err := <-result; !errors.Is(err, context.Canceled) {
		t.Errorf("the call ended with %v", err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if err := server.Unmount(); err != nil {
		t.Errorf("unmount: %v", err)
	}
}

func TestThousandCallersThroughTheKernel(t *testing.T) {
	// All of their answers may wait to be fetched at once.
	m := newTestMux(t, MuxConfig{Ledger: limited(map[budget.Kind]int64{budget.Answers: 64 << 20})}, nil)
	path := bindReadOnly(t, filepath.Join(mount(t, m), "a/b"))
	var g sync.WaitGroup
	for i := range 1000 {
		g.Go(func() {
			c, err := Dial(path)
			if err != nil {
				t.Error(err)
				return
			}
			defer func() {
				if err := c.Close(); err != nil {
					t.Error(err)
				}
			}()
			// All of them wait at the same time.
			if err := c.Call(t.Context(), "sleep", sleepParams{500}, nil); err != nil {
				t.Error(err)
			}
			var echo map[string]int
			if err := c.Call(t.Context(), "echo", map[string]int{"i": i}, &echo); err != nil || echo["i"] != i {
				t.Errorf("caller %d got %v, %v", i, echo, err)
			}
			var big string
			if err := c.Call(t.Context(), "big", bigParams{20_000 + i}, &big); err != nil || len(big) != 20_000+i {
				t.Errorf("caller %d got %d bytes, %v", i, len(big), err)
			}
		})
	}
	g.Wait()
	assertNothingHeld(t, m)
}

// asUser runs f on a thread whose file system user is uid, which is what the
// kernel tells a FUSE daemon. The thread ends with f.
func asUser(uid int, f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		_, _, _ = unix.RawSyscall(unix.SYS_SETFSUID, uintptr(uid), 0, 0)
		f()
	}()
	<-done
}

func TestKernelTellsTheUser(t *testing.T) {
	m := newTestMux(t, MuxConfig{}, nil)
	dir := mount(t, m)
	roots := dial(t, dir)
	ask := func(f frame) (a frame) {
		buf := make([]byte, BufferSize)
		a, err := roots.roundTrip(buf, f)
		if err != nil {
			t.Error(err)
		}
		return a
	}
	call := callFrame("big", `{"bytes":40000}`)
	call.version = Version
	first := ask(call)
	next := frame{version: Version, kind: kindNext, cursor: first.cursor, offset: MaxPayload}
	asUser(2000, func() {
		secret := callFrame("secret", "")
		secret.version = Version
		if a := ask(secret); !strings.Contains(string(a.payload), `"refused"`) {
			t.Errorf("user 2000 got %s", a.payload)
		}
		if a := ask(next); !strings.Contains(string(a.payload), string(CodeStaleCursor)) {
			t.Errorf("user 2000 got root's answer: %.80s", a.payload)
		}
	})
	if a := ask(next); a.kind != kindMore {
		t.Errorf("root lost its answer: %.80s", a.payload)
	}
	exchange(t, m, root, frame{kind: kindDrop, cursor: first.cursor})
}

func TestDialSaysWhatThePathIs(t *testing.T) {
	local := t.TempDir()
	file := filepath.Join(local, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	fifo := filepath.Join(local, "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		path string
		want error
		says string
	}{
		{local, ErrNotPailfs, "is not FUSE"},
		{file, syscall.ENOTDIR, "not a directory"},
		{fifo, syscall.ENOTDIR, "not a directory"},
		{filepath.Join(local, "none"), os.ErrNotExist, "no such file or directory"},
		{mount(t, nil), ErrNotPailfs, "does not know pailfs control calls"},
	} {
		c, err := Dial(test.path)
		if !errors.Is(err, test.want) || !strings.Contains(err.Error(), test.says) || !strings.Contains(err.Error(), test.path) {
			t.Errorf("Dial(%q) is %v, want %v saying %q", test.path, err, test.want, test.says)
		}
		if c != nil {
			t.Errorf("Dial(%q) returned a client with its error", test.path)
		}
	}
}

// serveUntilKilled is the main function of a daemon that tests may kill.
func serveUntilKilled(dir string) int {
	m := NewMux(MuxConfig{}, prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
	testMethods(m, nil)
	server, err := mountAt(dir, m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Println("mounted")
	server.Wait()
	return 0
}

// startDaemon serves a mount from another process and returns where, and a
// function that kills it.
func startDaemon(t *testing.T) (dir string, kill func()) {
	t.Helper()
	dir = mountDir(t)
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Errorf("unmount what the daemon left: %v", err)
		}
	})
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), daemonEnv+"="+dir)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	kill = sync.OnceFunc(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	t.Cleanup(kill)
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "mounted\n" {
		t.Fatalf("the daemon said %q, %v", line, err)
	}
	return dir, kill
}

func TestDeadDaemonIsRecognised(t *testing.T) {
	dir, kill := startDaemon(t)
	c := dial(t, dir)
	pending := make(chan error, 1)
	go func() { pending <- c.Call(context.Background(), "sleep", sleepParams{3_600_000}, nil) }()
	if err := c.Call(t.Context(), "sleep", sleepParams{50}, nil); err != nil {
		t.Fatal(err)
	}
	kill()
	if err := <-pending; !errors.Is(err, ErrDaemonGone) {
		t.Errorf("the call that waited ended with %v", err)
	}
	if err := c.Call(t.Context(), "echo", nil, nil); !errors.Is(err, ErrDaemonGone) {
		t.Errorf("a later call ended with %v", err)
	}
	if _, err := Dial(dir); !errors.Is(err, ErrDaemonGone) || !strings.Contains(err.Error(), "daemon that served this mount is gone") {
		t.Errorf("dialling ended with %v", err)
	}
}

// A signal takes a request back only while the daemon has not seen it, so that
// repeating after EINTR neither loses a call nor makes it twice.
func TestSignalsNeitherLoseNorRepeatCalls(t *testing.T) {
	m := newTestMux(t, MuxConfig{}, nil)
	var (
		mu   sync.Mutex
		seen = map[int]int{}
	)
	type numbered struct {
		N int `json:"n"`
	}
	Handle(m, "count", Anyone, func(_ context.Context, _ Caller, p numbered) (int, error) {
		mu.Lock()
		defer mu.Unlock()
		seen[p.N]++
		return p.N, nil
	})
	c := dial(t, mount(t, m))

	tid := make(chan int, 1)
	stop := make(chan struct{})
	var g sync.WaitGroup
	g.Go(func() {
		id := <-tid
		for {
			select {
			case <-stop:
				return
			default:
				// Go's runtime handles SIGURG, and does nothing on it here.
				_ = unix.Tgkill(os.Getpid(), id, unix.SIGURG)
				time.Sleep(20 * time.Microsecond)
			}
		}
	})
	const calls = 500
	asUser(os.Getuid(), func() {
		tid <- unix.Gettid()
		for n := range calls {
			doc, err := c.converse(context.Background(), fmt.Appendf(nil, `{"method":"count","params":{"n":%d}}`, n))
			if err != nil || string(doc) != fmt.Sprintf(`{"result":%d}`, n) {
				t.Errorf("call %d gave %s, %v", n, doc, err)
			}
		}
		close(stop)
	})
	g.Wait()
	mu.Lock()
	defer mu.Unlock()
	for n := range calls {
		if seen[n] != 1 {
			t.Errorf("call %d reached its method %d times", n, seen[n])
		}
	}
}
