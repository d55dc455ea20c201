package moves

import (
	"fmt"
	"testing"
)

func TestAPathIsTouchedByRenamesOnItsWay(t *testing.T) {
	var m Moves
	before := m.Now()
	end := m.Begins("a/b", "x/y")
	during := m.Now()
	touched := func(since uint64, want bool, paths ...string) {
		t.Helper()
		for _, path := range paths {
			if m.Touched(path, since) != want {
				t.Errorf("%q since %d: %t", path, since, !want)
			}
		}
	}
	on, beside := []string{"a/b", "a/b/c/d", "x/y", "x/y/z"}, []string{"", "a", "x", "a/bc", "b", "a/c"}
	touched(before, true, on...)
	touched(before, false, beside...)
	touched(during, true, on...) // it may be seen before and after
	touched(during, false, beside...)
	end()
	touched(before, true, on...)
	touched(during, true, on...)
	touched(m.Now(), false, on...)
	touched(m.Now(), false, beside...)
	after := m.Now()
	m.Begins("x", "q")()
	touched(after, true, "x/y", "q/y")
	touched(after, false, "a/b")
}

// TestWhatIsForgottenCountsAsTouched: the number of paths that are remembered is bounded.
func TestWhatIsForgottenCountsAsTouched(t *testing.T) {
	var m Moves
	before := m.Now()
	for i := range most {
		m.Begins(fmt.Sprint("from/", i), fmt.Sprint("to/", i))()
		if len(m.mu.last) > most+1 {
			t.Fatalf("%d paths are remembered", len(m.mu.last))
		}
	}
	for since := range m.Now() {
		for _, path := range []string{"from/0", fmt.Sprint("to/", most-1)} {
			if since < 2 && !m.Touched(path, since) {
				t.Fatalf("%s since %d", path, since)
			}
		}
	}
	if !m.Touched("elsewhere", before) || m.Touched("elsewhere", m.Now()-2) {
		t.Error("it is not known how long paths are remembered")
	}
}
