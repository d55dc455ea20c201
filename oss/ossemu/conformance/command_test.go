package conformance

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// command is a program with its environment, run again and again.
type command struct {
	name string
	args []string
	env  []string
}

// run runs the program and returns what it wrote to standard output.
func (c command) run(args ...string) ([]byte, error) { return c.feed(nil, args...) }

func (c command) feed(stdin []byte, args ...string) ([]byte, error) {
	cmd := exec.Command(c.name, append(slices.Clip(c.args), args...)...)
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH")}, c.env...)
	cmd.Stdin = bytes.NewReader(stdin)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return out, fmt.Errorf("%s %s: %w\n%s", c.name, strings.Join(args, " "), err, stderr.Bytes())
	}
	return out, nil
}

// must is run, and ends the test if the program fails.
func (c command) must(t *testing.T, args ...string) string {
	t.Helper()
	out, err := c.run(args...)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// tree writes files below dir; a name's directories are made.
func tree(t *testing.T, dir string, files map[string][]byte) {
	t.Helper()
	for name, b := range files {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// bigSize is the size of a file that every client uploads in parts.
func bigSize() int {
	if full() {
		return 300<<20 + 12345
	}
	return 26<<20 + 12345
}

// files are what S3 clients move: names that encodings treat each in their own
// way, an empty one, and one for a multipart upload.
func files() map[string][]byte {
	return map[string][]byte{
		"small.txt":                  []byte("small"),
		"empty":                      {},
		"dir/with space/a+b&c=d.bin": content(70_001, 1),
		"dir/ünïcödé/你好.txt":         content(4_096, 2),
		"dir/per%cent%2F~(paren)'!*": content(100, 3),
		"dir/#hash?mark;semi":        content(333, 4),
		"big.bin":                    content(bigSize(), 5),
	}
}
