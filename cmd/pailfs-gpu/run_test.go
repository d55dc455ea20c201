package main

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

func TestRunHandsOverFreeHealthyGPUs(t *testing.T) {
	t.Parallel()
	h := newHost(t, 4, "proc 4194303 100", "", "set lost 1", "")
	p := h.run("--gpus", "2", "--", "sh", "-c", "echo got $CUDA_VISIBLE_DEVICES")
	if p.code() != 0 || p.out.String() != "got GPU-1,GPU-3\n" {
		t.Errorf("exit code %d, %q: %s", p.code(), &p.out, &p.errOut)
	}
}

func TestTwoRunsGetDifferentGPUs(t *testing.T) {
	t.Parallel()
	h := newHost(t, 2)
	first := h.run("--gpus", "1", "--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES > "+h.dir+"/first.new; mv "+h.dir+"/first.new "+h.dir+"/first; while [ ! -e "+h.dir+"/end ]; do sleep 0.05; done")
	eventually(t, "the first command", exists(h.dir+"/first"))
	second := h.run("--gpus", "1", "--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES")
	if second.code() != 0 || second.out.String() == read(t, h.dir+"/first") {
		t.Errorf("exit code %d: %q and %q", second.code(), &second.out, read(t, h.dir+"/first"))
	}
	// Both are wanted, one is taken: this one waits until the first has ended.
	third := h.run("--gpus", "2", "--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES")
	eventually(t, "the third run to wait", func() bool { return strings.Contains(third.errOut.String(), "another pailfs run has it") })
	if err := os.WriteFile(h.dir+"/end", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if third.code() != 0 || third.out.String() != "GPU-0,GPU-1\n" || first.code() != 0 {
		t.Errorf("third: exit code %d, %q: %s", third.code(), &third.out, &third.errOut)
	}
}

func TestRunHandsOverInstancesOfDividedGPUs(t *testing.T) {
	t.Parallel()
	h := newHost(t, 2, "", "set mig 1\nmig_instance MIG-a 1 5000000000 1g.5gb\nmig_proc 4194303 5\nmig_instance MIG-b 2 5000000000 1g.5gb\nmig_instance MIG-c 3 20000000000 3g.20gb")
	show := []string{"--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES"}
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, "GPU-0\n"},
		{[]string{"--mig", "1g.5gb"}, "MIG-b\n"},
		{[]string{"--mig", "any", "--min-free", "10GB"}, "MIG-c\n"},
		{[]string{"--mig", "any", "--gpus", "2"}, "MIG-b,MIG-c\n"},
	} {
		p := h.run(append(c.args, show...)...)
		if p.code() != 0 || p.out.String() != c.want {
			t.Errorf("%v: exit code %d, %q: %s", c.args, p.code(), &p.out, &p.errOut)
		}
	}
	p := h.run("--mig", "7g.40gb", "--", "true")
	if p.code() != exitNotRun || !strings.Contains(p.errOut.String(), "1 asked for, 0 to be had of 0 MIG instances (7g.40gb)") {
		t.Errorf("a profile that is not there: exit code %d: %s", p.code(), &p.errOut)
	}
	h.say(1, "set mig 1\nmig_instance MIG-a 1 5000000000 1g.5gb")
	if p := h.run(show...); p.code() != 0 || p.out.String() != "MIG-a\n" {
		t.Errorf("where all are divided: exit code %d, %q: %s", p.code(), &p.out, &p.errOut)
	}
}

func TestExitCodeIsTheCommands(t *testing.T) {
	t.Parallel()
	h := newHost(t, 1)
	notExecutable := filepath.Join(h.dir, "file")
	if err := os.WriteFile(notExecutable, []byte("#!/bin/sh\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"--", "true"}, 0, ""},
		{[]string{"--", "sh", "-c", "exit 7"}, 7, ""},
		{[]string{"--", "sh", "-c", "kill -KILL $$"}, 137, ""},
		{[]string{"--", "/nonexistent/command"}, 127, "no such command"},
		{[]string{"--", notExecutable}, 126, "permission denied"},
		{[]string{"--gpus", "2", "--", "true"}, 125, "2 asked for, 1 to be had of 1"},
		{[]string{"--gpus=-1", "--", "true"}, 2, "must not be negative"},
		{[]string{"--min-free", "much", "--", "true"}, 2, "not a size"},
		{[]string{"--notice-signal", "KILL", "--", "true"}, 2, "leaves a command no time"},
		{[]string{"--notice-signal", "bell", "--", "true"}, 2, "is no signal"},
		{[]string{"--dataset", "x", "--", "true"}, 2, "needs --mount"},
		{[]string{"--mount", h.dir, "--dataset", "../x", "--", "true"}, 2, "not a path in the mount"},
		{[]string{"--mount", h.dir, "--wait", "1s", "--", "true"}, 125, "no healthy mount within 1s"},
		{[]string{"--gpus", "1"}, 2, "command"},
	} {
		p := h.run(c.args...)
		if p.code() != c.code || !strings.Contains(p.errOut.String(), c.says) {
			t.Errorf("%q: exit code %d, want %d; it says %q, want %q", c.args, p.code(), c.code, &p.errOut, c.says)
		}
	}
}

func TestSignalsReachTheCommand(t *testing.T) {
	t.Parallel()
	h := newHost(t, 1)
	p := h.run("--", "sh", "-c", `trap "exit 42" TERM; trap "touch `+h.dir+`/usr1" USR1; touch `+h.dir+`/ready; while :; do sleep 0.05; done`)
	eventually(t, "the command", exists(h.dir+"/ready"))
	for _, s := range []syscall.Signal{syscall.SIGUSR1, syscall.SIGTERM} {
		if err := p.Process.Signal(s); err != nil {
			t.Fatal(err)
		}
		if s == syscall.SIGUSR1 {
			eventually(t, "USR1 to arrive", exists(h.dir+"/usr1"))
		}
	}
	if p.code() != 42 {
		t.Errorf("exit code %d: %s", p.code(), &p.errOut)
	}
}

// TestWhatTheCommandLeavesEndsBeforeTheFlush: the shell ends at the signal, the program
// that it waits for is told then, and what that writes on its way out is saved.
func TestWhatTheCommandLeavesEndsBeforeTheFlush(t *testing.T) {
	t.Parallel()
	h := newHost(t, 1)
	args := bucket(t)
	at, _ := h.mounted(args)
	trainer := `trap "sleep 0.2; echo last > ` + at + `/checkpoint; exit 0" TERM; touch ` + h.dir + `/ready; while :; do sleep 0.05; done`
	p := h.run("--mount", at, "--", "sh", "-c", "sh -c '"+trainer+"'; echo x")
	eventually(t, "the trainer", exists(h.dir+"/ready"))
	if err := p.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if p.code() != 128+int(syscall.SIGTERM) || !strings.Contains(p.errOut.String(), "left processes running (1): SIGTERM") {
		t.Errorf("exit code %d: %s", p.code(), &p.errOut)
	}
	if got := h.inBucket(args, "checkpoint"); got != "last\n" {
		t.Errorf("in the bucket: %q", got)
	}
}

func TestWhatTheCommandLeavesIsKilledAfterTheGrace(t *testing.T) {
	t.Parallel()
	h := newHost(t, 1)
	p := h.run("--grace", "100ms", "--", "sh", "-c",
		`setsid sh -c 'trap "" TERM; echo $$ > `+h.dir+`/new; mv `+h.dir+`/new `+h.dir+`/pid; exec sleep 600' & while [ ! -e `+h.dir+`/pid ]; do sleep 0.05; done; exit 5`)
	if p.code() != 5 || !strings.Contains(p.errOut.String(), "what it left does not end: SIGKILL") {
		t.Errorf("exit code %d: %s", p.code(), &p.errOut)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(read(t, h.dir+"/pid")))
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("process %d is there still: %v", pid, err)
	}
}

// TestOrphansAreReaped: the command waits for a process to vanish of which it is not the
// parent.
func TestOrphansAreReaped(t *testing.T) {
	t.Parallel()
	h := newHost(t, 1)
	p := h.run("--", "sh", "-c", `(sleep 0.1 & echo $! > `+h.dir+`/pid); while [ -e /proc/$(cat `+h.dir+`/pid) ]; do sleep 0.05; done; exit 3`)
	if p.code() != 3 {
		t.Errorf("exit code %d: %s", p.code(), &p.errOut)
	}
}

func TestSignalWhileWaitingEndsTheRun(t *testing.T) {
	t.Parallel()
	h := newHost(t, 1, "proc 4194303 100")
	p := h.run("--", "true")
	eventually(t, "the run to wait", func() bool { return strings.Contains(p.errOut.String(), "waiting for GPUs") })
	if err := p.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if p.code() != exitNotRun || !strings.Contains(p.errOut.String(), "terminated before the command was started") {
		t.Errorf("exit code %d: %s", p.code(), &p.errOut)
	}
}

func TestCommandFindsItsDatasetAndLeavesItsCheckpointInTheBucket(t *testing.T) {
	t.Parallel()
	h := newHost(t, 1)
	args := bucket(t)
	at, _ := h.mounted(args)
	p := h.run("--mount", at, "--", "sh", "-c", "mkdir "+at+"/train && echo weights > "+at+"/train/step-1")
	if p.code() != 0 {
		t.Fatalf("write: exit code %d: %s", p.code(), &p.errOut)
	}
	p = h.run("--mount", at, "--dataset", "train", "--", "cat", at+"/train/step-1")
	if p.code() != 0 || p.out.String() != "weights\n" {
		t.Errorf("read: exit code %d, %q: %s", p.code(), &p.out, &p.errOut)
	}
	// A mount without the first one's cache sees what is in the bucket alone.
	other := append([]string{args[0]}, args[1:3]...)
	elsewhere := h.dir + "/other"
	if err := os.Mkdir(elsewhere, 0o755); err != nil {
		t.Fatal(err)
	}
	h.mount(elsewhere, other)
	if got := read(t, elsewhere+"/train/step-1"); got != "weights\n" {
		t.Errorf("in the bucket: %q", got)
	}
	p = h.run("--mount", at, "--dataset", "absent", "--", "true")
	if p.code() != exitNotRun || !strings.Contains(p.errOut.String(), "absent") {
		t.Errorf("absent dataset: exit code %d: %s", p.code(), &p.errOut)
	}
}

func TestFailedMountEndsTheCommandAndStartsItAgain(t *testing.T) {
	t.Parallel()
	h := newHost(t, 1)
	args := bucket(t)
	at, daemon := h.mounted(args)
	script := "echo start >> " + h.dir + "/starts; while [ ! -e " + h.dir + "/end ]; do sleep 0.05; done; exit 9"
	once := h.run("--mount", at, "--", "sh", "-c", script)
	eventually(t, "the command", exists(h.dir+"/starts"))
	daemon.kill()
	if once.code() != exitNotRun || !strings.Contains(once.errOut.String(), "failed while the command ran") {
		t.Errorf("without restarts: exit code %d: %s", once.code(), &once.errOut)
	}

	daemon = h.mount(at, args)
	again := h.run("--mount", at, "--restarts", "1", "--", "sh", "-c", script)
	eventually(t, "the second command", func() bool { return read(t, h.dir+"/starts") == "start\nstart\n" })
	daemon.kill()
	eventually(t, "the restart to wait", func() bool { return strings.Contains(again.errOut.String(), "waiting for a healthy mount") })
	h.mount(at, args)
	eventually(t, "the third command", func() bool { return read(t, h.dir+"/starts") == "start\nstart\nstart\n" })
	if err := os.WriteFile(h.dir+"/end", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if again.code() != 9 {
		t.Errorf("with a restart: exit code %d: %s", again.code(), &again.errOut)
	}
}
