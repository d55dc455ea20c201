package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pailfs/pailfs/fs/mounttest"
)

// TestFlushWaitsForADaemonThatIsSlowToAnswer keeps the daemon from answering for longer than
// a mount is given to show that it lives.
func TestFlushWaitsForADaemonThatIsSlowToAnswer(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	f := startForeground(t, environ(), s.at, s.mountArgs()...)
	if err := os.WriteFile(filepath.Join(s.at, "shard"), []byte("content"), 0o600); err != nil {
		t.Fatal(err)
	}
	f.freeze(t)
	out := new(mounttest.Output)
	flush := exec.Command(binary, "flush", s.at)
	flush.Env, flush.Stdout, flush.Stderr = environ(), out, out
	if err := flush.Start(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(probePatience + time.Second)
	if err := f.Process.Signal(unix.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if err := flush.Wait(); err != nil {
		t.Errorf("flush: %v: %s", err, out)
	}
}
