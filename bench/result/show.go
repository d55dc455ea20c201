package result

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
)

// Show is the value of s for people.
func (s *Series) Show() string { return ShowValue(s.Value, s.Metric) }

// ShowValue writes a value with its unit, in steps of a thousand.
func ShowValue(v float64, metric Metric) string {
	switch metric {
	case BytesPerSecond:
		return scaled(v, "B/s")
	case Seconds:
		return seconds(v)
	case ResidentBytes:
		return scaled(v, "B")
	case Requests:
		return fmt.Sprintf("%.0f requests", v)
	case Utilisation:
		return fmt.Sprintf("%.3f AU", v)
	default:
		return grouped(v) + " " + string(metric)
	}
}

func scaled(v float64, unit string) string {
	for _, step := range []struct {
		size float64
		name string
	}{{1e9, "G"}, {1e6, "M"}, {1e3, "k"}} {
		if math.Abs(v) >= step.size {
			return significant(v/step.size) + " " + step.name + unit
		}
	}
	return significant(v) + " " + unit
}

func seconds(v float64) string {
	switch {
	case v >= 1:
		return significant(v) + " s"
	case v >= 1e-3:
		return significant(v*1e3) + " ms"
	default:
		return significant(v*1e6) + " µs"
	}
}

// significant writes three digits, and no exponent.
func significant(v float64) string {
	switch a := math.Abs(v); {
	case a >= 100:
		return fmt.Sprintf("%.0f", v)
	case a >= 10:
		return fmt.Sprintf("%.1f", v)
	default:
		return fmt.Sprintf("%.2f", v)
	}
}

// grouped writes a whole number with commas.
func grouped(v float64) string {
	digits := fmt.Sprintf("%.0f", v)
	var b strings.Builder
	for i, c := range digits {
		if i > 0 && (len(digits)-i)%3 == 0 && digits[i-1] != '-' {
			b.WriteByte(',')
		}
		b.WriteRune(c)
	}
	return b.String()
}

// ShowWant is what must be reached, with its unit.
func (t *Target) ShowWant() string {
	if t.Refused != "" && t.Want == 0 || t.Shown() {
		return "–" // it failed before it knew, or nothing is asked for
	}
	sign := "≥"
	if t.AtMost {
		sign = "≤"
	}
	return sign + " " + t.showNumber(t.Want)
}

// ShowMeasured is what was reached, with its spread over the runs.
func (t *Target) ShowMeasured() string {
	if t.Refused != "" && t.Measured == 0 {
		return "–"
	}
	s := t.showNumber(t.Measured)
	if t.Most > t.Least {
		s += fmt.Sprintf(" (%s–%s)", t.showNumber(t.Least), t.showNumber(t.Most))
	}
	return s
}

func (t *Target) showNumber(v float64) string {
	switch t.Unit {
	case "":
		return fmt.Sprintf("%.2f", v)
	case "B":
		return scaled(v, "B")
	case "ms", "µs", "AU", "%":
		return fmt.Sprintf("%.2f %s", v, t.Unit)
	case "names/s":
		return grouped(v) + " names/s"
	default:
		return fmt.Sprintf("%.0f %s", v, t.Unit)
	}
}

// Verdict is one word: met, missed, refused, or shown where nothing is asked for.
func (t *Target) Verdict() string {
	switch {
	case t.Refused != "":
		return "refused"
	case t.Shown():
		return "shown"
	case t.Met():
		return "met"
	default:
		return "missed"
	}
}

// Verdict is the verdict on t, a target of r. At reduced sizes nothing is judged.
func (r *Report) Verdict(t *Target) string {
	if r.Short && t.Refused == "" {
		return "not judged"
	}
	return t.Verdict()
}

// WriteSummary writes what was found: the targets called names, and those that were missed or
// refused.
func (r *Report) WriteSummary(w io.Writer, names []string) error {
	var b strings.Builder
	r.writeMachine(&b)
	verdicts := make(map[string]int)
	for i := range r.Targets {
		verdicts[r.Verdict(&r.Targets[i])]++
	}
	fmt.Fprintf(&b, "Of %d targets %d are met, %d missed and %d refused. The others are shown, not judged.\n\n",
		len(r.Targets), verdicts["met"], verdicts["missed"], verdicts["refused"])
	b.WriteString("| work | against | want | measured | | pailfs | reference |\n|---|---|---|---|---|---|---|\n")
	for i := range r.Targets {
		t := &r.Targets[i]
		verdict := r.Verdict(t)
		switch {
		case verdict == "missed", verdict == "refused":
			verdict = "**" + verdict + "**"
		case !slices.Contains(names, t.Name):
			continue
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s | %s |\n", t.Work, t.Against, t.ShowWant(), t.ShowMeasured(), verdict, t.Subject, t.Reference)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// WriteMarkdown writes the whole report for its page.
func (r *Report) WriteMarkdown(w io.Writer) error {
	var b strings.Builder
	r.writeMachine(&b)
	if len(r.Targets) > 0 {
		r.writeTargets(&b)
	}
	r.writeSeries(&b)
	_, err := io.WriteString(w, b.String())
	return err
}

func (r *Report) writeMachine(b *strings.Builder) {
	m := r.Machine
	modified := ""
	if m.Modified {
		modified = " (modified)"
	}
	fmt.Fprintf(b, "Taken %s with `%s`, commit %s%s, %s.\n", r.at(), r.Command, m.Commit, modified, m.Go)
	fmt.Fprintf(b, "Machine: %s, %d cores, %s of memory, Linux %s, data on %s.\n\n", m.CPU, m.Cores, scaled(float64(m.MemoryBytes), "B"), m.Kernel, m.FileSystem)
	if r.Short {
		b.WriteString("Sizes were reduced: these figures show that everything works, not how fast.\n\n")
	}
}

func (r *Report) writeTargets(b *strings.Builder) {
	b.WriteString("| target | work | against | want | measured (single runs) | | pailfs | reference |\n|---|---|---|---|---|---|---|---|\n")
	var notes []string
	for i := range r.Targets {
		t := &r.Targets[i]
		verdict := r.Verdict(t)
		if verdict == "missed" {
			verdict = "**missed**"
		}
		own := t.Notes
		if t.Refused != "" {
			own = append([]string{"Refused: " + t.Refused}, own...)
		}
		for _, note := range own {
			n := slices.Index(notes, note)
			if n < 0 {
				n = len(notes)
				notes = append(notes, note)
			}
			verdict += fmt.Sprintf(" [%d]", n+1)
		}
		fmt.Fprintf(b, "| `%s` | %s | %s | %s | %s | %s | %s | %s |\n", t.Name, t.Work, t.Against, t.ShowWant(), t.ShowMeasured(), verdict, t.Subject, t.Reference)
	}
	b.WriteString("\n")
	for i, note := range notes {
		fmt.Fprintf(b, "[%d] %s.  \n", i+1, note)
	}
	if len(notes) > 0 {
		b.WriteString("\n")
	}
}

func (r *Report) writeSeries(b *strings.Builder) {
	b.WriteString("| workload | client | link | | median | least–most | reader CPU | daemon CPU | daemon peak | server share |\n|---|---|---|---|---|---|---|---|---|---|\n")
	for i := range r.Series {
		s := &r.Series[i]
		least, most := s.Range()
		cpu := func(f func(*Sample) float64) string { return seconds(s.MedianOf(f)) }
		fmt.Fprintf(b, "| %s | %s | %s | %s | %s | %s – %s | %s | %s | %s | %.0f %% |\n", s.Workload, s.Client, s.Link, s.How, s.Show(),
			ShowValue(least, s.Metric), ShowValue(most, s.Metric),
			cpu(func(x *Sample) float64 { return x.ReaderCPU }), cpu(func(x *Sample) float64 { return x.DaemonCPU }),
			scaled(s.MedianOf(func(x *Sample) float64 { return float64(x.DaemonPeak) }), "B"), 100*s.ServerShare())
	}
}
