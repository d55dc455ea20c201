package writeback

import (
	"fmt"
	"testing"
)

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
