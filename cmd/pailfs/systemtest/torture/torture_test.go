package torture

import (
	"os"
	"path/filepath"
	"slices"
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
	got, err := Summary(all, "# old\n"+Marker+"\nNotes.\n")
	if err != nil {
		t.Fatal(err)
	}
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
	r.Kind, r.Commit = Soak, "abc"
	got, err := Summary([]Result{r}, "")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"| 0 | abc | start | 0 min | 0 MiB |", "| middle | 20 min | 2 MiB |", "| end | 40 min | 4 MiB |"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in\n%s", want, got)
		}
	}
}

func TestRangesOfSeeds(t *testing.T) {
	if got := ranges(distinct([]uint64{7, 1, 2, 3, 5, 9, 8, 2})); got != "1-3, 5, 7-9" {
		t.Error(got)
	}
}

// summary is Summary of a page that can be read.
func summary(t *testing.T, all []Result, before string) string {
	t.Helper()
	page, err := Summary(all, before)
	if err != nil {
		t.Fatal(err)
	}
	return page
}

// someRounds returns results of the seeds from..to, of which the first failed.
func someRounds(kind, commit string, from, to uint64) (all []Result) {
	for seed := from; seed <= to; seed++ {
		r := Result{Kind: kind, Seed: seed, OK: seed != from, Seconds: 36, Began: time.Date(2026, 11, 23, 20, 0, 0, 0, time.UTC), Commit: commit, Report: Report{Kills: 1}}
		if !r.OK {
			r.Failure = "a | b"
		}
		if kind == Soak {
			r.Report.Samples = make([]Sample, 3)
		}
		all = append(all, r)
	}
	return all
}

func TestRowsOfWhichTheResultsAreGoneStay(t *testing.T) {
	page := summary(t, slices.Concat(someRounds(Kills, "old", 1, 100), someRounds(Power, "old", 1, 10), someRounds(Soak, "old", 1, 1)), Marker+"\nNotes.\n")
	page = summary(t, someRounds(Kills, "new", 1, 5), page)
	page = summary(t, someRounds(Kills, "new", 1, 7), page)
	for _, want := range []string{
		"| 100 | 100 | 0 | 0 | 1 | 1.00 | 1-100 | old |",
		"| 10 | 10 | 0 | 0 | 1 | 0.10 | 1-10 | old |",
		"| 7 | 7 | 0 | 0 | 1 | 0.07 | 1-7 | new |",
		"| all |  | 118 | 118 | 0 | 0 | 4 | 1.18 |  | new, old |",
		"| power | 1 | old | `make torture KINDS=power SEEDS=1-1` | a \\| b |",
		"| 1 | old | middle |",
		Marker + "\nNotes.\n",
	} {
		if strings.Count(page, want) != 1 {
			t.Errorf("%q is not once in\n%s", want, page)
		}
	}
	if strings.Contains(page, "1-5 |") {
		t.Error("what is told anew is there twice")
	}
	if again := summary(t, nil, page); again != page {
		t.Errorf("without results it became\n%s", again)
	}
}

func TestARoundIsCountedOnce(t *testing.T) {
	page := summary(t, someRounds(Kills, "x", 1, 100), "")
	// Of the first seeds the results are gone: their row stays, and has counted two of these.
	page = summary(t, someRounds(Kills, "x", 99, 110), page)
	for _, want := range []string{"| 100 | 100 | 0 | 0 | 1 | 1.00 | 1-100 | x |", "| 10 | 10 | 0 | 0 | 0 | 0.10 | 101-110 | x |", "| all |  | 110 |"} {
		if strings.Count(page, want) != 1 {
			t.Errorf("%q is not once in\n%s", want, page)
		}
	}
	// All are there again.
	page = summary(t, someRounds(Kills, "x", 1, 110), page)
	if !strings.Contains(page, "| 1-110 | x |") || !strings.Contains(page, "| all |  | 110 |") {
		t.Errorf("it is\n%s", page)
	}
}

func TestATableThatIsNotUnderstoodIsRefused(t *testing.T) {
	page := summary(t, someRounds(Kills, "x", 1, 2), "")
	for _, bad := range []string{
		strings.Replace(page, "| 1-2 |", "| 1 to 2 |", 1),
		strings.Replace(page, "| 1-2 |", "| 2-1 |", 1),
		strings.Replace(page, "| 1-2 | x |", "| 1-2 |", 1),
		strings.Replace(page, "| kills | kill", "| kill | kill", 1),
		strings.Replace(page, "| kills | 1 |", "| kills | one |", 1),
	} {
		if bad == page {
			t.Fatal("nothing was replaced")
		}
		if got, err := Summary(nil, bad); err == nil {
			t.Errorf("it was accepted:\n%s\nand became\n%s", bad, got)
		}
	}
}

func TestASoakOfTwoHoursHasThree(t *testing.T) {
	if got := Limit(Soak, 2*time.Hour); got < 3*time.Hour {
		t.Error(got)
	}
	if got := Limit(Kills, 2*time.Hour); got > 10*time.Minute {
		t.Error(got)
	}
}

func TestWhatATestToldOfItself(t *testing.T) {
	const said = "=== RUN   TestX\n    table_test.go:7: compared with ext4\n    x_test.go:8: PAILFS_TEST_SEED=3\n    x_test.go:9: 12 rows\n--- PASS: TestX (1s)\nPASS\n"
	if got := Told(said); got != "compared with ext4; 12 rows" {
		t.Errorf("%q", got)
	}
	if got := Failure(said); !strings.HasPrefix(got, "table_test.go:7: compared with ext4\nx_test.go:8:") {
		t.Errorf("%q", got)
	}
}
