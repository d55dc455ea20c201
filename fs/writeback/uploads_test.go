package writeback

import (
	"os"
	"testing"
	"testing/synctest"
	"time"
)

// The answers to requests for an upload are lost for an hour, and nobody can look for
// what has begun: that is one thing to remember for each key, and all of it is found
// and aborted afterwards.
func TestUploadsWhoseAnswersAreLostAreAborted(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newPartsWorld(t, func(*Config) {})
		w.write("", "a", filled(400))
		w.store.Lock()
		w.store.faults, w.store.deaf = 1, true
		w.store.Unlock()
		time.Sleep(time.Hour)
		w.store.Lock()
		begun := len(w.store.uploads)
		w.store.faults, w.store.deaf = 0, false
		w.store.Unlock()
		if begun < 2 {
			t.Fatalf("%d uploads have begun: that is not the case to be tested", begun)
		}
		w.space.mu.Lock()
		remembered := len(w.space.mu.Uploads)
		w.space.mu.Unlock()
		if remembered != 1 {
			t.Errorf("%d uploads are remembered of one key", remembered)
		}
		w.crash(false)
		w.drain()
		w.holds("p/a", filled(400))
		w.nothingLeft()
		w.stop()
	})
}

// nothingLeft checks that nothing is remembered of what is published.
func (w *world) nothingLeft() {
	w.Helper()
	time.Sleep(10 * time.Minute)
	synctest.Wait()
	w.store.Lock()
	uploads := len(w.store.uploads)
	w.store.Unlock()
	if uploads > 0 {
		w.Errorf("%d uploads are left", uploads)
	}
	if staged, err := os.ReadDir(w.cfg.Dir + "/staged"); err != nil || len(staged) > 0 {
		w.Errorf("%d staged files are left, %v", len(staged), err)
	}
	w.space.mu.Lock()
	defer w.space.mu.Unlock()
	if n := len(w.space.mu.Ops) + len(w.space.mu.Files) + len(w.space.mu.Uploads); n > 0 {
		w.Errorf("%d things are remembered: %v %v %v", n, w.space.mu.Ops, w.space.mu.Files, w.space.mu.Uploads)
	}
}
