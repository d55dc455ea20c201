package result

import (
	"fmt"
	"io"
	"os"
	"strings"
)

// The sections of README.md that the tool writes, each between two lines that
// name it.
const (
	// Results are the targets.
	Results = "results"
	// Peers is the comparison with other clients.
	Peers = "peers"
	// Seeds is a published table with columns measured here.
	Seeds = "seeds"
	// Growth is what becomes of pailfs as work grows.
	Growth = "growth"
	// Where is where the time goes.
	Where = "where"
)

// UpdateReadme replaces a section of the file at path by what write writes.
func UpdateReadme(path, section string, write func(io.Writer) error) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("update README: %w", err)
	}
	begin, end := "<!-- "+section+": begin -->", "<!-- "+section+": end -->"
	before, rest, ok := strings.Cut(string(b), begin+"\n")
	_, after, okEnd := strings.Cut(rest, end)
	if !ok || !okEnd {
		return fmt.Errorf("update README %q: it lacks the lines %q and %q", path, begin, end)
	}
	var s strings.Builder
	s.WriteString(before + begin + "\n")
	if err := write(&s); err != nil {
		return fmt.Errorf("update README %q: %w", path, err)
	}
	s.WriteString(end + after)
	if err := os.WriteFile(path, []byte(s.String()), 0o644); err != nil {
		return fmt.Errorf("update README: %w", err)
	}
	return nil
}
