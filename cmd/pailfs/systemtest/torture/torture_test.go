package torture

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestPartsAddUp(t *testing.T) {
	began := time.Date(2026, 11, 23, 20, 0, 0, 0, time.UTC)
	dir := t.TempDir()
	for i := range 6 {
		r := Result{Kind: Kills, Seed: uint64(i + 1), OK: true, Seconds: 600, Began: began, Commit: "abc", Report: Report{Kills: 2, Pending: i%2 == 0}}
		if i == 5 {
			r.OK, r.Failure = false, "a byte | is\nwrong"
		}
		if err := Append(filepath.Join(dir, []string{"a", "b"}[i%2]), r); err != nil {
			t.Fatal(err)
		}
	}
	// A round that was repeated counts once; what is cut off does not.
	again := Result{Kind: Kills, Seed: 1, OK: true, Seconds: 600, Began: began.Add(time.Hour), Commit: "abc", Report: Report{Kills: 2, Pending: true}}
	if err := Append(filepath.Join(dir, "a"), again); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(filepath.Join(dir, "b"), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(`{"kind":"ki`); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	var all []Result
	for _, name := range []string{"a", "b"} {
		in, err := os.Open(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		part, err := Read(in)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, part...)
		_ = in.Close() // it was read
	}
	got := Summary(all, "# old\n"+Marker+"\nNotes.\n")
	for _, want := range []string{
		"| 6 | 12 | 0 | 3 | 1 | 1.00 | 1-6 | abc | 2026-11-23 |",
		"| kills | 6 | abc | `make torture KINDS=kills SEEDS=6-6` | a byte \\| is wrong |",
		Marker + "\nNotes.\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in\n%s", want, got)
		}
	}
	if strings.Contains(got, "old") {
		t.Error("what is above the marker was kept")
	}
}

func TestSoaksShowStartMiddleAndEnd(t *testing.T) {
	var r Result
	for i := range 5 {
		r.Report.Samples = append(r.Report.Samples, Sample{After: float64(i * 600), Resident: int64(i) << 20})
	}
	got := Summary([]Result{r}, "")
	for _, want := range []string{"| start | 0 min | 0 MiB |", "| middle | 20 min | 2 MiB |", "| end | 40 min | 4 MiB |"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in\n%s", want, got)
		}
	}
}

func TestRangesOfSeeds(t *testing.T) {
	if got := ranges([]uint64{7, 1, 2, 3, 5, 9, 8, 2}); got != "1-3, 5, 7-9" {
		t.Error(got)
	}
}
