package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// superviseRole lets this program be the first process of a container, or the driver in it.
const superviseRole = "PAILFS_CSI_TEST_SUPERVISE"

func TestMain(m *testing.M) {
	switch dir := os.Getenv(superviseRole); {
	case dir == "":
		os.Exit(m.Run())
	case os.Getpid() == 1:
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		defer stop()
		os.Exit(supervise(ctx, os.Stderr, os.Args, os.Environ()))
	default:
		os.Exit(actAsDriver(dir))
	}
}

// actAsDriver leaves a daemon that ends when its driver is dead, says that it runs, and waits for its end.
func actAsDriver(dir string) int {
	terminated := make(chan os.Signal, 1)
	signal.Notify(terminated, syscall.SIGTERM)
	orphan := exec.Command("sh", "-c", fmt.Sprintf("(while kill -0 %d 2>/dev/null; do sleep 0.01; done; echo ended >>%s/orphans) &", os.Getpid(), dir))
	if err := orphan.Run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 9
	}
	f, err := os.OpenFile(filepath.Join(dir, "drivers"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err == nil {
		_, err = fmt.Fprintln(f, "runs")
	}
	if err != nil {
		return 9
	}
	<-terminated
	return 0
}

// lines counts the lines of a file.
func lines(dir, name string) int {
	text, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		return 0
	}
	return strings.Count(string(text), "\n")
}

func TestTheFirstProcessKeepsADriverAndReapsWhatItLeft(t *testing.T) {
	dir := t.TempDir()
	var said bytes.Buffer
	first := exec.Command("/proc/self/exe")
	first.Env = append(os.Environ(), superviseRole+"="+dir)
	first.Stderr, first.WaitDelay = &said, time.Minute
	first.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}
	if err := first.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = first.Process.Kill() }()
	eventually := func(what string, holds func() bool) {
		t.Helper()
		for deadline := time.Now().Add(2 * time.Minute); !holds(); time.Sleep(10 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("waited in vain until %s", what)
			}
		}
	}
	children := func() []string {
		var all []string
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", first.Process.Pid))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range threads {
			text, _ := os.ReadFile(path) // the thread may have ended
			all = append(all, strings.Fields(string(text))...)
		}
		return all
	}
	for round := 1; round <= 2; round++ {
		eventually("the driver runs", func() bool { return lines(dir, "drivers") == round })
		for _, pid := range children() {
			if exe, err := os.ReadFile("/proc/" + pid + "/comm"); err != nil || strings.HasPrefix(string(exe), "sh") || strings.HasPrefix(string(exe), "sleep") {
				continue
			}
			var n int
			if _, err := fmt.Sscan(pid, &n); err != nil {
				t.Fatal(err)
			}
			if err := syscall.Kill(n, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
		}
		eventually("what it left has ended", func() bool { return lines(dir, "orphans") == round })
	}
	eventually("the driver runs again", func() bool { return lines(dir, "drivers") == 3 })
	eventually("nothing that has ended is left", func() bool {
		for _, pid := range children() {
			if stat, err := os.ReadFile("/proc/" + pid + "/stat"); err == nil && strings.Contains(string(stat), ") Z ") {
				return false
			}
		}
		return true
	})
	if err := first.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := first.Wait(); err != nil {
		t.Errorf("the end: %v\n%s", err, &said)
	}
}
