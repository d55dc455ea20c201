package result

import (
	"fmt"
	"os"
	"strings"
)

// The lines of README.md between which the tool writes.
const (
	markBegin = "<!-- results: begin -->"
	markEnd   = "<!-- results: end -->"
)

// UpdateReadme replaces what stands between the marks in the file at path by the
// report.
func (r *Report) UpdateReadme(path string) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("update README: %w", err)
	}
	before, rest, ok := strings.Cut(string(b), markBegin+"\n")
	_, after, okEnd := strings.Cut(rest, markEnd)
	if !ok || !okEnd {
		return fmt.Errorf("update README %q: it lacks the lines %q and %q", path, markBegin, markEnd)
	}
	var s strings.Builder
	s.WriteString(before + markBegin + "\n")
	if err := r.WriteMarkdown(&s); err != nil {
		return fmt.Errorf("update README %q: %w", path, err)
	}
	s.WriteString(markEnd + after)
	if err := os.WriteFile(path, []byte(s.String()), 0o644); err != nil {
		return fmt.Errorf("update README: %w", err)
	}
	return nil
}
