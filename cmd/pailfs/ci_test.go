package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// ciScript returns the path of a script in .ci.
func ciScript(t *testing.T, name string) string {
	t.Helper()
	path, err := filepath.Abs("../../.ci/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// standIn writes a shell script that stands in for a program.
func standIn(t *testing.T, path, text string) string {
	t.Helper()
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text+"\n"), 0o755); err != nil { //nolint:gosec // it is run
		t.Fatal(err)
	}
	return path
}

// trackedTree returns a repository that tracks what files holds.
func trackedTree(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	git := func(args ...string) {
		if out, err := exec.Command("git", append([]string{"-C", dir}, args...)...).CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v: %s", args, err, out)
		}
	}
	git("init", "--quiet")
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	git("add", "--all")
	return dir
}

func TestProgramsAndLargeFilesAreNotTracked(t *testing.T) {
	t.Parallel()
	script := ciScript(t, "clean-tree")
	for name, row := range map[string]struct{ file, content, want string }{
		"a text":         {"a text.md", "text", ""},
		"an empty file":  {"empty", "", ""},
		"a large file":   {"large file", strings.Repeat("x", 1<<20), ""},
		"one too large":  {"too large", strings.Repeat("x", 1<<20+1), "too large: 1048577 bytes"},
		"a program":      {"pailfs-gpu", "\x7fELF\x02\x01\x01\x00", "pailfs-gpu: a program that was built"},
		"a short binary": {"short", "\x7fE\x00", ""},
	} {
		out, err := exec.Command(script, trackedTree(t, map[string]string{row.file: row.content})).CombinedOutput()
		if (err != nil) != (row.want != "") || !strings.Contains(string(out), row.want) {
			t.Errorf("%s: %v: %s, want %q", name, err, out, row.want)
		}
	}
}

// A vulnerability fails, and so does a tool that is broken, or a mirror out of reach; the public
// database out of reach is said, and does not.
func TestVulnerabilitiesFailAndAnUnreachableDatabaseIsSaid(t *testing.T) {
	t.Parallel()
	const (
		unreachable = `echo 'Get "https://vuln.go.dev/index/modules.json.gz": dial tcp: no such host' >&2; exit 1`
		mirror      = "https://vuln.example"
	)
	for name, row := range map[string]struct {
		tool string
		db   string
		code int
		said string
	}{
		"nothing":               {"exit 0", "", 0, "vuln: deploy/sched/plugin"},
		"a vulnerability":       {`case "$*" in *query*) ;; *) echo "Your code is affected"; exit 3 ;; esac`, "", 3, "Your code is affected"},
		"one in the plugin":     {`case "$*" in *plugin*) exit 3 ;; esac`, "", 3, "vuln: deploy/sched/plugin"},
		"a mirror is asked":     {`case "$*" in "-db https://vuln.example "*) ;; *) exit 1 ;; esac`, mirror, 0, "vuln: deploy/sched/plugin"},
		"out of reach":          {unreachable, "", 0, "NOT CHECKED for known vulnerabilities: the database https://vuln.go.dev"},
		"out of reach later":    {`case "$*" in *query*) ;; *) ` + unreachable + ` ;; esac`, "", 0, "NOT CHECKED"},
		"a mirror out of reach": {unreachable, mirror, 1, "no such host"},
		"a broken tool":         {"echo broken >&2; exit 1", "", 1, "broken"},
	} {
		tool := standIn(t, filepath.Join(t.TempDir(), "govulncheck"), row.tool)
		cmd := exec.Command(ciScript(t, "vuln"))
		cmd.Env = append(os.Environ(), "GOVULNCHECK="+tool, "GOVULNDB="+row.db)
		out, err := cmd.CombinedOutput()
		if code := cmd.ProcessState.ExitCode(); code != row.code || !strings.Contains(string(out), row.said) {
			t.Errorf("%s: code %d, %v: %s", name, code, err, out)
		}
	}
}

// The same programs are packed to the same bytes, which the sums are of.
func TestDistributionIsReproducible(t *testing.T) {
	t.Parallel()
	bin := t.TempDir()
	for _, name := range []string{"pailfs", "pailfs-gpu", "pailfs-kube", "pailfs-csi", "ossemu", "bench"} {
		standIn(t, filepath.Join(bin, name), "echo "+name)
	}
	lister := standIn(t, filepath.Join(t.TempDir(), "cyclonedx"), `while [ "$1" != -output ]; do shift; done; echo '{"bomFormat":"CycloneDX"}' >"$2"`)
	pack := func(umask string) (archive []byte, out string) {
		dir := t.TempDir()
		cmd := exec.Command("sh", "-c", "umask "+umask+` && exec "$0" "$@"`, ciScript(t, "dist"), bin, dir, "v1.2.3")
		cmd.Env = append(os.Environ(), "CYCLONEDX="+lister, "SOURCE_DATE_EPOCH=1700000000")
		if text, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		if text, err := exec.Command(ciScript(t, "sums"), dir).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		check := exec.Command("sha256sum", "--check", "--strict", "SHA256SUMS")
		check.Dir = dir
		if text, err := check.CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, text)
		}
		found, err := filepath.Glob(filepath.Join(dir, "pailfs-v1.2.3-linux-*.tar.gz"))
		if err != nil || len(found) != 1 {
			t.Fatalf("%q, %v", found, err)
		}
		if archive, err = os.ReadFile(found[0]); err != nil {
			t.Fatal(err)
		}
		list, err := exec.Command("tar", "-tzf", found[0]).Output()
		if err != nil {
			t.Fatal(err)
		}
		return archive, string(list)
	}
	first, list := pack("022")
	for _, want := range []string{"/pailfs\n", "/pailfs-gpu\n", "/sbom/pailfs.cdx.json\n", "/SECURITY.md\n", "/LICENSE\n"} {
		if !strings.Contains(list, want) {
			t.Errorf("%q is not in\n%s", want, list)
		}
	}
	if second, _ := pack("077"); !bytes.Equal(first, second) {
		t.Error("packed again, the archive is another")
	}
	if err := os.Remove(filepath.Join(bin, "ossemu")); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(ciScript(t, "dist"), bin, t.TempDir(), "v").CombinedOutput(); err == nil || !strings.Contains(string(out), "make build") {
		t.Errorf("without a program: %v: %s", err, out)
	}
}
