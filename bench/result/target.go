package result

import (
	"fmt"
	"math"
)

// Target is something that must be reached, and what was reached.
type Target struct {
	// Name is how the target is asked for alone.
	Name string `json:"name"`
	// Work and Against say in words what is compared with what.
	Work    string `json:"work"`
	Against string `json:"against"`
	// Want is what Measured must be: at least, or at most if AtMost is set. At least
	// zero asks for nothing, and the figure is shown for what it tells.
	Want     float64 `json:"want"`
	AtMost   bool    `json:"at_most,omitempty"`
	Measured float64 `json:"measured"`
	// Least and Most are the extremes over the single runs.
	Least float64 `json:"least"`
	Most  float64 `json:"most"`
	// Unit is "" for a ratio.
	Unit string `json:"unit,omitempty"`
	// Subject and Reference are the values that were compared, with their metric.
	Subject   string `json:"subject"`
	Reference string `json:"reference"`
	// Refused says why nothing is claimed; Measured is then for information, or 0.
	Refused string `json:"refused,omitempty"`
	// Notes are footnotes.
	Notes []string `json:"notes,omitempty"`
}

// Shown reports whether nothing is asked for.
func (t *Target) Shown() bool { return t.Want == 0 && !t.AtMost }

// Met reports whether the target was measured and reached.
func (t *Target) Met() bool {
	if t.Refused != "" {
		return false
	}
	if t.AtMost {
		return t.Measured <= t.Want
	}
	return t.Measured >= t.Want
}

// Limits of a measurement that can be trusted.
const (
	// MaxServerShare is the part of all processors that the server may use. Above
	// it the server is what is measured.
	MaxServerShare = 0.6
	// MaxOtherShare is the part that strangers may use before a footnote says so.
	MaxOtherShare = 0.1
)

// Compare sets t's figures to the ratio of subject to reference, sample by
// sample. It refuses what cannot be trusted.
func (t *Target) Compare(subject, reference *Series) {
	t.Subject, t.Reference = subject.Show(), reference.Show()
	if len(subject.Samples) == 0 || len(subject.Samples) != len(reference.Samples) {
		t.Refused = "the two sides were not measured in pairs"
		return
	}
	t.Measured = subject.Value / reference.Value
	t.Least, t.Most = math.Inf(1), math.Inf(-1)
	for i := range subject.Samples {
		ratio := subject.Samples[i].Value / reference.Samples[i].Value
		t.Least, t.Most = min(t.Least, ratio), max(t.Most, ratio)
	}
	for _, s := range []*Series{subject, reference} {
		if share := s.MedianOf(func(x *Sample) float64 { return x.ServerShare }); share > MaxServerShare {
			t.Refused = fmt.Sprintf("the server used %.0f %% of the machine beside %s", 100*share, s.Client)
		}
		if share := s.MedianOf(func(x *Sample) float64 { return x.OtherShare }); share > MaxOtherShare {
			t.Notes = append(t.Notes, fmt.Sprintf("other programs used %.0f %% of the machine beside %s", 100*share, s.Client))
		}
	}
}

// MedianOf is the median of f of the samples.
func (s *Series) MedianOf(f func(*Sample) float64) float64 {
	values := make([]float64, len(s.Samples))
	for i := range values {
		values[i] = f(&s.Samples[i])
	}
	return Median(values)
}

// ServerShare is the median of the server's share of the machine.
func (s *Series) ServerShare() float64 {
	return s.MedianOf(func(x *Sample) float64 { return x.ServerShare })
}
