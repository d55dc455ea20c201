package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pailfs/pailfs/cmd/pailfs/internal/mountpoint"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/programtest"
	"github.com/pailfs/pailfs/fs/mounttest"
)

// TestFlushWaitsForADaemonThatIsSlowToAnswer keeps the daemon from answering for longer than
// a mount is given to show that it lives.
func TestFlushWaitsForADaemonThatIsSlowToAnswer(t *testing.T) {
	t.Parallel()
	s := programtest.NewScene(t)
	f := programtest.StartForeground(t, programtest.Environ(), s.At, s.MountArgs()...)
	if err := os.WriteFile(filepath.Join(s.At, "shard"), []byte("content"), 0o600); err != nil {
		t.Fatal(err)
	}
	f.Freeze(t)
	out := new(mounttest.Output)
	flush := exec.Command(programtest.Binary, "flush", s.At)
	flush.Env, flush.Stdout, flush.Stderr = programtest.Environ(), out, out
	if err := flush.Start(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(mountpoint.Patience + time.Second)
	if err := f.Process.Signal(unix.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if err := flush.Wait(); err != nil {
		t.Errorf("flush: %v: %s", err, out)
	}
}
