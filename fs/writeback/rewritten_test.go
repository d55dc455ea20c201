package writeback

import (
	"context"
	"testing"
	"time"
)

// anew closes a shard, opens it to be written anew before it is published, and then closes
// latest above it.
func (w *world) anew(open func() *Handle) *Handle {
	w.Helper()
	if err := w.space.Mkdir(w.Context(), "", "d", SetAttr{}); err != nil {
		w.Fatal(err)
	}
	release := w.space.HoldBack("p/d/s.bin")
	w.write("d", "s.bin", "one")
	h := open()
	release()
	time.Sleep(2 * time.Second)
	w.write("", "latest", "d/s.bin")
	return h
}

// truncating opens the shard to be written anew.
func (w *world) truncating() *Handle {
	w.Helper()
	h, err := w.space.Open(w.Context(), "d", "s.bin", OpenOptions{Write: true, Truncate: true})
	if err != nil {
		w.Fatal(err)
	}
	return h
}

// goOn writes to h once a second.
func (w *world) goOn(h *Handle, seconds int) {
	w.Helper()
	for range seconds {
		if _, err := h.WriteAt(w.Context(), []byte("two"), 0); err != nil {
			w.Fatal(err)
		}
		time.Sleep(time.Second)
	}
}

// A shard that is opened to be written anew before it was published is waited for until it
// is closed.
func TestShardThatIsWrittenAnewIsWaitedFor(t *testing.T) {
	for name, open := range map[string]func(w *world) *Handle{
		"alone": (*world).truncating,
		"synced before": func(w *world) *Handle {
			h, err := w.space.Open(w.Context(), "d", "s.bin", OpenOptions{Write: true})
			if err != nil {
				w.Fatal(err)
			}
			if err := h.Sync(w.Context()); err != nil {
				w.Fatal(err)
			}
			h.Release()
			return w.truncating()
		},
		// As a mount truncates it while somebody has it open to read.
		"truncated when open": func(w *world) *Handle {
			h, err := w.space.Open(w.Context(), "d", "s.bin", OpenOptions{Write: true})
			if err != nil {
				w.Fatal(err)
			}
			size := int64(0)
			if err := w.space.SetAttrFile(w.Context(), h.File(), SetAttr{Size: &size}); err != nil {
				w.Fatal(err)
			}
			return h
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newWorld(t, 1)
				w.watchOrder("p/d/s.bin", "p/latest")
				h := w.anew(func() *Handle { return open(w) })
				w.goOn(h, 90)
				w.holds("p/latest", "")
				w.holds("p/d/s.bin", "")
				w.finish(h)
				w.drain()
				w.holds("p/d/s.bin", "two")
				w.holds("p/latest", "d/s.bin")
				w.stop()
			})
		})
	}
}

// Who writes it anew for longer than ten minutes may never be done: that holds up nothing. It
// is a limit of the order, see DESIGN.md.
func TestShardThatIsWrittenAnewWithoutEndHoldsUpNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, 1)
		h := w.anew(w.truncating)
		w.goOn(h, int((rewriteWait + time.Minute).Seconds()))
		w.holds("p/latest", "d/s.bin")
		w.finish(h)
		w.drain()
		w.stop()
	})
}

// What waits for it may make the room that is needed to finish it.
func TestShardThatIsWrittenAnewHoldsUpNothingWhereRoomIsShort(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorldWith(t, 1, func(c *Config) { c.StagingSize = 1 << 20 })
		h := w.anew(w.truncating)
		w.goOn(h, 60)
		w.holds("p/latest", "")
		if _, err := h.WriteAt(t.Context(), make([]byte, 600<<10), 0); err != nil {
			t.Fatal(err)
		}
		w.goOn(h, 60)
		w.holds("p/latest", "d/s.bin")
		w.finish(h)
		w.drain()
		w.stop()
	})
}

// A program that flushes latest before it closes the shard does not wait for itself.
func TestFlushEndsWhileTheShardIsWrittenAnew(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, 1)
		h := w.anew(w.truncating)
		w.goOn(h, 1)
		w.flushesLatest()
		w.finish(h)
		w.drain()
		w.stop()
	})
}

// So it is where there is less of the shard than was closed, however long that lasts.
func TestFlushEndsWhileLittleOfTheShardIsWrittenAnew(t *testing.T) {
	for _, before := range []time.Duration{0, openWait, rewriteWait} {
		bubble(t, func(t *testing.T) {
			w := newWorld(t, 1)
			h := w.anew(w.truncating)
			time.Sleep(before)
			w.flushesLatest()
			w.holds("p/d/s.bin", "")
			w.goOn(h, 1)
			w.finish(h)
			w.drain()
			w.holds("p/d/s.bin", "two")
			w.stop()
		})
	}
}

// flushesLatest waits for latest, while the shard is open.
func (w *world) flushesLatest() {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), 2*openWait)
	defer cancel()
	if err := w.space.Flush(ctx, "latest"); err != nil {
		w.Error(err)
	}
	w.holds("p/latest", "d/s.bin")
}
