package result

import (
	"math"

	"golang.org/x/perf/benchmath"
)

// Change is how one client's work at one workload differs between two reports.
type Change struct {
	Old, New *Series
	// Gain is by which part the new one is better: 0.1 is a tenth faster.
	Gain float64
	// P is the probability that two samples of one distribution differ as much.
	P       float64
	Verdict Verdict
}

// Verdict is a change in words.
type Verdict string

// The verdicts.
const (
	Same          Verdict = "same"
	Faster        Verdict = "faster"
	Slower        Verdict = "slower"
	PerhapsFaster Verdict = "perhaps faster"
	PerhapsSlower Verdict = "perhaps slower"
)

// enough is how many samples a side the test needs to be able to reach 5 %.
const enough = 4

// Changes compares the series that two reports have in common. A gain below
// threshold is none.
func Changes(before, now *Report, threshold float64) []Change {
	var changes []Change
	for i := range now.Series {
		n := &now.Series[i]
		for j := range before.Series {
			o := &before.Series[j]
			if o.Workload == n.Workload && o.Client == n.Client && o.Link == n.Link && o.How == n.How && o.Metric == n.Metric &&
				len(o.Samples) > 0 && len(n.Samples) > 0 {
				changes = append(changes, change(o, n, threshold))
			}
		}
	}
	return changes
}

func change(o, n *Series, threshold float64) Change {
	c := Change{Old: o, New: n, Gain: Times(n, o) - 1, Verdict: Same}
	thresholds := benchmath.DefaultThresholds
	test := benchmath.AssumeNothing.Compare(benchmath.NewSample(o.Values(), &thresholds), benchmath.NewSample(n.Values(), &thresholds))
	c.P = test.P
	if math.Abs(c.Gain) < threshold {
		return c
	}
	certain := test.P < test.Alpha
	possible := len(o.Samples) < enough || len(n.Samples) < enough
	switch {
	case certain && c.Gain > 0:
		c.Verdict = Faster
	case certain:
		c.Verdict = Slower
	case possible && c.Gain > 0:
		c.Verdict = PerhapsFaster
	case possible:
		c.Verdict = PerhapsSlower
	}
	return c
}
