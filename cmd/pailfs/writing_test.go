package main

import (
	"bytes"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pailfs/pailfs/cmd/internal/command"
	"github.com/pailfs/pailfs/oss/ossemu"
)

// writableMount mounts in the foreground with a cache directory.
func writableMount(t *testing.T, s *store, cacheDir string, flags ...string) (*foreground, string) {
	t.Helper()
	at := newMountPoint(t)
	args := append([]string{"mount", "oss://" + testBucket, at, "--endpoint", s.endpoint, "--cache-dir", cacheDir}, flags...)
	return startForeground(t, environ(), at, args...), at
}

// holds fails unless the bucket has content at key.
func (s *store) holds(t *testing.T, key, content string) {
	t.Helper()
	var got bytes.Buffer
	if err := s.Get(testBucket, key, &got); err != nil || got.String() != content {
		t.Errorf("%s holds %q (%v), want %q", key, got.String(), err, content)
	}
}

// refuseUploads makes every upload fail for good, or ends that.
func (s *store) refuseUploads(t *testing.T, refuse bool) {
	t.Helper()
	var faults []ossemu.Fault
	if refuse {
		faults = []ossemu.Fault{{Operation: "PutObject", Kind: ossemu.FaultError, Code: "AccessDenied", Status: http.StatusForbidden}}
	}
	if err := s.SetFaults(faults); err != nil {
		t.Fatal(err)
	}
}

func writeFile(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestUmountUploadsWhatWasWritten(t *testing.T) {
	s := startStore(t)
	f, at := writableMount(t, s, filepath.Join(t.TempDir(), "cache"))
	writeFile(t, filepath.Join(at, "a"), "first")
	mustRun(t, "flush", filepath.Join(at, "a"))
	s.holds(t, "a", "first")
	writeFile(t, filepath.Join(at, "b"), "second")
	if out := mustRun(t, "status", at).stdout; !strings.Contains(out, "writing") {
		t.Errorf("status does not tell of writing: %s", out)
	}
	mustRun(t, "umount", at)
	s.holds(t, "b", "second")
	if code := f.code(t); code != 0 {
		t.Errorf("the daemon ended with %d", code)
	}
}

// TestPolicySaysWhichPathsAreWrittenThrough: an upload that is refused is an error of
// close there, and of nobody's elsewhere.
func TestPolicySaysWhichPathsAreWrittenThrough(t *testing.T) {
	s, cacheDir := startStore(t), filepath.Join(t.TempDir(), "cache")
	file := filepath.Join(t.TempDir(), "pailfs.yaml")
	writeFile(t, file, "policy:\n  through: [results, '*.final']\n  back: [results/scratch]\n")
	f, at := writableMount(t, s, cacheDir, "--drain-timeout", "1s", "--config", file)
	for _, dir := range []string{"results", "results/scratch"} {
		if err := os.Mkdir(filepath.Join(at, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	mustRun(t, "flush", at)
	writeFile(t, filepath.Join(at, "results/good"), "content")
	s.holds(t, "results/good", "content")
	s.refuseUploads(t, true)
	// The last of them waits behind what was refused before.
	for _, c := range []struct {
		name  string
		fails bool
	}{{"results/scratch/c", false}, {"d", false}, {"results/a", true}, {"b.final", true}} {
		if err := os.WriteFile(filepath.Join(at, c.name), []byte("content"), 0o644); (err != nil) != c.fails {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	s.refuseUploads(t, false)
	mustRun(t, "umount", at)
	s.holds(t, "results/a", "content")
	if code := f.code(t); code != 0 {
		t.Errorf("the daemon ended with %d", code)
	}
}

// TestFlushEndsBehindWhatCannotBeUploaded: what waits behind a change that cannot
// succeed is not waited for, and the error says what would help.
func TestFlushEndsBehindWhatCannotBeUploaded(t *testing.T) {
	s, cacheDir := startStore(t), filepath.Join(t.TempDir(), "cache")
	f, at := writableMount(t, s, cacheDir, "--drain-timeout", "1s")
	if err := os.Mkdir(filepath.Join(at, "ckpt"), 0o755); err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(at, "latest"), "step 1")
	mustRun(t, "flush", at)
	if err := s.SetFaults([]ossemu.Fault{{
		Operation: "PutObject", KeyContains: "shard", Kind: ossemu.FaultError, Code: "AccessDenied", Status: http.StatusForbidden,
	}}); err != nil {
		t.Fatal(err)
	}
	refused := func(wants []string, args ...string) {
		t.Helper()
		o := run(t, environ(), args...)
		for _, want := range wants {
			if o.code != command.Failed || !strings.Contains(o.stderr, want) {
				t.Errorf("%q: exit code %d, without %q: %s", args, o.code, want, o.stderr)
			}
		}
	}
	writeFile(t, filepath.Join(at, "ckpt/shard"), "content")
	refused([]string{"ckpt/shard", "oss:PutObject"}, "flush", filepath.Join(at, "ckpt"))
	// What replaces an object follows what was written below its directory before.
	writeFile(t, filepath.Join(at, "latest"), "step 2")
	behind := []string{"ckpt/shard", "oss:PutObject", "wait behind", "latest"}
	refused(behind, "flush", at)
	refused(behind, "umount", at)
	refused(behind, "flush", "--timeout", "5m", filepath.Join(at, "latest"))
	s.holds(t, "latest", "step 1")
	if err := s.SetFaults(nil); err != nil {
		t.Fatal(err)
	}
	mustRun(t, "umount", at)
	s.holds(t, "latest", "step 2")
	if code := f.code(t); code != 0 {
		t.Errorf("the daemon ended with %d", code)
	}
}

// TestUmountFailsWhileSomethingIsLeft: an unmount that says 0 has uploaded
// everything. With --force what is left waits for the next mount, which uploads it.
func TestUmountFailsWhileSomethingIsLeft(t *testing.T) {
	s, cacheDir := startStore(t), filepath.Join(t.TempDir(), "cache")
	f, at := writableMount(t, s, cacheDir, "--drain-timeout", "1s")
	s.refuseUploads(t, true)
	writeFile(t, filepath.Join(at, "precious"), "content")
	for _, args := range [][]string{{"umount", at}, {"umount", "--timeout", "1s", at}, {"flush", at}, {"flush", "--timeout", "1s", at}} {
		o := run(t, environ(), args...)
		if o.code != command.Failed || !strings.Contains(o.stderr, "precious") {
			t.Errorf("%q: exit code %d: %s", args, o.code, o.stderr)
		}
	}
	if !isMounted(t, at) || !f.running() {
		t.Fatal("it was unmounted with something left")
	}
	o := run(t, environ(), "umount", "--force", at)
	if o.code != 0 || !strings.Contains(o.stderr, "precious") {
		t.Errorf("umount --force: exit code %d: %s", o.code, o.stderr)
	}
	f.code(t)

	s.refuseUploads(t, false)
	_, at = writableMount(t, s, cacheDir)
	if got, err := os.ReadFile(filepath.Join(at, "precious")); string(got) != "content" {
		t.Errorf("the next mount shows %q, %v", got, err)
	}
	mustRun(t, "umount", at)
	s.holds(t, "precious", "content")
}

// TestToldToStopWithSomethingLeft: the daemon drains, for as long as it may, and
// its exit code says that something was left.
func TestToldToStopWithSomethingLeft(t *testing.T) {
	s, cacheDir := startStore(t), filepath.Join(t.TempDir(), "cache")
	f, at := writableMount(t, s, cacheDir, "--drain-timeout", "1s")
	s.refuseUploads(t, true)
	writeFile(t, filepath.Join(at, "precious"), "content")
	if err := f.Process.Signal(unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := f.code(t); code != command.Failed {
		t.Errorf("the daemon ended with %d", code)
	}
	if !strings.Contains(f.log.String(), "precious") {
		t.Error("the log does not name what was left")
	}
	s.refuseUploads(t, false)
	g, at := writableMount(t, s, cacheDir)
	writeFile(t, filepath.Join(at, "more"), "as well")
	if err := g.Process.Signal(unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := g.code(t); code != 0 {
		t.Errorf("the daemon ended with %d", code)
	}
	s.holds(t, "precious", "content")
	s.holds(t, "more", "as well")
}

// TestAcknowledgedWritesSurviveAKill: what close accepted is uploaded by the next
// mount, with the same cache directory.
func TestAcknowledgedWritesSurviveAKill(t *testing.T) {
	s, cacheDir := startStore(t), filepath.Join(t.TempDir(), "cache")
	f, at := writableMount(t, s, cacheDir)
	s.refuseUploads(t, true)
	for _, name := range []string{"a", "b", "c"} {
		writeFile(t, filepath.Join(at, name), "content of "+name)
	}
	if err := os.Rename(filepath.Join(at, "c"), filepath.Join(at, "d")); err != nil {
		t.Fatal(err)
	}
	if err := f.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-f.done
	mustRun(t, "umount", at) // clears the dead mount
	s.refuseUploads(t, false)
	_, at = writableMount(t, s, cacheDir)
	mustRun(t, "flush", at)
	s.holds(t, "a", "content of a")
	s.holds(t, "b", "content of b")
	s.holds(t, "d", "content of c")
	mustRun(t, "umount", at)
}

func TestReadOnlyMountsRefuseToBeWritten(t *testing.T) {
	s := startStore(t)
	for _, flags := range [][]string{{"--read-only"}, {"--cache-dir", ""}} {
		at := newMountPoint(t)
		args := append([]string{"mount", "oss://" + testBucket, at, "--endpoint", s.endpoint, "--cache-dir", filepath.Join(t.TempDir(), "cache")}, flags...)
		startForeground(t, environ(), at, args...)
		if err := os.WriteFile(filepath.Join(at, "x"), nil, 0o644); err == nil || !strings.Contains(err.Error(), "read-only") {
			t.Errorf("%q: %v", flags, err)
		}
		mustRun(t, "umount", at)
	}
}
