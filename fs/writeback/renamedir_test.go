package writeback

import (
	"errors"
	"fmt"
	"slices"
	"syscall"
	"testing"

	"github.com/pailfs/pailfs/fs/writeback/internal/state"
	"github.com/pailfs/pailfs/oss"
)

// A directory whose renaming does not fit into one record is not renamed, and the
// journal stays readable.
func TestRenamingOfTooLargeADirectoryIsRefused(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorldWith(t, 1, func(c *Config) {
			l := usualLimits
			l.record = 2000
			c.limits = &l
		})
		for i := range 3 {
			w.store.put(fmt.Sprintf("p/small/%d", i), "content")
		}
		for i := range 30 {
			w.store.put(fmt.Sprintf("p/large/%d", i), "content")
		}
		if _, err := w.space.Rename(t.Context(), "", "large", "", "new", 0); !errors.Is(err, syscall.EXDEV) {
			t.Errorf("renaming ended with %v, want %v", err, syscall.EXDEV)
		}
		if _, err := w.space.Rename(t.Context(), "", "small", "", "other", 0); err != nil {
			t.Errorf("renaming a small directory: %v", err)
		}
		if got, want := w.list(""), []string{"large", "other"}; !slices.Equal(got, want) {
			t.Errorf("names are %q, want %q", got, want)
		}
		w.drain()
		w.stop()
	})
}

// The size that a renaming is refused by is never less than that of its record.
func TestSizeOfARenamingIsABound(t *testing.T) {
	var m move
	at := state.Place{Dir: "d/e", Name: "name", Key: "p/d/e/name", Base: oss.Object{Key: "p/d/e/name", ETag: "etag", Size: 1 << 40}}
	for _, r := range []state.Record{
		&state.Opened{File: 7, At: at}, &state.Renamed{File: 1 << 60, To: at, Time: -1}, &state.Kept{Op: 300}, &state.Released{},
	} {
		for range 200 {
			m.add(r)
		}
	}
	if got := int64(len(state.AppendBody(nil, &m.group))); got > m.size+16 {
		t.Errorf("the body has %d bytes, counted were %d", got, m.size)
	}
}
