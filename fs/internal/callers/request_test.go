package callers

import (
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

func TestDyingLooksAtPendingSignals(t *testing.T) {
	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if dying(uint32(cmd.Process.Pid)) {
		t.Error("a process that sleeps is dying")
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
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
	before := strings.Count(stacks(), "callers.(*Request).watch")
	r := NewRequest(&callerSelf, cancel)
	if r.Err() != nil {
		t.Error("a request begins with an error")
	}
	if n := strings.Count(stacks(), "callers.(*Request).watch"); n != before {
		t.Errorf("%d watchers, want %d", n, before)
	}
	done := r.Done()
	close(cancel) // an interrupt, but the caller lives
	if r.Err() != nil {
		t.Error("interrupted although the caller lives")
	}
	r.End()
	for deadline := time.Now().Add(time.Minute); strings.Count(stacks(), "callers.(*Request).watch") != before; {
		if time.Now().After(deadline) {
			t.Fatal("the watcher does not end with the request")
		}
		time.Sleep(time.Millisecond)
	}
	select {
	case <-done:
		t.Error("a request that was answered is cancelled")
	default:
	}
	r.End() // harmless
}

func stacks() string {
	buf := make([]byte, 1<<20)
	return string(buf[:runtime.Stack(buf, true)])
}

var callerSelf = fuse.Caller{Pid: uint32(os.Getpid())}
