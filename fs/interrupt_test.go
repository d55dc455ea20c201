package fs

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/pailfs/pailfs/cache"
	"github.com/pailfs/pailfs/oss"
)

// TestKilledCallerEndsItsRequest kills a process that waits for a name, by the
// signals that kill.
func TestKilledCallerEndsItsRequest(t *testing.T) {
	for _, sig := range []syscall.Signal{unix.SIGKILL, unix.SIGTERM} {
		t.Run(unix.SignalName(sig), func(t *testing.T) {
			w := newWorld()
			s := mounted(t, w, Config{}, cache.Config{})
			waiting, ended := make(chan struct{}, 1), make(chan error, 1)
			w.failing(func(ctx context.Context, _, path string) error {
				if path != "blocked" {
					return nil
				}
				waiting <- struct{}{}
				<-ctx.Done()
				ended <- ctx.Err()
				return ctx.Err()
			})
			killReader(t, exec.Command("stat", s.path("blocked")), waiting, sig)
			if err := <-ended; !errors.Is(err, context.Canceled) {
				t.Errorf("the request ended with %v", err)
			}
		})
	}
}

// TestKilledReaderIsGoneBeforeTheStoreAnswers kills a process that waits for the
// bytes of a file.
func TestKilledReaderIsGoneBeforeTheStoreAnswers(t *testing.T) {
	w := newWorld()
	w.put("file", 1<<20)
	s := mounted(t, w, Config{}, cache.Config{})
	waiting, answer := make(chan struct{}, 1), make(chan struct{})
	w.reading(func(context.Context, oss.RangeRequest) error {
		select {
		case waiting <- struct{}{}:
		default:
		}
		<-answer
		return nil
	})
	killReader(t, exec.Command("cat", s.path("file")), waiting, unix.SIGTERM)
	close(answer)
	eventually(t, "the file is released", func() bool { return s.mount.Status().OpenFiles == 0 })
}

// killReader starts a reader, kills it when it waits and returns when it is gone.
// It is no Go program, because those handle every signal first.
func killReader(t *testing.T, cmd *exec.Cmd, waiting <-chan struct{}, sig syscall.Signal) {
	t.Helper()
	must(t, cmd.Start())
	<-waiting
	must(t, cmd.Process.Signal(sig))
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != sig {
		t.Errorf("the reader ended with %v, want %v", err, sig)
	}
}

// TestSignalsThatDoNotKillDoNotInterrupt lets a program handle signals while it
// waits: neither stat nor reading a file may fail with EINTR for that.
func TestSignalsThatDoNotKillDoNotInterrupt(t *testing.T) {
	for _, op := range []string{"stat", "direct read", "read"} {
		t.Run(op, func(t *testing.T) {
			w := newWorld()
			w.put("file", 1<<20)
			w.put("blocked", 1<<20)
			s := mounted(t, w, Config{}, cache.Config{})
			var interrupted atomic.Bool
			slow := func(ctx context.Context) error {
				select {
				case <-ctx.Done():
					interrupted.Store(true)
					return ctx.Err()
				case <-time.After(3 * dyingPoll):
					return nil
				}
			}
			w.failing(func(ctx context.Context, op, path string) error {
				if path == "blocked" {
					return slow(ctx)
				}
				return nil
			})
			w.reading(func(ctx context.Context, _ oss.RangeRequest) error { return slow(ctx) })
			path := s.path("blocked")
			if op != "stat" {
				path = s.path("file")
			}
			var r waitResult
			inReader(t, "wait", waitArgs{Op: op, Path: path, Signals: true}, &r)
			if r.Errno != 0 || interrupted.Load() {
				t.Errorf("%v after %d signals, interrupted: %v", syscall.Errno(r.Errno), r.Signals, interrupted.Load())
			}
			if r.Signals == 0 {
				t.Error("no signal was handled, nothing was tested")
			}
		})
	}
}

type waitArgs struct {
	Op, Path string
	// Signals sends signals that are handled to the thread that waits.
	Signals bool
}

type waitResult struct{ Errno, Signals int }

// waitFor does something that takes long, once, without trying again after EINTR.
func waitFor(a waitArgs) (waitResult, error) {
	runtime.LockOSThread()
	handled := make(chan os.Signal, 10_000)
	stop := make(chan struct{})
	stopped := make(chan struct{})
	close(stopped)
	if a.Signals {
		stopped = make(chan struct{})
		signal.Notify(handled, unix.SIGUSR1)
		tid := unix.Gettid()
		go func() {
			defer close(stopped)
			for {
				select {
				case <-stop:
					return
				case <-time.After(10 * time.Millisecond):
					_ = unix.Tgkill(unix.Getpid(), tid, unix.SIGUSR1) // the thread is ours
				}
			}
		}()
	}
	var err error
	switch a.Op {
	case "stat":
		var st unix.Stat_t
		err = unix.Stat(a.Path, &st)
	default:
		flags := unix.O_RDONLY
		if a.Op == "direct read" {
			flags |= unix.O_DIRECT
		}
		var fd int
		if fd, err = unix.Open(a.Path, flags, 0); err == nil {
			_, err = unix.Pread(fd, aligned(4096), 0)
			_ = unix.Close(fd) // only read
		}
	}
	close(stop)
	<-stopped
	if a.Signals {
		select { // a signal that waited for the system call to end comes now
		case sig := <-handled:
			handled <- sig
		case <-time.After(patience):
		}
	}
	return waitResult{Errno: errnoNumber(err), Signals: len(handled)}, nil
}

func TestDyingLooksAtPendingSignals(t *testing.T) {
	cmd := exec.Command("sleep", "1000")
	must(t, cmd.Start())
	if dying(uint32(cmd.Process.Pid)) {
		t.Error("a process that sleeps is dying")
	}
	must(t, cmd.Process.Kill())
	_ = cmd.Wait() // killed
	if !dying(uint32(cmd.Process.Pid)) {
		t.Error("a process that is gone is not dying")
	}
	if dying(0) {
		t.Error("a caller that we cannot see is dying")
	}
}

func TestProcessOfAThread(t *testing.T) {
	tid := make(chan int)
	go func() {
		runtime.LockOSThread()
		tid <- unix.Gettid()
		<-tid
	}()
	got, groups := ProcessOf(uint32(<-tid))
	if got != uint32(os.Getpid()) {
		t.Errorf("process %d, want %d", got, os.Getpid())
	}
	want, err := os.Getgroups()
	if err != nil {
		t.Fatal(err)
	}
	if !slices.EqualFunc(groups, want, func(a uint32, b int) bool { return int(a) == b }) {
		t.Errorf("groups %v, want %v", groups, want)
	}
	close(tid)
	if pid, groups := ProcessOf(0); pid != 0 || groups != nil {
		t.Error("the process of no thread")
	}
}

func TestRequestCostsNoGoroutineUntilSomebodyWaits(t *testing.T) {
	cancel := make(chan struct{})
	before := strings.Count(stacks(), "fs.(*request).watch")
	r := newRequest(&callerSelf, cancel)
	if r.Err() != nil {
		t.Error("a request begins with an error")
	}
	if n := strings.Count(stacks(), "fs.(*request).watch"); n != before {
		t.Errorf("%d watchers, want %d", n, before)
	}
	done := r.Done()
	close(cancel) // an interrupt, but the caller lives
	if r.Err() != nil {
		t.Error("interrupted although the caller lives")
	}
	r.end()
	eventually(t, "the watcher ends with the request", func() bool {
		return strings.Count(stacks(), "fs.(*request).watch") == before
	})
	select {
	case <-done:
		t.Error("a request that was answered is cancelled")
	default:
	}
	r.end() // harmless
}

func stacks() string {
	buf := make([]byte, 1<<20)
	return string(buf[:runtime.Stack(buf, true)])
}

var callerSelf = fuse.Caller{Pid: uint32(os.Getpid())}
