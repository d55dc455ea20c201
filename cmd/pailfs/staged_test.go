package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pailfs/pailfs/cmd/internal/command"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/programtest"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/wire"
	"github.com/pailfs/pailfs/fs/writeback"
)

// deadNode returns the cache directory of a mount that was killed before it could
// upload anything: files a and d/b, and the removal of old.
func deadNode(t *testing.T) (*programtest.Store, string) {
	t.Helper()
	s, cacheDir := programtest.StartStore(t), filepath.Join(t.TempDir(), "cache")
	s.Put(t, "old", []byte("old content"))
	f, at := programtest.WritableMount(t, s, cacheDir)
	s.RefuseUploads(t, true)
	programtest.WriteFile(t, filepath.Join(at, "a"), "content of a")
	if err := os.Mkdir(filepath.Join(at, "d"), 0o755); err != nil {
		t.Fatal(err)
	}
	programtest.WriteFile(t, filepath.Join(at, "d/b"), strings.Repeat("content of b", 20_000))
	if err := os.Remove(filepath.Join(at, "old")); err != nil {
		t.Fatal(err)
	}
	o := programtest.Run(t, programtest.Environ(), "staged", "ls", "--cache-dir", cacheDir)
	if o.Code != command.Failed || !strings.Contains(o.Stderr, at) {
		t.Errorf("ls of a directory in use: exit code %d: %s", o.Code, o.Stderr)
	}
	for _, args := range [][]string{{"discard", "--all", "--yes"}, {"export", t.TempDir()}, {"resume", "--endpoint", s.Endpoint}} {
		o := programtest.Run(t, programtest.Environ(), append([]string{"staged", args[0], "--cache-dir", cacheDir}, args[1:]...)...)
		if o.Code != command.Failed || !strings.Contains(o.Stderr, "in use") {
			t.Errorf("%q of a directory in use: exit code %d: %s", args, o.Code, o.Stderr)
		}
	}
	if err := f.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-f.Done
	programtest.MustRun(t, "umount", at)
	return s, cacheDir
}

// stagedIn returns what ls says.
func stagedIn(t *testing.T, cacheDir string) writeback.Report {
	t.Helper()
	var r writeback.Report
	if err := json.Unmarshal([]byte(programtest.MustRun(t, "staged", "ls", "--json", "--cache-dir", cacheDir).Stdout), &r); err != nil {
		t.Fatal(err)
	}
	return r
}

// paths returns what is pending, without what has no path of interest here.
func paths(r writeback.Report) string {
	var all []string
	for _, s := range r.Pending {
		all = append(all, s.Doing+" "+s.Path)
	}
	return strings.Join(all, ", ")
}

func TestStagedOfADeadNode(t *testing.T) {
	s, cacheDir := deadNode(t)
	r := stagedIn(t, cacheDir)
	if got, want := paths(r), "upload a, mkdir d, upload d/b, delete old"; got != want || r.Bucket != programtest.TestBucket {
		t.Fatalf("ls says %q of %q, want %q", got, r.Bucket, want)
	}
	if out := programtest.MustRun(t, "staged", "ls", "--cache-dir", cacheDir).Stdout; !strings.Contains(out, "d/b") {
		t.Errorf("ls says %s", out)
	}

	rescued := filepath.Join(t.TempDir(), "rescued")
	programtest.MustRun(t, "staged", "export", "--cache-dir", cacheDir, rescued)
	for name, want := range map[string]string{"a": "content of a", "d/b": strings.Repeat("content of b", 20_000)} {
		if got, err := os.ReadFile(filepath.Join(rescued, name)); string(got) != want {
			t.Errorf("exported %s holds %.40q, %v", name, got, err)
		}
	}
	programtest.WriteFile(t, filepath.Join(rescued, "a"), "mine")
	if o := programtest.Run(t, programtest.Environ(), "staged", "export", "--cache-dir", cacheDir, "--path", "a", rescued); o.Code != command.Failed {
		t.Errorf("export over a file: exit code %d: %s", o.Code, o.Stderr)
	}
	if got, _ := os.ReadFile(filepath.Join(rescued, "a")); string(got) != "mine" {
		t.Errorf("export has overwritten a file with %q", got)
	}

	// What cannot be uploaded is named, and stays.
	o := programtest.Run(t, programtest.Environ(), "staged", "resume", "--cache-dir", cacheDir, "--endpoint", s.Endpoint)
	if o.Code != command.Failed || !strings.Contains(o.Stderr, "d/b") {
		t.Errorf("resume without permission: exit code %d: %s", o.Code, o.Stderr)
	}
	if o := programtest.Run(t, programtest.Environ(), "staged", "discard", "--cache-dir", cacheDir, "--path", "old"); o.Code != command.Refused || !strings.Contains(o.Stdout, "old") {
		t.Errorf("discard without --yes: exit code %d: %s%s", o.Code, o.Stdout, o.Stderr)
	}
	s.Holds(t, "old", "old content")
	programtest.MustRun(t, "staged", "discard", "--cache-dir", cacheDir, "--path", "/old", "--yes")
	if got, want := paths(stagedIn(t, cacheDir)), "upload a, mkdir d, upload d/b"; got != want {
		t.Errorf("ls says %q after discard, want %q", got, want)
	}

	s.RefuseUploads(t, false)
	programtest.MustRun(t, "staged", "resume", "--cache-dir", cacheDir, "--endpoint", s.Endpoint, "--timeout", "50s")
	s.Holds(t, "a", "content of a")
	s.Holds(t, "d/b", strings.Repeat("content of b", 20_000))
	s.Holds(t, "old", "old content")
	if got := paths(stagedIn(t, cacheDir)); got != "" {
		t.Errorf("ls says %q after resume", got)
	}
	_, at := programtest.WritableMount(t, s, cacheDir)
	if got, err := os.ReadFile(filepath.Join(at, "old")); string(got) != "old content" {
		t.Errorf("the mount shows %q, %v", got, err)
	}
	programtest.MustRun(t, "umount", at)
}

func TestStagedDiscardOfEverything(t *testing.T) {
	s, cacheDir := deadNode(t)
	programtest.MustRun(t, "staged", "discard", "--cache-dir", cacheDir, "--all", "--yes")
	if left, err := os.ReadDir(filepath.Join(cacheDir, wire.StagingName, "staged")); len(left) != 0 || err != nil {
		t.Errorf("%d files are left, %v", len(left), err)
	}
	programtest.MustRun(t, "staged", "discard", "--cache-dir", cacheDir, "--all", "--yes")
	s.RefuseUploads(t, false)
	_, at := programtest.WritableMount(t, s, cacheDir)
	names, err := os.ReadDir(at)
	if err != nil || len(names) != 1 || names[0].Name() != "old" {
		t.Errorf("the mount shows %v, %v", names, err)
	}
	programtest.MustRun(t, "umount", at)
	s.Holds(t, "old", "old content")
}

func TestStagedRefusesWhatItCannotUse(t *testing.T) {
	s, cacheDir := deadNode(t)
	empty, newer := t.TempDir(), t.TempDir()
	if err := os.Mkdir(filepath.Join(newer, wire.StagingName), 0o700); err != nil {
		t.Fatal(err)
	}
	programtest.WriteFile(t, filepath.Join(newer, wire.StagingName, "journal.log"), "pailfswb\x07\x00\x00\x00\x00\x00\x00\x00")
	foreign := t.TempDir()
	if err := os.Mkdir(filepath.Join(foreign, wire.StagingName), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		want string
		code int
		args []string
	}{
		{"does not exist", command.Refused, []string{"ls", "--cache-dir", filepath.Join(empty, "gone")}},
		{"no mount that can be written", command.Failed, []string{"ls", "--cache-dir", empty}},
		{"no staging directory of pailfs", command.Failed, []string{"ls", "--cache-dir", foreign}},
		{"version 7", command.Failed, []string{"ls", "--cache-dir", newer}},
		{"version 7", command.Failed, []string{"discard", "--cache-dir", newer, "--all", "--yes"}},
		{"belongs to oss://" + programtest.TestBucket, command.Refused, []string{"resume", "--cache-dir", cacheDir, "--endpoint", "http://127.0.0.1:1"}},
		{"nothing is staged at", command.Failed, []string{"export", "--cache-dir", cacheDir, "--path", "nothing", empty}},
		{"nothing is staged at", command.Failed, []string{"discard", "--cache-dir", cacheDir, "--path", "nothing", "--yes"}},
		{"say --all", command.Refused, []string{"discard", "--cache-dir", cacheDir, "--path", "/", "--yes"}},
		{"--path", command.Refused, []string{"discard", "--cache-dir", cacheDir}},
	} {
		o := programtest.Run(t, programtest.Environ(), append([]string{"staged"}, c.args...)...)
		if o.Code != c.code || !strings.Contains(o.Stderr, c.want) || strings.Count(o.Stderr, "\n") != 1 {
			t.Errorf("%q: exit code %d, %q, want %d and %q", c.args, o.Code, o.Stderr, c.code, c.want)
		}
	}
	if got := paths(stagedIn(t, cacheDir)); got == "" {
		t.Error("what was refused has changed something")
	}
	s.RefuseUploads(t, false)
}

func TestStagedOfATornJournal(t *testing.T) {
	s, cacheDir := deadNode(t)
	journal := filepath.Join(cacheDir, wire.StagingName, "journal.log")
	f, err := os.OpenFile(journal, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString("\x40\x00\x00\x00torn"); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	r := stagedIn(t, cacheDir)
	if r.TornBytes != 8 || !strings.Contains(paths(r), "upload a") {
		t.Errorf("ls says %+v", r)
	}
	programtest.MustRun(t, "staged", "discard", "--cache-dir", cacheDir, "--path", "d", "--yes")
	r = stagedIn(t, cacheDir)
	if got, want := paths(r), "upload a, delete old"; got != want || r.TornBytes != 0 || len(r.SetAside) != 1 {
		t.Errorf("ls says %q, %+v", got, r)
	}
	s.RefuseUploads(t, false)
	programtest.MustRun(t, "staged", "resume", "--cache-dir", cacheDir, "--endpoint", s.Endpoint)
	s.Holds(t, "a", "content of a")
}

func TestStagedCommandsExplainThemselves(t *testing.T) {
	for _, command := range []string{"ls", "resume", "export", "discard"} {
		o := programtest.MustRun(t, "staged", command, "--help")
		for _, want := range []string{"Usage: pailfs staged " + command, "Exit codes:", "\n    pailfs staged " + command} {
			if !strings.Contains(o.Stdout, want) {
				t.Errorf("staged %s --help does not say %q: %s", command, want, o.Stdout)
			}
		}
	}
}
