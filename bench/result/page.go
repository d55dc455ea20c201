package result

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// The sections that the tool writes, each between two lines that name it.
const (
	// Found is what README.md says of the targets.
	Found = "found"
	// Targets are all of them.
	Targets = "targets"
	// Peers is the comparison with other clients.
	Peers = "peers"
	// Seeds is a published table with columns measured here.
	Seeds = "seeds"
	// Growth is what becomes of pailfs as work grows.
	Growth = "growth"
	// Where is where the time goes.
	Where = "where"
)

// Page returns the file of a section.
func Page(section string) string {
	if section == Found {
		return filepath.Join("bench", "README.md")
	}
	return filepath.Join("bench", "results", section+".md")
}

// UpdatePage replaces a section of the file at path by what write writes.
func UpdatePage(path, section string, write func(io.Writer) error) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("update page: %w", err)
	}
	begin, end := "<!-- "+section+": begin -->", "<!-- "+section+": end -->"
	before, rest, ok := strings.Cut(string(b), begin+"\n")
	_, after, okEnd := strings.Cut(rest, end)
	if !ok || !okEnd {
		return fmt.Errorf("update page %q: it lacks the lines %q and %q", path, begin, end)
	}
	var s strings.Builder
	s.WriteString(before + begin + "\n")
	if err := write(&s); err != nil {
		return fmt.Errorf("update page %q: %w", path, err)
	}
	s.WriteString(end + after)
	if err := os.WriteFile(path, []byte(s.String()), 0o644); err != nil {
		return fmt.Errorf("update page: %w", err)
	}
	return nil
}
