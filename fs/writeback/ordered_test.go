package writeback

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestOrderedNamesFollowTheNames changes names at random and compares the order with one
// that is made anew.
func TestOrderedNamesFollowTheNames(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	st := newState()
	for round := range 2000 {
		base := fmt.Sprint("name", rng.IntN(40))
		switch rng.IntN(5) {
		case 0:
			st.dropName("dir", base)
		case 1:
			st.setName("dir", base, name{Kind: nameGone, Key: "dir/" + base})
		case 2:
			st.setName("dir", base, name{Kind: nameDirectory, Key: "dir/" + base + "/"})
		default:
			st.setName("dir", base, name{Kind: nameFile, File: fileID(round), Key: "dir/" + base})
		}
		after := fmt.Sprint("dir/name", rng.IntN(40))
		var got, want []orderedName
		st.ordered.after("dir", after, st.Names["dir"], func(base string, n name) bool {
			got = append(got, orderedName{base, n})
			return true
		})
		for base, n := range st.Names["dir"] {
			if n.Kind != nameGone && n.Key > after {
				want = append(want, orderedName{base, n})
			}
		}
		slices.SortFunc(want, func(a, b orderedName) int {
			if a.less(b) {
				return -1
			}
			return 1
		})
		if !slices.Equal(got, want) {
			t.Fatalf("round %d: %v, want %v", round, got, want)
		}
	}
}

// TestListingLooksAtNoMoreThanItGives: of its own names a listing looks at those that it
// gives, wherever it goes on.
func TestListingLooksAtNoMoreThanItGives(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, 1)
		if err := w.space.Mkdir(t.Context(), "", "dir", SetAttr{}); err != nil {
			t.Fatal(err)
		}
		for i := range 300 {
			w.write("dir", fmt.Sprintf("name%03d", i), "")
		}
		looked := 0
		cursor := ""
		for i := range 300 {
			key, below, _ := parseCursor(cursor)
			w.space.mu.Lock()
			looked += len(w.space.merge("dir", key, below, basePage{end: true}, 2))
			w.space.mu.Unlock()
			entries, _, err := w.space.ReadDir(t.Context(), "dir", cursor, 1)
			if err != nil || len(entries) != 1 || entries[0].Name != fmt.Sprintf("name%03d", i) {
				t.Fatalf("entry %d: %v, %v", i, entries, err)
			}
			cursor = entries[0].Cursor
		}
		if looked > 2*300 {
			t.Errorf("%d entries were looked at to give 2 at each of 300 positions", looked)
		}
	})
}
