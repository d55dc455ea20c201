package writeback

import (
	"fmt"
	"testing"
	"time"
)

// TestAttributesThatChangeDuringAnUploadArePublished: the metadata of an upload is
// fixed when it begins, and `tar` changes mode and time just after the close.
func TestAttributesThatChangeDuringAnUploadArePublished(t *testing.T) {
	for wait := time.Duration(0); wait < 600*time.Millisecond; wait += 20 * time.Millisecond {
		bubble(t, func(t *testing.T) {
			w := newPartsWorld(t, func(c *Config) { c.Attrs = true })
			w.write("", "blocker", "small")
			w.write("", "model", filled(400))
			time.Sleep(wait)
			mode, mtime := uint32(0o751), time.Unix(1234567890, 0)
			if _, err := w.space.SetAttr(t.Context(), "", "model", SetAttr{Mode: &mode}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Millisecond)
			if _, err := w.space.SetAttr(t.Context(), "", "model", SetAttr{Mtime: &mtime}); err != nil {
				t.Fatal(err)
			}
			w.drain()
			time.Sleep(time.Minute)
			w.store.Lock()
			meta, left := w.store.objects["p/model"].Meta, len(w.store.uploads)
			w.store.Unlock()
			if meta["mode"] != fmt.Sprint(0o100751) || meta["mtime"] != "1234567890" || left > 0 {
				t.Errorf("changed %v after the close: the object has %v, want mode %d and the time; %d uploads left", wait, meta, 0o100751, left)
			}
			w.stop()
		})
	}
}
