package mounting

import (
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pailfs/pailfs/cmd/pailfs/internal/mountpoint"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/programtest"
	"github.com/pailfs/pailfs/fs/mounttest"
)

// notifySocket stands in for the service manager, which reads at once: a socket takes no more
// than ten messages that nobody has read, and whoever sends the next one waits.
func notifySocket(t *testing.T) (path string, next func() string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "notify")
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	messages := make(chan string, 10_000) // more than are sent in all that time
	go func() {
		buf := make([]byte, 4096)
		for {
			n, err := c.Read(buf)
			if err != nil {
				return // it was closed
			}
			messages <- string(buf[:n])
		}
	}()
	t.Cleanup(func() { _ = c.Close() })
	return path, func() string {
		t.Helper()
		select {
		case m := <-messages:
			return m
		case <-time.After(programtest.Patience):
			t.Fatal("no message came")
			return ""
		}
	}
}

func TestServiceManagerIsToldTheState(t *testing.T) {
	t.Parallel()
	s := programtest.NewScene(t)
	path, next := notifySocket(t)
	f := programtest.StartForeground(t, programtest.Environ("NOTIFY_SOCKET="+path, "WATCHDOG_USEC=300000"), s.At, s.MountArgs()...)
	if first := next(); !strings.HasPrefix(first, "READY=1\nSTATUS=oss://"+programtest.TestBucket+" is mounted at "+s.At) {
		t.Errorf("first message %q", first)
	}
	if second := next(); second != "WATCHDOG=1" {
		t.Errorf("second message %q", second)
	}
	programtest.MustRun(t, "umount", s.At)
	for {
		message := next()
		if strings.HasPrefix(message, "STOPPING=1") {
			break
		}
		if message != "WATCHDOG=1" {
			t.Errorf("message %q", message)
		}
	}
	if code := f.Code(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

func TestWatchdogIsNotToldThatAStuckMountLives(t *testing.T) {
	s := programtest.NewScene(t)
	f := programtest.StartForeground(t, programtest.Environ(), s.At, s.MountArgs()...)
	path, next := notifySocket(t)
	t.Setenv("NOTIFY_SOCKET", path)
	t.Setenv("WATCHDOG_USEC", "300000")
	log := new(mounttest.Output)
	n := newNotifier(slog.New(slog.NewTextHandler(log, nil)))
	stop := n.watch(mountpoint.NewProber(s.At))
	if m := next(); m != "WATCHDOG=1" {
		t.Errorf("message %q", m)
	}
	f.Freeze(t)
	programtest.Eventually(t, "the silence is logged twice", func() bool { return strings.Count(log.String(), "does not answer") >= 2 })
	stop()
	n.tell("LAST=1")
	// What was sent before the stop took hold comes first; nothing after it.
	for m := next(); m != "LAST=1"; m = next() {
		if m != "WATCHDOG=1" {
			t.Errorf("message %q", m)
		}
	}
	if err := f.Process.Kill(); err != nil {
		t.Fatal(err)
	}
}
