package fs

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pailfs/pailfs/cache"
	"github.com/pailfs/pailfs/fs/internal/callers"
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
				case <-time.After(3 * callers.DyingPoll):
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
