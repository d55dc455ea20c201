package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pailfs/pailfs/fs/mounttest"
	"github.com/pailfs/pailfs/oss/ossemu"
	"github.com/pailfs/pailfs/prefetch/control"
)

// TestAFlushHasNotFailedWhileTheStoreIsAway: who may read a file cannot be told then, to anybody
// but root.
func TestAFlushHasNotFailedWhileTheStoreIsAway(t *testing.T) {
	t.Parallel()
	m := &rightsMount{store: startStore(t)}
	m.put(t, "d/x", []byte("content"))
	_, m.at = m.mount(t)
	if err := m.SetFaults([]ossemu.Fault{{Kind: ossemu.FaultError, Code: "InternalError"}}); err != nil {
		t.Fatal(err)
	}
	flush := userCall{"flush", flushParams{Path: "d/x"}}
	if a := otherUser.run(t, errand{Dir: m.at, Calls: []userCall{flush}}).Answers[0]; a.Code != string(control.CodeUntold) {
		t.Errorf("told %q: %s", a.Code, a.Message)
	}
	var flushed flushAnswer
	if rootUser.call(t, m.at, "flush", flush.Params, &flushed); !flushed.Done {
		t.Errorf("root is told %+v", flushed)
	}
	if err := m.SetFaults(nil); err != nil {
		t.Fatal(err)
	}
	if otherUser.call(t, m.at, "flush", flush.Params, &flushed); !flushed.Done {
		t.Errorf("when it is back: %+v", flushed)
	}
}

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
