package suite

import (
	"context"
	"errors"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/pailfs/pailfs/bench/result"
	"github.com/pailfs/pailfs/bench/rig"
)

// fakeDriver is a client whose samples are given: what is tested is what is made of them.
type fakeDriver struct {
	rig.Disk
	name    string
	samples []result.Sample
	// fails says in which run it fails, counted from one.
	fails int
}

// Name implements [rig.Driver].
func (d fakeDriver) Name() string { return d.name }

// of returns a client with such values, one a run.
func of(name string, values ...float64) fakeDriver {
	d := fakeDriver{name: name}
	for _, v := range values {
		d.samples = append(d.samples, result.Sample{Value: v})
	}
	return d
}

// beside returns d with so much of the machine used by the server, and by others, in each run.
func (d fakeDriver) beside(server, others float64) fakeDriver {
	d.samples = slices.Clone(d.samples)
	for i := range d.samples {
		d.samples[i].ServerShare, d.samples[i].OtherShare = server, others
	}
	return d
}

var errFake = errors.New("the client is gone")

// judge compares two clients at a workload by what they gave.
func judge(t *testing.T, o Options, subject, reference fakeDriver, want result.Target) (*result.Report, error) {
	t.Helper()
	r := runner(t, len(subject.samples))
	r.take = func(_ context.Context, b *bench, run int) (result.Sample, error) {
		d := b.subject.Driver.(fakeDriver)
		if d.fails == run+1 {
			return result.Sample{}, errFake
		}
		return d.samples[run], nil
	}
	taken, err := r.compare(t.Context(), "read/seq-warm", o, Subject{Driver: subject}, Subject{Driver: reference}, want)
	return &result.Report{Targets: taken.Targets, Series: taken.Series}, err
}

// TestWhatIsMadeOfSamples: a ratio is that of the medians, its extremes are those of the rounds,
// and what cannot be trusted is no claim.
func TestWhatIsMadeOfSamples(t *testing.T) {
	for name, c := range map[string]struct {
		subject, reference    fakeDriver
		want                  result.Target
		verdict               string
		measured, least, most float64
		refused, note         string
	}{
		"met": {
			of("pailfs", 90, 95, 100), of("disk", 100, 100, 100), result.Target{Want: 0.95}, "met", 0.95, 0.9, 1, "", "",
		},
		"missed by a little": {
			of("pailfs", 94, 94, 94), of("disk", 100, 100, 100), result.Target{Want: 0.95}, "missed", 0.94, 0.94, 0.94, "", "",
		},
		"at most, met": {
			of("pailfs", 1.1), of("disk", 1), result.Target{Want: 1.1, AtMost: true}, "met", 1.1, 1.1, 1.1, "", "",
		},
		"at most, missed": {
			of("pailfs", 1.2), of("disk", 1), result.Target{Want: 1.1, AtMost: true}, "missed", 1.2, 1.2, 1.2, "", "",
		},
		"of an odd number of rounds the middle one": {
			of("pailfs", 10, 300, 20), of("disk", 100, 100, 100), result.Target{}, "shown", 0.2, 0.1, 3, "", "",
		},
		"of an even number the mean of two": {
			of("pailfs", 10, 300, 20, 40), of("disk", 100, 100, 100, 100), result.Target{}, "shown", 0.3, 0.1, 3, "", "",
		},
		"rounds are compared in pairs": {
			of("pailfs", 1, 4), of("disk", 2, 2), result.Target{}, "shown", 1.25, 0.5, 2, "", "",
		},
		"the server was busy beside the subject": {
			of("pailfs", 200).beside(0.61, 0), of("disk", 100), result.Target{Want: 0.5}, "refused", 2, 2, 2, "61 % of the machine beside pailfs", "",
		},
		"the server was busy beside the reference": {
			of("pailfs", 200), of("disk", 100).beside(0.7, 0), result.Target{Want: 0.5}, "refused", 2, 2, 2, "70 % of the machine beside disk", "",
		},
		"the server used as much as it may": {
			of("pailfs", 200).beside(0.6, 0), of("disk", 100), result.Target{Want: 0.5}, "met", 2, 2, 2, "", "",
		},
		"strangers worked, which is a footnote": {
			of("pailfs", 100), of("disk", 100).beside(0, 0.11), result.Target{Want: 0.5}, "met", 1, 1, 1, "", "11 % of the machine beside disk",
		},
		"strangers worked a little": {
			of("pailfs", 100), of("disk", 100).beside(0, 0.1), result.Target{Want: 0.5}, "met", 1, 1, 1, "", "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := judge(t, Options{}, c.subject, c.reference, c.want)
			if err != nil {
				t.Fatal(err)
			}
			got := &r.Targets[0]
			near := func(a, b float64) bool { return a-b < 1e-9 && b-a < 1e-9 }
			if r.Verdict(got) != c.verdict || !near(got.Measured, c.measured) || !near(got.Least, c.least) || !near(got.Most, c.most) {
				t.Errorf("%s: %+v", r.Verdict(got), got)
			}
			if !strings.Contains(got.Refused, c.refused) || (got.Refused == "") != (c.refused == "") {
				t.Errorf("refused: %q", got.Refused)
			}
			if notes := strings.Join(got.Notes, "; "); !strings.Contains(notes, c.note) || (notes == "") != (c.note == "") {
				t.Errorf("notes: %q", notes)
			}
		})
	}
}

// TestAClientThatFailsIsNoFigure: it ends the measurement, or drops out where that is allowed,
// with its reason, and what it gave before is not compared.
func TestAClientThatFailsIsNoFigure(t *testing.T) {
	peer := of("s3fs", 100, 100)
	peer.fails = 2
	if _, err := judge(t, Options{}, of("pailfs", 90, 90), peer, result.Target{Want: 0.5}); !errors.Is(err, errFake) {
		t.Errorf("a client failed, the measurement ended with %v", err)
	}
	r, err := judge(t, Options{Tolerate: true}, of("pailfs", 90, 90), peer, result.Target{Want: 0.5})
	if err != nil {
		t.Fatal(err)
	}
	if got := &r.Targets[0]; r.Verdict(got) != "refused" || !strings.Contains(got.Refused, "pairs") || r.Series[1].Failed != errFake.Error() {
		t.Errorf("%s: %+v, the peer failed: %q", r.Verdict(got), got, r.Series[1].Failed)
	}
}

// TestWhatIsBehindIsNamed: a figure that is behind names whom, and by how much.
func TestWhatIsBehindIsNamed(t *testing.T) {
	r, err := judge(t, Options{}, of("pailfs", 40, 40, 40), of("disk", 100, 100, 100), result.Target{})
	if err != nil {
		t.Fatal(err)
	}
	var page strings.Builder
	if err := (result.Comparison{Limits: []string{"disk"}, Subject: "pailfs"}).WriteMarkdown(&page, r); err != nil {
		t.Fatal(err)
	}
	if want := "`read/seq-warm`, pailfs: 0.40 of disk"; !strings.Contains(page.String(), want) {
		t.Errorf("%q is missing in\n%s", want, &page)
	}
}

// TestTheTableOfComparisons: each row is met by what it wants, missed by a little less, and what
// was published of it was compared with the same and wanted the same.
func TestTheTableOfComparisons(t *testing.T) {
	published, err := result.Load(filepath.Join("..", "results", "targets.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range comparisons() {
		t.Run(c.name, func(t *testing.T) {
			i := slices.IndexFunc(published.Targets, func(p result.Target) bool { return p.Name == c.name })
			if i >= 0 { // a new row is published when all are measured again
				p := &published.Targets[i]
				if p.Work != c.work+c.with || p.Against != c.against || p.Want != c.want || p.AtMost != c.atMost {
					t.Errorf("%+v was published of %+v", p, c)
				}
			}
			worse := c.want * 0.99
			if c.atMost {
				worse = c.want * 1.01
			}
			for verdict, ratio := range map[string]float64{"met": c.want, "missed": worse} {
				r := runner(t, 1)
				r.take = func(_ context.Context, b *bench, run int) (result.Sample, error) {
					if b.options.Readers != c.readers || b.options.Link != c.link || b.workload.Name != c.workload {
						t.Errorf("%s with %+v was measured", b.workload.Name, b.options)
					}
					return b.subject.Driver.(fakeDriver).samples[run], nil
				}
				row := c
				row.subject.Driver, row.reference.Driver = of(c.subject.Driver.Name(), ratio), of(c.reference.Driver.Name(), 1)
				taken, err := row.take(t.Context(), r)
				if err != nil {
					t.Fatal(err)
				}
				report := result.Report{Targets: taken.Targets}
				if got := &report.Targets[0]; report.Verdict(got) != verdict || math.Abs(got.Measured-ratio) > 1e-9 {
					t.Errorf("%v is %s: %+v", ratio, report.Verdict(got), got)
				}
			}
		})
	}
}
