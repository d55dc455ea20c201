package conformance

import (
	"bufio"
	"os"
	"slices"
	"strings"
	"testing"
)

// exclusions maps a test's name to why it is not run.
type exclusions map[string]exclusion

// exclusion is why a test is not run.
type exclusion struct {
	reason string
	// unsteady says that the test passes at times.
	unsteady bool
}

// readExclusions reads a list in which a line "reason: …" gives the reason for
// the indented names below it, up to an empty line. "unsteady: …" does so for
// tests whose outcome is a matter of time.
func readExclusions(t *testing.T, name string) exclusions {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatalf("open exclusions: %v", err)
	}
	defer f.Close()
	ex, why := exclusions{}, exclusion{}
	lines := bufio.NewScanner(f)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimRight(lines.Text(), " \t")
		switch test := strings.TrimSpace(line); {
		case test == "":
			why = exclusion{}
		case strings.HasPrefix(line, "#"):
		case strings.HasPrefix(line, "reason: "):
			why = exclusion{reason: strings.TrimPrefix(line, "reason: ")}
		case strings.HasPrefix(line, "unsteady: "):
			why = exclusion{reason: strings.TrimPrefix(line, "unsteady: "), unsteady: true}
		case why.reason == "" || test == line:
			t.Fatalf("%s:%d: a name without a reason above it", name, n)
		case ex[test].reason != "":
			t.Fatalf("%s:%d: %s is listed twice", name, n, test)
		default:
			ex[test] = why
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatalf("read exclusions: %v", err)
	}
	return ex
}

// split divides all tests into those that must pass and those that are excluded,
// and fails for an excluded name that no test has.
func (ex exclusions) split(t *testing.T, all []string) (wanted, excluded []string) {
	t.Helper()
	for test := range ex {
		if !slices.Contains(all, test) {
			t.Errorf("excluded test %s does not exist", test)
		}
	}
	return ex.divide(all)
}

func (ex exclusions) divide(tests []string) (wanted, excluded []string) {
	for _, test := range tests {
		if ex[test].reason != "" {
			excluded = append(excluded, test)
		} else {
			wanted = append(wanted, test)
		}
	}
	return wanted, excluded
}

// outcome is how one test of a suite ended.
type outcome struct {
	// verdict is the suite's word for it: PASS, FAIL, PANIC, SKIP.
	verdict string
	log     string
}

// wantPassed fails for every test of the run that has not passed.
func (j *job) wantPassed(t *testing.T, got map[string]outcome) {
	t.Helper()
	if j.err != nil {
		t.Fatal(j.err)
	}
	missing := 0
	for _, test := range j.tests {
		switch o, ok := got[test]; {
		case !ok:
			missing++
			t.Errorf("%s has not ended", test)
		case o.verdict != "PASS":
			t.Errorf("%s: %s\n%s", o.verdict, test, o.log)
		}
	}
	if missing > 0 {
		t.Logf("the output ends with:\n%s", j.output[max(0, len(j.output)-8<<10):])
	}
}

// wantNotPassed fails if an excluded test has passed.
func (ex exclusions) wantNotPassed(t *testing.T, j *job, got map[string]outcome) {
	t.Helper()
	if j.err != nil {
		t.Fatal(j.err)
	}
	for _, test := range j.tests {
		if got[test].verdict == "PASS" && !ex[test].unsteady {
			t.Errorf("%s passes: take it off the exclusions", test)
		}
	}
}
