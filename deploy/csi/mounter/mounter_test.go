package mounter

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// mounterRole lets this program be a mounter on a socket, whose program is a shell.
const mounterRole = "PAILFS_MOUNTER_TEST_SOCKET"

func TestMain(m *testing.M) {
	if socket := os.Getenv(mounterRole); socket != "" {
		os.Exit(actAsMounter(socket))
	}
	os.Exit(m.Run())
}

func actAsMounter(socket string) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	l, err := Listen(socket)
	if err == nil {
		err = (&Server{Pailfs: "/bin/sh", Log: slog.New(slog.NewTextHandler(os.Stderr, nil))}).Serve(ctx, l)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// output is what a process writes, for another goroutine to read.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(b)
}

// node is a directory with a mounter that listens in it.
type node struct {
	*testing.T
	dir     string
	mounter *exec.Cmd
	log     output
}

// newNode starts a mounter, which ends with the test.
func newNode(t *testing.T) *node {
	t.Helper()
	n := &node{T: t, dir: t.TempDir()}
	n.mounter = exec.Command("/proc/self/exe")
	n.mounter.Env = append(os.Environ(), mounterRole+"="+n.path("socket"), "OSS_ACCESS_KEY_SECRET=secret")
	n.mounter.Stderr = &n.log
	if err := n.mounter.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = n.mounter.Process.Kill() }) // it may have ended
	n.eventually("the mounter listens", func() bool {
		info, err := os.Stat(n.path("socket"))
		return err == nil && info.Mode().Perm() == 0o600
	})
	return n
}

func (n *node) path(name string) string { return filepath.Join(n.dir, name) }

// eventually waits until something holds.
func (n *node) eventually(what string, holds func() bool) {
	n.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			n.Fatalf("waited in vain until %s", what)
		}
	}
}

// run has the mounter run a line of shell.
func (n *node) run(ctx context.Context, line string, lock *os.File) (Result, error) {
	return Run(ctx, n.path("socket"), Command{Args: []string{"-c", line}, Environ: []string{"DIR=" + n.dir, "PATH=" + os.Getenv("PATH")}}, lock)
}

// there reports whether a file is in the directory.
func (n *node) there(name string) bool {
	_, err := os.Stat(n.path(name))
	return err == nil
}

func TestACommandsEndIsTold(t *testing.T) {
	n := newNode(t)
	got, err := n.run(t.Context(), `echo out; echo "complaint $OSS_ACCESS_KEY_SECRET" >&2; exit 3`, nil)
	if err != nil || got.Code != 3 || string(got.Out) != "out\n" || string(got.Complaint) != "complaint \n" {
		t.Errorf("%d, %q, %q, %v: the environment is the command's alone", got.Code, got.Out, got.Complaint, err)
	}
	got, err = n.run(t.Context(), `kill -9 $$`, nil)
	if err != nil || got.Code != -1 {
		t.Errorf("a command that is killed: %d, %v", got.Code, err)
	}
	got, err = n.run(t.Context(), `i=0; while test $i -lt 5000; do echo 0123456789; i=$((i+1)); done; echo end`, nil)
	if err != nil || len(got.Out) != maxSaid || !bytes.HasSuffix(got.Out, []byte("\nend\n")) {
		t.Errorf("of a long output %d bytes are told, %v", len(got.Out), err)
	}
}

func TestTheLockIsHeldUntilTheCommandEnds(t *testing.T) {
	n := newNode(t)
	lock, err := os.Create(n.path("lock"))
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	asked := make(chan error, 1)
	go func() {
		_, err := n.run(ctx, `trap 'touch $DIR/told' TERM; touch $DIR/began; until test -e $DIR/go; do sleep 0.01; done`, lock)
		asked <- err
	}()
	n.eventually("the command has begun", func() bool { return n.there("began") })
	cancel() // the driver gives up, and dies
	if err := <-asked; !errors.Is(err, context.Canceled) {
		t.Errorf("who gave up got %v", err)
	}
	if err := lock.Close(); err != nil {
		t.Fatal(err)
	}
	n.eventually("the command was told to end", func() bool { return n.there("told") })
	again, err := os.Open(n.path("lock"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = again.Close() }()
	free := func() bool { return unix.Flock(int(again.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil }
	if free() {
		t.Error("the volume is free while the command runs")
	}
	if err := os.WriteFile(n.path("go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	n.eventually("the volume is free", free)
}

// A daemon is the mounter's, which takes leave of it, and ends it at its own end and waits for it.
func TestDaemonsEndWithTheMounterAlone(t *testing.T) {
	n := newNode(t)
	for _, line := range []string{
		// One ends by itself.
		`(exec >&- 2>&-; echo ended >$DIR/short) &`,
		// The other takes its time when it is told to end.
		`(exec >&- 2>&-; trap 'sleep 0.3; touch $DIR/uploaded; exit 0' TERM; touch $DIR/runs; while :; do sleep 0.01; done) &`,
	} {
		if got, err := n.run(t.Context(), line, nil); err != nil || got.Code != 0 {
			t.Fatalf("%d, %v, %s", got.Code, err, got.Complaint)
		}
	}
	n.eventually("both daemons have begun", func() bool { return n.there("runs") && n.there("short") })
	children := func() int {
		lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", n.mounter.Process.Pid))
		if err != nil {
			t.Fatal(err)
		}
		count := 0
		for _, f := range lists {
			text, _ := os.ReadFile(f) // the thread may have ended
			count += len(strings.Fields(string(text)))
		}
		return count
	}
	n.eventually("what has ended is gone", func() bool { return children() == 1 })
	if err := n.mounter.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := n.mounter.Wait(); err != nil || !n.there("uploaded") {
		t.Errorf("the mounter ended with %v, and its daemon had uploaded: %t\n%s", err, n.there("uploaded"), n.log.text.String())
	}
	if _, err := n.run(t.Context(), "true", nil); err == nil || !strings.Contains(err.Error(), "reach the mounter of this node") {
		t.Errorf("without a mounter: %v", err)
	}
}

func TestTheEndDoesNotWaitForWhoSaysNothing(t *testing.T) {
	n := newNode(t)
	silent, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: n.path("socket"), Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = silent.Close() }() // nothing was said
	// Connections are accepted in order.
	if _, err := n.run(t.Context(), "true", nil); err != nil {
		t.Fatal(err)
	}
	if err := n.mounter.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- n.mounter.Wait() }()
	n.eventually("the mounter ends", func() bool { return len(ended) == 1 })
	if err := <-ended; err != nil {
		t.Errorf("%v\n%s", err, n.log.text.String())
	}
}

func TestAnotherMounterIsNotReplaced(t *testing.T) {
	n := newNode(t)
	if _, err := Listen(n.path("socket")); err == nil || !strings.Contains(err.Error(), "another mounter answers there") {
		t.Errorf("a second mounter: %v", err)
	}
	if err := n.mounter.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = n.mounter.Wait() // it was killed
	l, err := Listen(n.path("socket"))
	if err != nil {
		t.Fatalf("after a mounter that was killed: %v", err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}
