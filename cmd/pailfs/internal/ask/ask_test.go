package ask

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pailfs/pailfs/cmd/internal/command"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/machine"
	"github.com/pailfs/pailfs/prefetch/control"
)

func TestPathsOfNoMountAreRefusedWithAReason(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	none := filepath.Join(dir, "none")
	for _, c := range []struct {
		find func() error
		want string
	}{
		{func() error { _, _, err := At(none); return err }, "does not exist: give the directory where a bucket is mounted"},
		{func() error { _, _, err := At(dir); return err }, "nothing is mounted at " + dir},
		{func() error { _, _, err := At("/proc"); return err }, "/proc is a mount of type proc, not of pailfs"},
		{func() error { _, _, err := Above("/proc/self"); return err }, "nothing is mounted at /proc/"},
		{func() error { _, _, err := Above(none); return err }, "does not exist"},
		{func() error { _, _, err := Together([]string{none}); return err }, "nothing is mounted at " + dir},
		{func() error { _, _, err := Within(filepath.Join(none, "deeper")); return err }, "nothing is mounted at " + dir},
	} {
		if err := c.find(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want something of %q", err, c.want)
		}
	}
}

func TestADeadDaemonHasItsExitCode(t *testing.T) {
	if err := Error("/mnt", fmt.Errorf("call: %w", control.ErrDaemonGone)); command.Code(err) != ExitDead || !strings.HasPrefix(err.Error(), "/mnt: ") {
		t.Errorf("code %d: %v", command.Code(err), err)
	}
	other := errors.New("no such method")
	if err := Error("/mnt", other); !errors.Is(err, other) || command.Code(err) != command.Failed {
		t.Errorf("code %d: %v", command.Code(err), err)
	}
}

func TestAProcessIsWatchedToItsEnd(t *testing.T) {
	cmd := exec.Command("cat")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ticks, err := machine.StartTicks(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	p, err := Watch(cmd.Process.Pid, ticks)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if !p.Seen() || p.Ended() {
		t.Errorf("a process that runs: seen %t, ended %t", p.Seen(), p.Ended())
	}
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	if !p.Poll(time.Minute) || !p.Ended() {
		t.Error("its end was not seen")
	}
	_ = cmd.Wait()
}

// TestAnotherProcessWithTheSameIDIsNotWatched: it began at another time.
func TestAnotherProcessWithTheSameIDIsNotWatched(t *testing.T) {
	ticks, err := machine.StartTicks(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	p, err := Watch(os.Getpid(), ticks+1)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if p.Seen() || p.Ended() {
		t.Errorf("seen %t, ended %t", p.Seen(), p.Ended())
	}
}
