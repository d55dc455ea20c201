package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/pailfs/pailfs/cmd/internal/command"
)

// call runs the program with arguments.
func call(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, complaint bytes.Buffer
	code = run(command.Program{Name: "pailfs-csi", Version: "devel", Args: args, Stdout: &out, Stderr: &complaint})
	return code, out.String(), complaint.String()
}

func TestWrongArgumentsAreOneLine(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"node", "--pailfs", file}, command.Refused, "--node"},
		{[]string{"node", "--node", "n", "--pailfs", file, "--log-level", "loud"}, command.Refused, "--log-level"},
		{[]string{"node", "--node", "n", "--pailfs", file, "--run-dir", file, "--cache-dir", dir}, command.Failed, "not a directory"},
		{[]string{"controller", "--pailfs", file, "--endpoint", file + "/csi.sock"}, command.Failed, "/csi.sock: "},
		{[]string{"mount"}, command.Refused, "see pailfs-csi --help"},
	} {
		code, out, complaint := call(t, c.args...)
		if code != c.code || !strings.Contains(complaint, c.want) || strings.Count(strings.TrimSuffix(complaint[strings.LastIndex(complaint, "pailfs-csi: "):], "\n"), "\n") != 0 || out != "" {
			t.Errorf("%v: code %d, printed %q, complained %q; want %d and %q", c.args, code, out, complaint, c.code, c.want)
		}
	}
	if code, out, _ := call(t, "version"); code != 0 || !strings.HasPrefix(out, "pailfs-csi ") {
		t.Errorf("version: %d, %q", code, out)
	}
}

func TestDaemonsInheritNoSecret(t *testing.T) {
	got := daemonEnvironment([]string{"PATH=/bin", "OSS_ACCESS_KEY_SECRET=s", "ALIBABA_CLOUD_ROLE_ARN=r", "ALIBABA_CLOUD_ACCESS_KEY_SECRET=s", "KUBERNETES_SERVICE_HOST=h", "PAILFS_MEMORY=1"})
	if want := []string{"PATH=/bin", "ALIBABA_CLOUD_ROLE_ARN=r"}; !slices.Equal(got, want) {
		t.Errorf("daemons get %v, want %v", got, want)
	}
}
