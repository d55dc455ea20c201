package writeback

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/pailfs/pailfs/fs/writeback/internal/attrs"
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
	mode := attrs.Attrs{Mode: 0o640, UID: 1000, GID: 1 << 31, Mtime: -1, Set: true}
	for _, r := range []state.Record{ // those that one is made of
		&state.MadeDir{At: at, Time: -1, Exists: true}, &state.SetDirAttr{At: at, Attr: mode, Time: 1 << 62},
		&state.Opened{File: 7, At: at, Attr: mode}, &state.SetXAttr{File: 7, Value: strings.Repeat("v", 1000), Known: true},
		&state.Renamed{File: 1 << 60, To: at, Time: -1}, &state.PutOff{Key: at.Key, Time: -1}, &state.RemovedDir{At: at},
	} {
		for range 200 {
			m.add(r)
		}
	}
	if got := int64(len(state.AppendBody(nil, &m.group))); got > m.size+16 {
		t.Errorf("the body has %d bytes, counted were %d", got, m.size)
	}
}
