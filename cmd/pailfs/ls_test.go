package main

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pailfs/pailfs/cmd/pailfs/internal/ls"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/mountpoint"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/programtest"
	"github.com/pailfs/pailfs/fs/mounttest"
)

// healths runs pailfs ls --json on the paths and returns the health of each mount.
func healths(t *testing.T, paths ...string) (map[string]string, int) {
	t.Helper()
	o := programtest.Run(t, programtest.Environ(), append([]string{"ls", "--json", "--timeout=1m"}, paths...)...)
	var r ls.Report
	if err := json.Unmarshal([]byte(o.Stdout), &r); err != nil {
		t.Fatalf("%v: %s%s", err, o.Stdout, o.Stderr)
	}
	got := map[string]string{}
	for _, m := range r.Mounts {
		got[m.MountPoint] = m.Health
	}
	return got, o.Code
}

// TestEveryMountIsListedWithItsHealth: one that lives, one whose daemon was killed, and one that
// hangs.
func TestEveryMountIsListedWithItsHealth(t *testing.T) {
	alive, dead := programtest.NewScene(t), programtest.NewScene(t)
	programtest.StartForeground(t, programtest.Environ(), alive.At, alive.MountArgs()...)
	if got, code := healths(t, alive.At); code != 0 || len(got) != 1 || got[alive.At] != "ok" {
		t.Errorf("%v, exit code %d", got, code)
	}
	daemon := programtest.StartForeground(t, programtest.Environ(), dead.At, dead.MountArgs()...)
	_ = daemon.Process.Kill()
	<-daemon.Done
	if got, code := healths(t, alive.At, dead.At); code != 3 || got[alive.At] != "ok" || got[dead.At] != "dead" {
		t.Errorf("%v, exit code %d", got, code)
	}
	lists(t, "1m", []string{alive.At, dead.At}, "oss://"+programtest.TestBucket+" ", " dead ")
	// By itself: on a busy machine the others do not answer at once either.
	hung := mounttest.Hung(t, mountpoint.Type, "oss://hung/prefix")
	lists(t, "200ms", []string{hung}, " hung ")
	// Without paths it has all of them; others may be mounted beside.
	o := programtest.Run(t, programtest.Environ(), "ls", "--timeout=100ms")
	for _, at := range []string{alive.At, dead.At, hung} {
		if !strings.Contains(o.Stdout, at) {
			t.Errorf("%s is not listed:\n%s", at, o.Stdout)
		}
	}
}

// lists runs pailfs ls on mounts of which one is not well, and looks for something in the line of
// each.
func lists(t *testing.T, timeout string, paths []string, wants ...string) {
	t.Helper()
	o := programtest.Run(t, programtest.Environ(), append([]string{"ls", "--timeout=" + timeout}, paths...)...)
	lines := strings.Split(o.Stdout, "\n")
	if o.Code != 3 || len(lines) != 2+len(wants) || !strings.HasPrefix(lines[0], "SOURCE") {
		t.Fatalf("exit code %d:\n%s%s", o.Code, o.Stdout, o.Stderr)
	}
	for i, want := range wants {
		if !strings.Contains(lines[1+i], want) {
			t.Errorf("line %q has not %q", lines[1+i], want)
		}
	}
}

func TestNoMountIsNoError(t *testing.T) {
	if got, code := healths(t, t.TempDir()); code != 0 || len(got) != 0 {
		t.Errorf("%v, exit code %d", got, code)
	}
	if o := programtest.Run(t, programtest.Environ(), "ls", filepath.Join(t.TempDir(), "none")); o.Code != 1 || !strings.Contains(o.Stderr, "no such file") {
		t.Errorf("exit code %d, %s", o.Code, o.Stderr)
	}
	if o := programtest.Run(t, programtest.Environ(), "ls", "--timeout=0s"); o.Code != 2 || !strings.Contains(o.Stderr, "--timeout 0s is no time") {
		t.Errorf("exit code %d, %s", o.Code, o.Stderr)
	}
}
