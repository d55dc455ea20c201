package result

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/pailfs/pailfs/bench/machine"
)

func series(client string, values ...float64) *Series {
	s := &Series{Workload: "read/seq-cold", Client: client, Link: "none", Metric: BytesPerSecond, Value: Median(values)}
	for _, v := range values {
		s.Samples = append(s.Samples, Sample{Value: v})
	}
	return s
}

func TestQuantiles(t *testing.T) {
	values := []float64{4, 1, 3, 2}
	if got := Median(values); got != 2.5 {
		t.Errorf("median %v", got)
	}
	if values[0] != 4 {
		t.Error("the argument was sorted")
	}
	want := &Quantiles{Min: 1, P50: 2.5, P90: 3.7, P99: 3.97, Max: 4}
	if diff := cmp.Diff(want, QuantilesOf(values), cmpopts.EquateApprox(0, 1e-9)); diff != "" {
		t.Error(diff)
	}
	if !math.IsNaN(Median(nil)) || QuantilesOf(nil) != nil {
		t.Error("nothing has a median")
	}
}

func TestTargetCompares(t *testing.T) {
	target := Target{Want: 0.9}
	target.Compare(series("pailfs", 90, 95, 100), series("bare", 100, 100, 125))
	if target.Measured != 0.95 || target.Least != 0.8 || target.Most != 0.95 || !target.Met() {
		t.Errorf("target is %+v", target)
	}
	late := Target{Want: 1.15, AtMost: true}
	late.Compare(series("pailfs", 1.2), series("bare", 1))
	if late.Met() || late.Verdict() != "missed" {
		t.Errorf("target is %+v", late)
	}
}

func TestTargetRefusesABusyServer(t *testing.T) {
	subject, reference := series("pailfs", 1, 1, 1), series("bare", 1, 1, 1)
	for i := range reference.Samples {
		reference.Samples[i].ServerShare = 0.61
		reference.Samples[i].OtherShare = 0.3
	}
	target := Target{Want: 0.5}
	target.Compare(subject, reference)
	if target.Met() || target.Verdict() != "refused" || !strings.Contains(target.Refused, "61 % of the machine beside bare") {
		t.Errorf("target is %+v", target)
	}
	if len(target.Notes) != 1 {
		t.Errorf("notes are %q", target.Notes)
	}
}

func TestTargetRefusesUnpairedSeries(t *testing.T) {
	for _, subject := range []*Series{series("pailfs"), series("pailfs", 1)} {
		target := Target{Want: 0.5}
		target.Compare(subject, series("bare", 1, 2))
		if target.Met() || target.Refused == "" {
			t.Errorf("target is %+v", target)
		}
	}
}

func TestShowValue(t *testing.T) {
	for _, c := range []struct {
		v      float64
		metric Metric
		want   string
	}{
		{27.63e9, BytesPerSecond, "27.6 GB/s"},
		{563e6, BytesPerSecond, "563 MB/s"},
		{81234, FilesPerSecond, "81,234 files/s"},
		{999, ReadsPerSecond, "999 reads/s"},
		{1234567, ReadsPerSecond, "1,234,567 reads/s"},
		{0.0301, Seconds, "30.1 ms"},
		{0.0000071, Seconds, "7.10 µs"},
		{2.5, Seconds, "2.50 s"},
		{1, Requests, "1 requests"},
		{-20e6, ResidentBytes, "-20.0 MB"},
	} {
		if got := ShowValue(c.v, c.metric); got != c.want {
			t.Errorf("%v %s is shown as %q, want %q", c.v, c.metric, got, c.want)
		}
	}
}

func TestReportSurvivesItsFile(t *testing.T) {
	r := report()
	path := filepath.Join(t.TempDir(), "a", "r.json")
	if err := r.Save(path); err != nil {
		t.Fatal(err)
	}
	got, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(r, got); diff != "" {
		t.Error(diff)
	}
	r.Format = Format + 1
	if err := r.Save(path); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(path); err == nil {
		t.Error("an unknown format was accepted")
	}
}

func report() *Report {
	r := &Report{
		Format: Format, Taken: time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC), Command: "bench targets",
		Machine: machine.Facts{CPU: "a processor", Cores: 2, MemoryBytes: 24e9, Kernel: "6.18", Go: "go1.26", FileSystem: "ext4", Commit: "abc", Modified: true},
		Series:  []Series{*series("pailfs", 90, 95), *series("bare", 100, 100)},
	}
	for _, want := range []float64{0.9, 0.99} {
		target := Target{Name: "t", Work: "work", Against: "the bare client", Want: want, Notes: []string{"a note"}}
		target.Compare(&r.Series[0], &r.Series[1])
		r.Targets = append(r.Targets, target)
	}
	return r
}

func TestFigureOfWhichNothingIsAskedIsShown(t *testing.T) {
	r := report()
	target := &r.Targets[1]
	target.Want = 0
	if got, want := r.Verdict(target), target.ShowWant(); got != "shown" || want != "–" || !target.Met() {
		t.Errorf("%q, want %q, met %v", got, want, target.Met())
	}
	target.AtMost = true // no requests at all, say
	if got, want := r.Verdict(target), target.ShowWant(); got != "missed" || want != "≤ 0.00" {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestShortRunsAreNotJudged(t *testing.T) {
	r := report()
	if got := r.Verdict(&r.Targets[0]); got != "met" {
		t.Errorf("at full size: %q", got)
	}
	r.Short = true
	if got := r.Verdict(&r.Targets[1]); got != "not judged" {
		t.Errorf("at reduced size: %q", got)
	}
	r.Targets[1].Refused = "a reason"
	if got := r.Verdict(&r.Targets[1]); got != "refused" {
		t.Errorf("refused at reduced size: %q", got)
	}
}

func TestPageKeepsWhatIsAroundTheMarks(t *testing.T) {
	path := filepath.Join(t.TempDir(), "README.md")
	if err := os.WriteFile(path, []byte("before\n<!-- targets: begin -->\nformer results\n<!-- targets: end -->\nafter\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := UpdatePage(path, Targets, report().WriteMarkdown); err != nil {
			t.Fatal(err)
		}
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	s := string(b)
	for _, want := range []string{
		"before\n", "\nafter\n", "commit abc (modified)", "≥ 0.99 | 0.93 (0.90–0.95)", "**missed** [1]", "| met [1] |", "[1] a note.",
	} {
		if strings.Count(s, want) != 1 {
			t.Errorf("%q is there %d times in:\n%s", want, strings.Count(s, want), s)
		}
	}
	if strings.Contains(s, "former") {
		t.Error("the old results are still there")
	}
	if err := os.WriteFile(path, []byte("no marks"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := UpdatePage(path, Targets, report().WriteMarkdown); err == nil {
		t.Error("a file without marks was accepted")
	}
}

func TestSummaryShowsWhatWasMissedAndWhatIsAskedFor(t *testing.T) {
	r := report()
	for _, row := range []struct {
		names []string
		met   int
	}{{nil, 0}, {[]string{r.Targets[0].Name}, 1}} {
		var b strings.Builder
		if err := r.WriteSummary(&b, row.names); err != nil {
			t.Fatal(err)
		}
		for want, count := range map[string]int{"| **missed** |": 1, "| met |": row.met, "1 missed": 1} {
			if got := strings.Count(b.String(), want); got != count {
				t.Errorf("%q is there %d times, want %d, in:\n%s", want, got, count, &b)
			}
		}
	}
}

func TestComparisonSetsClientsBesideLimitAndPeer(t *testing.T) {
	pailfs, disk, slow := series("pailfs", 90), series("disk", 100), series("s3fs", 45)
	failed := series("rclone")
	failed.Value, failed.Failed = 0, "read \"a\": wrong | byte"
	r := &Report{Format: Format, Series: []Series{*disk, *failed, *slow, *pailfs}}
	var b strings.Builder
	c := Comparison{Limits: []string{"disk"}, Subject: "pailfs"}
	if err := c.WriteMarkdown(&b, r); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"| pailfs | 90.0 B/s | 90.0 B/s – 90.0 B/s | 0.90 | 2.00 |", "| s3fs | 45.0 B/s | 45.0 B/s – 45.0 B/s | 0.45 | – |",
		"| rclone | **failed** | read \"a\": wrong / byte |",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is missing in:\n%s", want, &b)
		}
	}
	if rows := c.Rows(r); len(rows) != 1 || rows[0].Series[0].Client != "pailfs" || rows[0].Series[1].Client != "disk" {
		t.Errorf("rows: %+v", rows)
	}
	latency := func(v float64) *Series { s := series("x", v); s.Metric = Seconds; return s }
	if got := Times(latency(1), latency(2)); got != 2 {
		t.Errorf("half the time is %v times as good", got)
	}
}

func TestWhatIsBehindIsSaid(t *testing.T) {
	busy := series("s3fs", 400)
	busy.Workload, busy.Samples[0].ServerShare = "busy", 0.7
	ours := series("pailfs", 40)
	ours.Workload = "busy"
	r := &Report{Series: []Series{*series("pailfs", 40), *series("pailfs-immutable", 98), *series("disk", 100), *series("s3fs", 80), *ours, *busy}}
	c := Comparison{Limits: []string{"disk"}, Subject: "pailfs"}
	var b strings.Builder
	if err := c.WriteMarkdown(&b, r); err != nil {
		t.Fatal(err)
	}
	_, notes, _ := strings.Cut(b.String(), "Where it is behind:")
	for want, count := range map[string]int{", pailfs: 0.50 of s3fs": 1, ", pailfs: 0.40 of disk": 1, noReason: 2, "immutable": 0, "busy": 0} {
		if strings.Count(notes, want) != count {
			t.Errorf("%q is there %d times, want %d:\n%s", want, strings.Count(notes, want), count, notes)
		}
	}
	r.Series = r.Series[1:3]
	b.Reset()
	if err := c.WriteMarkdown(&b, r); err != nil || !strings.Contains(b.String(), "- nowhere") {
		t.Errorf("%v:\n%s", err, &b)
	}
}

// TestTheReasonIsMeasured: what explains at least half of the longer time is the reason, and where
// nothing does, none is given.
func TestTheReasonIsMeasured(t *testing.T) {
	took := func(client string, seconds float64, change func(*Sample)) *Series {
		s := series(client, 1, 1, 1)
		for i := range s.Samples {
			s.Samples[i].Spent = &Spent{Seconds: seconds, Program: 1} // no processor waits
			if change != nil {
				change(&s.Samples[i])
			}
		}
		return s
	}
	appends := func(client string, each, run float64) *Series {
		s := took(client, run, func(x *Sample) { x.Ops, x.DaemonCPU = 10, run })
		s.Metric, s.Value = Seconds, each
		return s
	}
	for name, c := range map[string]struct {
		ours, disk *Series
		want       string
	}{
		"the daemon worked": {
			took("pailfs", 3, func(x *Sample) { x.DaemonCPU, x.ReaderCPU = 1.5, 0.4 }), took("disk", 1, nil),
			"a run took 2.00 s more, and 1.50 s more was processor time of its daemon",
		},
		"the program worked as long for both": {
			took("pailfs", 3, func(x *Sample) { x.ReaderCPU = 2.5 }), took("disk", 1, func(x *Sample) { x.ReaderCPU = 2.5 }),
			noReason + ": a run took 2.00 s more, and nothing",
		},
		"the disk was busy": {
			took("pailfs", 4, func(x *Sample) { x.Spent.Disk = 0.75 }), took("disk", 1, func(x *Sample) { x.Spent.Disk = 1 }),
			"a run took 3.00 s more, and 2.00 s more was time in which the disk was busy",
		},
		"it waited for the store": {
			took("pailfs", 2, func(x *Sample) { x.Spent.Program, x.Requests = 0.1, map[string]int64{"GetObject": 7, "ListObjects": 2} }), took("disk", 1, nil),
			"waited (9 requests to the store, 0 of disk)",
		},
		"it waited, and not for the store": {
			took("pailfs", 2, func(x *Sample) { x.Spent.Program = 0.1 }), took("disk", 1, nil), "every processor waited",
		},
		"less than half explains nothing": {
			took("pailfs", 3, func(x *Sample) { x.DaemonCPU = 0.9 }), took("disk", 1, nil), noReason + ": a run took 2.00 s more, and nothing",
		},
		"what took longer is not what is compared": {
			appends("pailfs", 0.02, 3), appends("disk", 0.01, 1), noReason + ": a run took 2.00 s more, and only 100 ms",
		},
		"single operations took longer": {
			appends("pailfs", 0.21, 3), appends("disk", 0.01, 1), "a run took 2.00 s more, and 2.00 s more was processor time of its daemon",
		},
		"its runs took no longer":   {took("pailfs", 1, nil), took("disk", 1, nil), noReason + ": its runs"},
		"one side was not measured": {took("pailfs", 3, nil), series("disk", 1), noReason + ": where"},
	} {
		if got := reason(c.ours, c.disk); !strings.Contains(got, c.want) || strings.Contains(got, "(") != strings.Contains(c.want, "(") {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestChangesSayWhatIsCertain(t *testing.T) {
	reports := func(o, n *Series) (*Report, *Report) {
		return &Report{Series: []Series{*o}}, &Report{Series: []Series{*n}}
	}
	for _, c := range []struct {
		name string
		old  []float64
		now  []float64
		want Verdict
	}{
		{"clearly slower", []float64{100, 101, 102, 103, 104}, []float64{80, 81, 82, 83, 84}, Slower},
		{"clearly faster", []float64{80, 81, 82, 83, 84}, []float64{100, 101, 102, 103, 104}, Faster},
		{"within the threshold", []float64{100, 101, 102, 103, 104}, []float64{98, 99, 100, 101, 102}, Same},
		{"noise", []float64{50, 100, 150, 100, 90}, []float64{140, 60, 100, 110, 120}, Same},
		{"too few samples", []float64{100, 101}, []float64{80, 81}, PerhapsSlower},
	} {
		got := Changes(reportsOf(reports(series("pailfs", c.old...), series("pailfs", c.now...))))
		if len(got) != 1 || got[0].Verdict != c.want {
			t.Errorf("%s: %+v, want %s", c.name, got, c.want)
		}
	}
	if got := Changes(reportsOf(reports(series("pailfs", 1), series("s3fs", 1)))); len(got) != 0 {
		t.Errorf("different clients were compared: %+v", got)
	}
}

func reportsOf(o, n *Report) (*Report, *Report, float64) { return o, n, 0.05 }

func TestLaterRunsTakeThePlaceOfEarlierOnes(t *testing.T) {
	facts := machine.Facts{CPU: "cpu", Cores: 2, FileSystem: "ext4", Commit: "old"}
	all := &Report{
		Machine: facts,
		Targets: []Target{{Name: "a", Measured: 1}, {Name: "b", Measured: 2}},
		Series:  []Series{{Workload: "w", Client: "pailfs", Value: 1}, {Workload: "w", Client: "disk", Value: 2}},
	}
	later := &Report{
		Taken: time.Date(2026, 11, 22, 12, 45, 0, 0, time.UTC), Command: "bench targets b c", Machine: facts,
		Targets: []Target{{Name: "b", Measured: 3, Notes: []string{"own"}}, {Name: "c", Measured: 4}},
		Series:  []Series{{Workload: "w", Client: "disk", Value: 5}, {Workload: "w", Client: "disk", Link: "seed", Value: 6}},
	}
	later.Machine.Commit = "new"
	if err := all.Merge(later); err != nil {
		t.Fatal(err)
	}
	note := "taken 2026-11-22 12:45 UTC with `bench targets b c`, commit new"
	want := []Target{{Name: "a", Measured: 1}, {Name: "b", Measured: 3, Notes: []string{note, "own"}}, {Name: "c", Measured: 4, Notes: []string{note}}}
	if diff := cmp.Diff(want, all.Targets); diff != "" {
		t.Error(diff)
	}
	series := []Series{{Workload: "w", Client: "pailfs", Value: 1}, {Workload: "w", Client: "disk", Value: 5}, {Workload: "w", Client: "disk", Link: "seed", Value: 6}}
	if diff := cmp.Diff(series, all.Series); diff != "" {
		t.Error(diff)
	}
	for what, change := range map[string]func(*Report){
		"reduced":  func(r *Report) { r.Short = true },
		"modified": func(r *Report) { r.Machine.Modified = true },
		"machine":  func(r *Report) { r.Machine.CPU = "another" },
	} {
		other := *later
		change(&other)
		if err := all.Merge(&other); err == nil {
			t.Errorf("a run that is not fit (%s) was taken in", what)
		}
	}
}
