package fs

import (
	"context"
	"fmt"
	"testing"

	"github.com/pailfs/pailfs/fs/writeback"
	"github.com/pailfs/pailfs/manifest"
)

func TestAPathIsTouchedByRenamesOnItsWay(t *testing.T) {
	var m moves
	before := m.count.Load()
	end := m.begins("a/b", "x/y")
	during := m.count.Load()
	touched := func(since uint64, want bool, paths ...string) {
		t.Helper()
		for _, path := range paths {
			if m.touched(path, since) != want {
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
	touched(m.count.Load(), false, on...)
	touched(m.count.Load(), false, beside...)
	after := m.count.Load()
	m.begins("x", "q")()
	touched(after, true, "x/y", "q/y")
	touched(after, false, "a/b")
}

// TestWhatIsForgottenCountsAsTouched: the number of paths that are remembered is bounded.
func TestWhatIsForgottenCountsAsTouched(t *testing.T) {
	var m moves
	before := m.count.Load()
	for i := range movesMost {
		m.begins(fmt.Sprint("from/", i), fmt.Sprint("to/", i))()
		if len(m.mu.last) > movesMost+1 {
			t.Fatalf("%d paths are remembered", len(m.mu.last))
		}
	}
	for since := range m.count.Load() {
		for _, path := range []string{"from/0", fmt.Sprint("to/", movesMost-1)} {
			if since < 2 && !m.touched(path, since) {
				t.Fatalf("%s since %d", path, since)
			}
		}
	}
	if !m.touched("elsewhere", before) || m.touched("elsewhere", m.count.Load()-2) {
		t.Error("it is not known how long paths are remembered")
	}
}

// movingNames are names that somebody renames all the time.
type movingNames struct {
	view
	moves *moves
	// each is renamed at every lookup, and first at the first one.
	each, first string
	lookups     int
}

func (n *movingNames) Lookup(_ context.Context, dir, name string) (entry, manifest.Validity, error) {
	n.lookups++
	n.moves.begins(n.each, n.each+"2")()
	if n.lookups == 1 && n.first != "" {
		n.moves.begins(n.first, n.first+"2")()
	}
	return entry{Entry: manifest.Entry{Name: name}}, manifest.Validity{}, nil
}

func TestALookupIsRepeatedForRenamesOnItsWayAlone(t *testing.T) {
	for _, test := range []struct {
		first string
		want  int
	}{{"", 1}, {"dir", 2}, {"di", 1}, {"dir/sub/name", 2}, {"dir/sub/name/below", 1}, {"dir/sub/other", 1}} {
		f := &filesystem{space: &writeback.Space{}}
		names := &movingNames{moves: &f.moves, each: "elsewhere", first: test.first}
		f.names = names
		_, _, err := f.lookup(t.Context(), &inode{tree: newDirectory("dir/sub")}, "name")
		if err != nil || names.lookups != test.want {
			t.Errorf("with a rename of %q %d lookups, %v", test.first, names.lookups, err)
		}
	}
}
