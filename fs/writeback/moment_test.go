package writeback

import (
	"fmt"
	"os"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// grown is a file whose beginning says how long it is, as formats with a header do.
func grown(length int) string {
	return fmt.Sprintf("%08d", length) + filled(length)[8:]
}

// checkMoments reports every object that says another length than it has.
func (w *world) checkMoments() *atomic.Int64 {
	var seen atomic.Int64
	w.store.Lock()
	defer w.store.Unlock()
	w.store.seen = func(key string, content []byte) {
		seen.Add(1)
		if string(content) != grown(len(content)) {
			w.Errorf("%s shows %d bytes that begin with %.8q", key, len(content), content)
		}
	}
	return &seen
}

// TestOpenFileThatGrewIsPublishedAsItIs: what was synced is not published with its old
// length and what came after it.
func TestOpenFileThatGrewIsPublishedAsItIs(t *testing.T) {
	for name, size := range map[string]int{"small": 60, "large": 160} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newPartsWorld(t, func(*Config) {})
				seen := w.checkMoments()
				h := w.startWriting("", "model", grown(size))
				if err := h.Sync(t.Context()); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Second)
				// At once, so that it is no log.
				w.passThrough(h, grown(size+20), 0)
				time.Sleep(2 * openWait)
				w.holds("p/model", grown(size+20))
				if seen.Load() != 1 {
					t.Errorf("%d versions appeared, want one", seen.Load())
				}
				w.crash(false)
				w.holds("p/model", grown(size+20))
				w.drain()
				w.holds("p/model", grown(size+20))
				w.stop()
			})
		})
	}
}

// TestOpenFileThatGrowsAlwaysIsPublishedNowAndThen: one that is no log, by its name.
func TestOpenFileThatGrowsAlwaysIsPublishedNowAndThen(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newPartsWorld(t, func(c *Config) { c.limits.small = 1 << 20 })
		seen := w.checkMoments()
		h := w.startWriting("", "model.part", grown(60))
		if err := h.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
		file, err := os.OpenFile(h.OSFile().Name(), os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		size := 60
		for began := time.Now(); time.Since(began) < 2*openWait; time.Sleep(30 * time.Millisecond) {
			synctest.Wait() // nothing is read while it is half written
			size++
			if _, err := file.WriteAt([]byte(grown(size)), 0); err != nil {
				t.Fatal(err)
			}
		}
		if err := file.Close(); err != nil {
			t.Fatal(err)
		}
		if seen.Load() == 0 {
			t.Error("nothing was published")
		}
		w.finish(h)
		w.drain()
		w.holds("p/model.part", grown(size))
		w.stop()
	})
}
