package writeback

import (
	"errors"
	"testing"
	"time"
)

// A time that a program gave to a file stays when the file is renamed, also where the object that it was
// has no mode: whenever the renaming comes, be it when the cache has just taken the staged file.
func TestATimeThatWasSetStaysWithARenamedFileWithoutMode(t *testing.T) {
	for wait := range 40 {
		bubble(t, func(t *testing.T) {
			w := newWorldWith(t, 1, func(c *Config) { c.Attrs = true })
			w.cache.forgetful = 0
			w.store.put("p/a", "object")
			h, err := w.space.Open(t.Context(), "", "a", OpenOptions{Write: true, Truncate: true})
			if err != nil {
				t.Fatal(err)
			}
			w.writeAt(h, "content", 0)
			if err := errors.Join(h.Flush(t.Context())); err != nil {
				t.Fatal(err)
			}
			h.Release()
			at := time.Unix(1_000_000_000, 0)
			if _, err := w.space.SetAttr(t.Context(), "", "a", SetAttr{Mtime: &at}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Duration(wait) * 50 * time.Millisecond)
			w.move("", "a", "b")
			time.Sleep(time.Duration(wait) * 50 * time.Millisecond)
			w.move("", "b", "c")
			w.drain()
			if got := w.metaAt("p/c")["mtime"]; got != "1000000000" {
				t.Errorf("after %v ms: the object has the time %q, want 1000000000", 50*wait, got)
			}
			w.stop()
		})
	}
}
