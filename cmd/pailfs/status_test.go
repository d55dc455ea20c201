package main

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pailfs/pailfs/cmd/pailfs/internal/programtest"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/wire"
)

func TestCredentialsAreShownWithWhatIsWrongWithThem(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	later, earlier := now.Add(90*time.Minute), now.Add(-time.Hour)
	for want, c := range map[string]wire.Credentials{
		"anonymous": {Kind: "anonymous"},
		"environment, key LTAI…0000, expire in 1h30m0s":        {Kind: "environment", AccessKeyID: "LTAI…0000", Expires: &later},
		"file, EXPIRED 2026-01-02T02:04:05Z":                   {Kind: "file", Expires: &earlier},
		"oidc, CANNOT BE RENEWED: token file: no such file xy": {Kind: "oidc", Error: "token file: no such file xy"},
	} {
		if got := credentialsText(c, now); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// TestStatusFitsAScreen: also with everything that can be told.
func TestStatusFitsAScreen(t *testing.T) {
	var r wire.Status
	r.FileSystem.Problems.Count = 12
	r.Cache.Corrupted = 1
	for range 20 {
		r.Latencies = append(r.Latencies, wire.LatencyStats{Operation: "read", Count: 1})
		r.Store.Requests = append(r.Store.Requests, wire.LatencyStats{Operation: "get", Count: 1, Errors: map[string]uint64{"timeout": 1}})
	}
	var b strings.Builder
	if err := printStatus(&r, &b, time.Now()); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(b.String(), "\n"); n > 45 {
		t.Errorf("%d lines", n)
	}
	for _, want := range []string{"awkward keys", "corrupted", "none: no cache-dir is set", "1 timeout"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("status does not say %q", want)
		}
	}
}

// Without /proc it is not the mount point that does not exist.
func TestStatusWithoutProcSaysThatItNeedsIt(t *testing.T) {
	env := append(programtest.Environ(), "PAILFS_TEST_ROLE=without /proc")
	for _, path := range []string{"/somewhere", "somewhere"} {
		o := programtest.RunAs(t, &syscall.SysProcAttr{}, env, "/proc/self/exe", programtest.Binary, "status", path)
		if o.Code != 1 || !strings.Contains(o.Stderr, "pailfs needs /proc") || strings.Contains(o.Stderr, "not exist") {
			t.Errorf("status of %s: exit code %d: %s", path, o.Code, o.Stderr)
		}
	}
}
