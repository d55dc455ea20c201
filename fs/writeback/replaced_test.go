package writeback

import (
	"testing"
	"time"
)

// A limit of the order, see DESIGN.md: a shard that is opened to be written anew before it
// was published is unfinished until it is closed, and holds back nothing.
func TestShardThatIsBeingWrittenAnewLetsLatestGoFirst(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, 1)
		if err := w.space.Mkdir(t.Context(), "", "d"); err != nil {
			t.Fatal(err)
		}
		w.write("d", "s.bin", "one")
		h, err := w.space.Open(t.Context(), "d", "s.bin", OpenOptions{Write: true, Truncate: true})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		w.write("", "latest", "d/s.bin")
		for range 60 {
			if _, err := h.WriteAt(t.Context(), []byte("two"), 0); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		w.holds("p/latest", "d/s.bin")
		w.holds("p/d/s.bin", "")
		w.finish(h)
		w.drain()
		w.holds("p/d/s.bin", "two")
		w.stop()
	})
}
