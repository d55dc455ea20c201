package rig

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func shell(t *testing.T, script string) *process {
	t.Helper()
	p, err := startProcess(processConfig{
		name: "script", args: []string{"sh", "-c", script}, env: []string{"GREETING=hello"},
		log: filepath.Join(t.TempDir(), "log"),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.stop(time.Second) })
	return p
}

func TestProcessStopsWhenAsked(t *testing.T) {
	p := shell(t, "echo $GREETING; exec sleep 100")
	if !p.running() {
		t.Error("it does not run")
	}
	if err := p.waitFor(t.Context(), "a word", time.Minute, func() bool { return strings.Contains(p.lastWords(), "hello") }); err != nil {
		t.Error(err)
	}
	if err := p.stop(time.Minute); err != nil {
		t.Error(err)
	}
	if p.running() {
		t.Error("it runs on")
	}
	if err := p.stop(time.Minute); err != nil {
		t.Errorf("stopped again: %v", err)
	}
}

func TestProcessThatDoesNotEndIsKilledAndReported(t *testing.T) {
	p := shell(t, "trap '' TERM; echo ready; while :; do sleep 0.01; done")
	if err := p.waitFor(t.Context(), "a word", time.Minute, func() bool { return strings.Contains(p.lastWords(), "ready") }); err != nil {
		t.Fatal(err)
	}
	err := p.stop(50 * time.Millisecond)
	if err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("error is %v", err)
	}
	if p.running() {
		t.Error("it runs on")
	}
}

func TestWaitForReportsLastWords(t *testing.T) {
	p := shell(t, "echo no such bucket >&2; exit 3")
	err := p.waitFor(t.Context(), "the mount", time.Minute, func() bool { return false })
	if err == nil || !strings.Contains(err.Error(), "no such bucket") || !strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("error is %v", err)
	}
	slow := shell(t, "exec sleep 100")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := slow.waitFor(ctx, "the mount", time.Minute, func() bool { return false }); err == nil {
		t.Error("waiting did not end with its context")
	}
}

func TestReadyLineNamesBothAddresses(t *testing.T) {
	for said, want := range map[string][2]string{
		"":                                 {},
		"ossemu ready endpoint=http://a:1": {}, // not yet whole
		"key id: x\nossemu ready endpoint=http://a:1 admin=http://b:2\n": {"http://a:1", "http://b:2"},
		"ossemu ready endpoint=http://a:1 admin=b:2\n":                   {"http://a:1", "http://b:2"},
	} {
		endpoint, admin := parseReady(said)
		if endpoint != want[0] || admin != want[1] {
			t.Errorf("%q names %q and %q", said, endpoint, admin)
		}
	}
}

func TestDriversHaveTheirNames(t *testing.T) {
	drivers := Drivers()
	for _, name := range []string{"disk", "bare", "pailfs", "pailfs-immutable", "pailfs-nopassthrough"} {
		if d := drivers[name]; d == nil || d.Name() != name {
			t.Errorf("driver %q is %v", name, d)
		}
	}
	base := PailfsImmutable()
	if with := base.With("--memory", "1"); len(with.Flags) != 4 || len(base.Flags) != 2 {
		t.Errorf("flags are %q and %q", with.Flags, base.Flags)
	}
}

func TestLinkDescribesItself(t *testing.T) {
	for want, link := range map[string]Link{
		"none": {}, "seed": {Profile: "seed"}, "seed, link 600MB/s": {Profile: "seed", Download: "600MB"},
	} {
		if got := link.String(); got != want {
			t.Errorf("%+v is %q, want %q", link, got, want)
		}
	}
}
