package mounting

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pailfs/pailfs/cmd/internal/command"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/programtest"
	"github.com/pailfs/pailfs/oss/ossemu"
)

func TestUmountUploadsWhatWasWritten(t *testing.T) {
	s := programtest.StartStore(t)
	f, at := programtest.WritableMount(t, s, filepath.Join(t.TempDir(), "cache"))
	programtest.WriteFile(t, filepath.Join(at, "a"), "first")
	programtest.MustRun(t, "flush", filepath.Join(at, "a"))
	s.Holds(t, "a", "first")
	programtest.WriteFile(t, filepath.Join(at, "b"), "second")
	if out := programtest.MustRun(t, "status", at).Stdout; !strings.Contains(out, "writing") {
		t.Errorf("status does not tell of writing: %s", out)
	}
	programtest.MustRun(t, "umount", at)
	s.Holds(t, "b", "second")
	if code := f.Code(t); code != 0 {
		t.Errorf("the daemon ended with %d", code)
	}
}

// TestPolicySaysWhichPathsAreWrittenThrough: an upload that is refused is an error of
// close there, and of nobody's elsewhere.
func TestPolicySaysWhichPathsAreWrittenThrough(t *testing.T) {
	s, cacheDir := programtest.StartStore(t), filepath.Join(t.TempDir(), "cache")
	file := filepath.Join(t.TempDir(), "pailfs.yaml")
	programtest.WriteFile(t, file, "policy:\n  through: [results, '*.final']\n  back: [results/scratch]\n")
	f, at := programtest.WritableMount(t, s, cacheDir, "--drain-timeout", "1s", "--config", file)
	for _, dir := range []string{"results", "results/scratch"} {
		if err := os.Mkdir(filepath.Join(at, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	programtest.MustRun(t, "flush", at)
	programtest.WriteFile(t, filepath.Join(at, "results/good"), "content")
	s.Holds(t, "results/good", "content")
	s.RefuseUploads(t, true)
	// The last of them waits behind what was refused before.
	for _, c := range []struct {
		name  string
		fails bool
	}{{"results/scratch/c", false}, {"d", false}, {"results/a", true}, {"b.final", true}} {
		if err := os.WriteFile(filepath.Join(at, c.name), []byte("content"), 0o644); (err != nil) != c.fails {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	s.RefuseUploads(t, false)
	programtest.MustRun(t, "umount", at)
	s.Holds(t, "results/a", "content")
	if code := f.Code(t); code != 0 {
		t.Errorf("the daemon ended with %d", code)
	}
}

// TestFlushEndsBehindWhatCannotBeUploaded: what waits behind a change that cannot
// succeed is not waited for, and the error says what would help.
func TestFlushEndsBehindWhatCannotBeUploaded(t *testing.T) {
	s, cacheDir := programtest.StartStore(t), filepath.Join(t.TempDir(), "cache")
	f, at := programtest.WritableMount(t, s, cacheDir, "--drain-timeout", "1s")
	if err := os.Mkdir(filepath.Join(at, "ckpt"), 0o755); err != nil {
		t.Fatal(err)
	}
	programtest.WriteFile(t, filepath.Join(at, "latest"), "step 1")
	programtest.MustRun(t, "flush", at)
	if err := s.SetFaults([]ossemu.Fault{{
		Operation: "PutObject", KeyContains: "shard", Kind: ossemu.FaultError, Code: "AccessDenied", Status: http.StatusForbidden,
	}}); err != nil {
		t.Fatal(err)
	}
	refused := func(wants []string, args ...string) {
		t.Helper()
		o := programtest.Run(t, programtest.Environ(), args...)
		for _, want := range wants {
			if o.Code != command.Failed || !strings.Contains(o.Stderr, want) {
				t.Errorf("%q: exit code %d, without %q: %s", args, o.Code, want, o.Stderr)
			}
		}
	}
	programtest.WriteFile(t, filepath.Join(at, "ckpt/shard"), "content")
	refused([]string{"ckpt/shard", "oss:PutObject"}, "flush", filepath.Join(at, "ckpt"))
	// What replaces an object follows what was written below its directory before.
	programtest.WriteFile(t, filepath.Join(at, "latest"), "step 2")
	behind := []string{"ckpt/shard", "oss:PutObject", "wait behind", "latest"}
	refused(behind, "flush", at)
	refused(behind, "umount", at)
	refused(behind, "flush", "--timeout", "5m", filepath.Join(at, "latest"))
	s.Holds(t, "latest", "step 1")
	if err := s.SetFaults(nil); err != nil {
		t.Fatal(err)
	}
	programtest.MustRun(t, "umount", at)
	s.Holds(t, "latest", "step 2")
	if code := f.Code(t); code != 0 {
		t.Errorf("the daemon ended with %d", code)
	}
}

// TestUmountFailsWhileSomethingIsLeft: an unmount that says 0 has uploaded
// everything. With --force what is left waits for the next mount, which uploads it.
func TestUmountFailsWhileSomethingIsLeft(t *testing.T) {
	s, cacheDir := programtest.StartStore(t), filepath.Join(t.TempDir(), "cache")
	f, at := programtest.WritableMount(t, s, cacheDir, "--drain-timeout", "1s")
	s.RefuseUploads(t, true)
	programtest.WriteFile(t, filepath.Join(at, "precious"), "content")
	for _, args := range [][]string{{"umount", at}, {"umount", "--timeout", "1s", at}, {"flush", at}, {"flush", "--timeout", "1s", at}} {
		o := programtest.Run(t, programtest.Environ(), args...)
		if o.Code != command.Failed || !strings.Contains(o.Stderr, "precious") {
			t.Errorf("%q: exit code %d: %s", args, o.Code, o.Stderr)
		}
	}
	if !programtest.IsMounted(t, at) || !f.Running() {
		t.Fatal("it was unmounted with something left")
	}
	o := programtest.Run(t, programtest.Environ(), "umount", "--force", at)
	if o.Code != 0 || !strings.Contains(o.Stderr, "precious") {
		t.Errorf("umount --force: exit code %d: %s", o.Code, o.Stderr)
	}
	f.Code(t)

	s.RefuseUploads(t, false)
	_, at = programtest.WritableMount(t, s, cacheDir)
	if got, err := os.ReadFile(filepath.Join(at, "precious")); string(got) != "content" {
		t.Errorf("the next mount shows %q, %v", got, err)
	}
	programtest.MustRun(t, "umount", at)
	s.Holds(t, "precious", "content")
}

// TestToldToStopWithSomethingLeft: the daemon drains, for as long as it may, and
// its exit code says that something was left.
func TestToldToStopWithSomethingLeft(t *testing.T) {
	s, cacheDir := programtest.StartStore(t), filepath.Join(t.TempDir(), "cache")
	f, at := programtest.WritableMount(t, s, cacheDir, "--drain-timeout", "1s")
	s.RefuseUploads(t, true)
	programtest.WriteFile(t, filepath.Join(at, "precious"), "content")
	if err := f.Process.Signal(unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := f.Code(t); code != command.Failed {
		t.Errorf("the daemon ended with %d", code)
	}
	if !strings.Contains(f.Log.String(), "precious") {
		t.Error("the log does not name what was left")
	}
	s.RefuseUploads(t, false)
	g, at := programtest.WritableMount(t, s, cacheDir)
	programtest.WriteFile(t, filepath.Join(at, "more"), "as well")
	if err := g.Process.Signal(unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := g.Code(t); code != 0 {
		t.Errorf("the daemon ended with %d", code)
	}
	s.Holds(t, "precious", "content")
	s.Holds(t, "more", "as well")
}

// TestAcknowledgedWritesSurviveAKill: what close accepted is uploaded by the next
// mount, with the same cache directory.
func TestAcknowledgedWritesSurviveAKill(t *testing.T) {
	s, cacheDir := programtest.StartStore(t), filepath.Join(t.TempDir(), "cache")
	f, at := programtest.WritableMount(t, s, cacheDir)
	s.RefuseUploads(t, true)
	for _, name := range []string{"a", "b", "c"} {
		programtest.WriteFile(t, filepath.Join(at, name), "content of "+name)
	}
	if err := os.Rename(filepath.Join(at, "c"), filepath.Join(at, "d")); err != nil {
		t.Fatal(err)
	}
	if err := f.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-f.Done
	programtest.MustRun(t, "umount", at) // clears the dead mount
	s.RefuseUploads(t, false)
	_, at = programtest.WritableMount(t, s, cacheDir)
	programtest.MustRun(t, "flush", at)
	s.Holds(t, "a", "content of a")
	s.Holds(t, "b", "content of b")
	s.Holds(t, "d", "content of c")
	programtest.MustRun(t, "umount", at)
}

func TestReadOnlyMountsRefuseToBeWritten(t *testing.T) {
	s := programtest.StartStore(t)
	for _, flags := range [][]string{{"--read-only"}, {"--cache-dir", ""}} {
		at := programtest.NewMountPoint(t)
		args := append([]string{"mount", "oss://" + programtest.TestBucket, at, "--endpoint", s.Endpoint, "--cache-dir", filepath.Join(t.TempDir(), "cache")}, flags...)
		programtest.StartForeground(t, programtest.Environ(), at, args...)
		if err := os.WriteFile(filepath.Join(at, "x"), nil, 0o644); err == nil || !strings.Contains(err.Error(), "read-only") {
			t.Errorf("%q: %v", flags, err)
		}
		programtest.MustRun(t, "umount", at)
	}
}
