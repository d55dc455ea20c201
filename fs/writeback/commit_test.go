package writeback

import (
	"errors"
	"testing"
)

// What fsync has promised needs the name of the staged file as well as its bytes.
func TestSyncBringsTheNameOfAStagedFileToTheDisk(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorldWith(t, 1, func(c *Config) {
			l := usualLimits
			l.inline = 3
			c.limits = &l
		})
		d := w.disk
		h, err := w.space.Create(t.Context(), "", "a", CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := h.WriteAt(t.Context(), []byte("content"), 0); err != nil {
			t.Fatal(err)
		}
		d.Lock()
		d.failDir = errors.New("no descriptor is left")
		d.Unlock()
		if err := h.Sync(t.Context()); err == nil {
			t.Error("fsync succeeded without the name")
		}
		d.Lock()
		d.failDir = nil
		d.Unlock()
		if err := h.Sync(t.Context()); err != nil {
			t.Errorf("fsync a moment later: %v", err)
		}
		d.Lock()
		named := d.names[w.space.path(h.File().id)]
		d.Unlock()
		if !named {
			t.Error("the name of the staged file is not on the disk")
		}
		h.Release()
		w.drain()
		if got := w.inBucket()["p/a"]; got != "content" {
			t.Errorf("the bucket holds %q", got)
		}
		w.stop()
	})
}
