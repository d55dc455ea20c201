package doctor

import (
	"fmt"
	"io"
	"strings"

	"github.com/pailfs/pailfs/cmd/terminal"
)

// Level says how grave a finding is.
type Level string

// The levels.
const (
	OK   Level = "ok"
	Warn Level = "warn" // it works, and worse than it could
	Fail Level = "fail" // a mount does not work so
)

// Finding is what a check found.
type Finding struct {
	// Check is its name.
	Check string `json:"check"`
	Level Level  `json:"level"`
	// Text says what there is.
	Text string `json:"text"`
	// Remedy says what to do; "" where nothing is to be done.
	Remedy string `json:"remedy"`
}

// Report is what `pailfs doctor --json` prints. Fields may be added; what is here keeps its name and
// meaning.
type Report struct {
	// Level is that of the gravest finding.
	Level    Level     `json:"level"`
	Findings []Finding `json:"findings"`
}

// check is one question.
type check interface{ find() Finding }

func ok(format string, args ...any) Finding {
	return Finding{Level: OK, Text: fmt.Sprintf(format, args...)}
}

func warn(remedy, format string, args ...any) Finding {
	return Finding{Level: Warn, Text: fmt.Sprintf(format, args...), Remedy: remedy}
}

func fail(remedy, format string, args ...any) Finding {
	return Finding{Level: Fail, Text: fmt.Sprintf(format, args...), Remedy: remedy}
}

// named gives a finding its check's name.
func (f Finding) named(name string) Finding {
	f.Check = name
	return f
}

// newReport sums findings up.
func newReport(findings []Finding) Report {
	r := Report{Level: OK, Findings: findings}
	for _, f := range findings {
		if f.Level == Fail || f.Level == Warn && r.Level == OK {
			r.Level = f.Level
		}
	}
	return r
}

// write writes the report for people.
func (r Report) write(w io.Writer) error {
	var b strings.Builder
	for _, f := range r.Findings {
		fmt.Fprintf(&b, "%-5s %-12s %s\n", f.Level, f.Check, terminal.Text(f.Text))
		if f.Remedy != "" {
			fmt.Fprintf(&b, "%-18s -> %s\n", "", terminal.Text(f.Remedy))
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}
