package fs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestEveryClaimHasItsTest compares SEMANTICS.md with the tests that exist.
func TestEveryClaimHasItsTest(t *testing.T) {
	var files []string
	for _, pattern := range []string{"*_test.go", "internal/*/*_test.go", "writeback/*_test.go", "writeback/internal/*/*_test.go", "../manifest/attributes/*_test.go", "../cmd/pailfs/systemtest/*_test.go", "../cmd/pailfs/internal/mountpoint/*_test.go"} {
		found, err := filepath.Glob(pattern)
		must(t, err)
		files = append(files, found...)
	}
	var source strings.Builder
	for _, name := range files {
		text, err := os.ReadFile(name)
		must(t, err)
		source.Write(text)
	}
	text, err := os.ReadFile("SEMANTICS.md")
	must(t, err)
	named := regexp.MustCompile("`(Test[A-Za-z0-9]+)`")
	rows := 0
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "| claim") {
			continue
		}
		rows++
		tests := named.FindAllStringSubmatch(line, -1)
		if len(tests) == 0 {
			t.Errorf("no test for %s", line)
		}
		for _, m := range tests {
			if !strings.Contains(source.String(), "func "+m[1]+"(t *testing.T)") {
				t.Errorf("%s does not exist", m[1])
			}
		}
	}
	if rows < 30 {
		t.Errorf("%d claims found; is the table still there?", rows)
	}
}
