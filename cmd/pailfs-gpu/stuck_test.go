package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pailfs/pailfs/cmd/internal/command"
	"github.com/pailfs/pailfs/oss/ossemu"
)

// slow is a file whose name the object store takes for ever to tell of.
const slow = "/deep/slow"

// slowStore mounts a bucket with such a file.
func slowStore(h *host) (at string, args []string, s *ossemu.Server, daemon *process) {
	h.t.Helper()
	s, args = store(h.t)
	at, first := h.mounted(args)
	if err := os.Mkdir(at+"/deep", 0o755); err != nil {
		h.t.Fatal(err)
	}
	if err := os.WriteFile(at+slow, []byte("here\n"), 0o600); err != nil {
		h.t.Fatal(err)
	}
	h.pailfs("umount", at)
	if first.code() != 0 {
		h.t.Fatalf("umount: %s", &first.errOut)
	}
	if err := s.SetFaults([]ossemu.Fault{{KeyContains: "deep", Kind: ossemu.FaultSlowFirstByte, Delay: time.Hour}}); err != nil {
		h.t.Fatal(err)
	}
	// The next mount knows nothing of the first one's.
	args = append(args[:3:3], "--cache-dir", h.t.TempDir(), "--cache-size", "256MiB")
	return at, args, s, h.mount(at, args)
}

// hang waits until the daemon asks the store for the name, and stops it: who waits for the
// name does so in the kernel from then on, past SIGKILL. (Reads of content can be killed.) It
// returns when every thread of the daemon rests: one that runs still would hear of a SIGKILL, and
// answer.
func hang(t *testing.T, s *ossemu.Server, daemon *process) {
	t.Helper()
	eventually(t, "the daemon to ask for the name", func() bool { return s.Stats().Faults[ossemu.FaultSlowFirstByte] > 0 })
	if err := daemon.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Error(err)
	}
	eventually(t, "the daemon to stop", func() bool {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", daemon.Process.Pid))
		if err != nil || len(threads) == 0 {
			t.Errorf("the daemon's threads: %v, %v", threads, err)
			return true
		}
		return !slices.ContainsFunc(threads, func(path string) bool {
			stat, err := os.ReadFile(path)
			return err == nil && !strings.Contains(string(stat), ") T ") // else the thread has ended
		})
	})
}

// writeProgram writes a program that is to be started. No other test starts a process
// meanwhile: that would have the file open for writing for a moment, and who does not wait
// for it is told that the file is busy.
func writeProgram(t *testing.T, path, text string) {
	t.Helper()
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	if err := os.WriteFile(path, []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
}

// TestQuestionThatCannotBeEndedIsAnswered: the process that asks is stuck in the kernel; the
// verdict comes all the same, and no other process is started before it is gone.
func TestQuestionThatCannotBeEndedIsAnswered(t *testing.T) {
	t.Parallel()
	h := newHost(t, 1)
	at, _, s, daemon := slowStore(h)
	script := h.dir + "/asks"
	writeProgram(t, script, "#!/bin/sh\necho >> "+h.dir+"/asked; exec cat "+at+slow+"\n")
	m := &mount{pailfs: script, path: at, p: program{Program: command.Program{Stderr: io.Discard}}, patience: patience}
	ctx, cancel := context.WithCancel(t.Context())
	hung := make(chan struct{})
	go func() {
		defer close(hung)
		hang(t, s, daemon)
		cancel()
	}()
	defer func() { <-hung }()
	for range 2 {
		if _, err := m.check(ctx); !errors.Is(err, errStuck) {
			t.Fatalf("the verdict: %v", err)
		}
	}
	if read(t, h.dir+"/asked") != "\n" {
		t.Error("a second process was started")
	}
	daemon.kill()
	eventually(t, "the process to go when the daemon has", func() bool {
		_, err := m.check(t.Context())
		return !errors.Is(err, errStuck)
	})
}

// TestHangingMountEndsTheRun: the command waits in the kernel for a daemon that hangs.
func TestHangingMountEndsTheRun(t *testing.T) {
	t.Parallel()
	h := newHost(t, 1)
	at, _, s, daemon := slowStore(h)
	p := h.run("--mount", at, "--check-patience", "3s", "--grace", "1s", "--linger", "1s", "--", "cat", at+slow)
	hang(t, s, daemon)
	if p.code() != exitNotRun || !strings.Contains(p.errOut.String(), "cannot be ended; pailfs umount --force frees it") {
		t.Errorf("exit code %d: %s", p.code(), &p.errOut)
	}
}

// TestHangingMountThatIsReplacedStartsTheCommandAgain.
func TestHangingMountThatIsReplacedStartsTheCommandAgain(t *testing.T) {
	t.Parallel()
	h := newHost(t, 1)
	at, args, s, daemon := slowStore(h)
	p := h.run("--mount", at, "--restarts", "1", "--check-patience", "3s", "--grace", "1s", "--linger", "1s", "--", "cat", at+slow)
	hang(t, s, daemon)
	p.says("does not answer")
	if err := s.SetFaults(nil); err != nil {
		t.Fatal(err)
	}
	daemon.kill()
	h.mount(at, args)
	if p.code() != 0 || p.out.String() != "here\n" {
		t.Errorf("exit code %d, %q: %s", p.code(), &p.out, &p.errOut)
	}
}

func TestStuckDriverIsSaid(t *testing.T) {
	t.Parallel()
	h := newHost(t, 0)
	if err := os.WriteFile(h.dir+"/state", []byte("driver stuck\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := h.start("pailfs-gpu", "--driver-patience", "100ms", "gpu")
	if p.code() != command.Failed || !strings.Contains(p.out.String(), "Unknown: DriverStuck") {
		t.Errorf("exit code %d:\n%s%s", p.code(), &p.out, &p.errOut)
	}
	p = h.start("pailfs-gpu", "--driver-patience", "100ms", "run", "--lock-dir", h.dir+"/locks", "--", "true")
	if p.code() != exitNotRun || !strings.Contains(p.errOut.String(), "the driver has not answered") {
		t.Errorf("run: exit code %d: %s", p.code(), &p.errOut)
	}
	watch := h.start("pailfs-gpu", "--driver-patience", "100ms", "gpu", "--watch", "--json")
	eventually(t, "the first line", func() bool { return strings.Contains(watch.out.String(), "DriverStuck") })
	h.say(1)
	eventually(t, "the driver to be well again", func() bool { return strings.Contains(watch.out.String(), "GPU-0") })
	well := len(watch.out.String())
	if err := os.WriteFile(h.dir+"/state", []byte("driver stuck\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the driver to hang again", func() bool { return strings.Contains(watch.out.String()[well:], "DriverStuck") })
	for line := range strings.Lines(watch.out.String()[well:]) {
		if strings.Contains(line, "DriverStuck") && !strings.Contains(line, `"expected":1,`) {
			t.Errorf("it has forgotten how many there should be: %s", line)
		}
	}
	h.say(1)
	again := len(watch.out.String())
	eventually(t, "the driver to be well at last", func() bool { return strings.Contains(watch.out.String()[again:], "GPU-0") })
	if err := watch.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if watch.code() != 0 {
		t.Errorf("exit code %d: %s", watch.code(), &watch.errOut)
	}
}
