package main

import (
	"bytes"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pailfs/pailfs/cmd/internal/command"
)

// call runs the program with arguments.
func call(t *testing.T, stdin string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, complaint bytes.Buffer
	code = run(command.Program{Name: "pailfs-kube", Version: "devel", Args: args, Stdin: strings.NewReader(stdin), Stdout: &out, Stderr: &complaint})
	return code, out.String(), complaint.String()
}

func TestWrongArgumentsAreOneLine(t *testing.T) {
	dir := t.TempDir()
	kubeconfig := filepath.Join(dir, "kubeconfig")
	if err := os.WriteFile(kubeconfig, []byte(`{"apiVersion":"v1","kind":"Config","clusters":[{"name":"c","cluster":{"server":"http://127.0.0.1:1"}}],
"contexts":[{"name":"c","context":{"cluster":"c"}}],"current-context":"c"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"pailfs", "pailfs-gpu"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	node := func(args ...string) []string { return append([]string{"node", "--kubeconfig", kubeconfig}, args...) }
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{node("--node", "n", "--namespace", "s"), command.Refused, "--mount NAME=PATH"},
		{node("--node", "n", "--namespace", "s", "--mount", "/mnt/data"), command.Refused, "want NAME=PATH"},
		{node("--node", "n", "--namespace", "s", "--mount", "data=mnt"), command.Refused, "absolute path"},
		{node("--namespace", "s", "--mount", "data=/mnt"), command.Refused, "NODE_NAME"},
		{node("--node", "n", "--mount", "data=/mnt"), command.Refused, "POD_NAMESPACE"},
		{node("--node", "n", "--namespace", "s", "--mount", "data=/mnt", "--dataset", "b/../c"), command.Refused, "BUCKET/PREFIX"},
		{node("--node", "n", "--namespace", "s", "--mount", "data=/mnt", "--evict-after=-1s"), command.Refused, "no less than 0s"},
		{[]string{"node", "--kubeconfig", "/nowhere", "--node", "n", "--namespace", "s", "--mount", "data=/mnt"}, command.Failed, "/nowhere"},
		{node("--node", "n", "--namespace", "s", "--mount", "data=/mnt", "--http", taken.Addr().String()), command.Failed, "another program listens there"},
		{node("--node", "n", "--namespace", "s", "--mount", "data=/mnt", "--http", "9322"), command.Refused, "want HOST:PORT"},
		{[]string{"controller", "--kubeconfig", kubeconfig}, command.Refused, "--namespace"},
		{[]string{"schedule"}, command.Refused, "see pailfs-kube --help"},
	} {
		code, out, complaint := call(t, "", c.args...)
		if code != c.code || !strings.Contains(complaint, c.want) || strings.Count(complaint, "\n") != 1 || out != "" {
			t.Errorf("%v: exit code %d\n%s%s", c.args, code, out, complaint)
		}
	}
}

func TestStatfsAnswersForEachByte(t *testing.T) {
	code, out, _ := call(t, "\n\n", "statfs", "/proc")
	if code != 0 || strings.Count(out, `"errno":0`) != 2 {
		t.Errorf("exit code %d\n%s", code, out)
	}
	if _, out, _ = call(t, "\n", "statfs", "/nowhere/at/all"); !strings.Contains(out, `"errno":2`) {
		t.Errorf("a path that is not there: %s", out)
	}
}

func TestOwnGivesADirectoryOnce(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if code, _, complaint := call(t, "", "own", dir, "65532"); code != 0 {
			t.Fatalf("exit code %d: %s", code, complaint)
		}
		var st unix.Stat_t
		if err := unix.Stat(dir, &st); err != nil || st.Uid != 65532 || st.Mode&0o777 != 0o755 {
			t.Errorf("owner %d, mode %o, %v", st.Uid, st.Mode, err)
		}
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	if code, _, complaint := call(t, "", "own", link, "0"); code != command.Refused || !strings.Contains(complaint, "not a directory") {
		t.Errorf("a link: exit code %d: %s", code, complaint)
	}
}
