package writeback

import (
	"strings"
	"testing"
	"time"
)

// A file is deleted and made anew under its name while somebody else changes the
// object: the deletion is given up, the new file is not.
func TestFileMadeInPlaceOfADeletedOneSurvivesAConflict(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, 1)
		w.store.put("p/x", "old")
		if err := w.space.Unlink(t.Context(), "", "x"); err != nil {
			t.Fatal(err)
		}
		w.store.put("p/x", "theirs")
		h, err := w.space.Create(t.Context(), "", "x", CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if got := w.space.Status().Conflicts; len(got) != 1 {
			t.Fatalf("conflicts are %v: that is not the case to be tested", got)
		}
		if e, _, err := w.space.Lookup(t.Context(), "", "x"); err != nil || e.File != h.File() {
			t.Errorf("x is %v, %v, want the new file", e, err)
		}
		if _, err := h.WriteAt(t.Context(), []byte("ours"), 0); err != nil {
			t.Fatal(err)
		}
		if err := h.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		h.Release()
		w.drain()
		time.Sleep(10 * time.Minute)
		if got := w.inBucket(); got["p/x"] != "theirs" || len(got) != 2 {
			t.Errorf("the bucket holds %q, want theirs at p/x and ours beside it", got)
		}
		for key, content := range w.inBucket() {
			if strings.HasPrefix(key, "p/x.conflict-") && content != "ours" {
				t.Errorf("%s holds %q", key, content)
			}
		}
		if got, err := w.read("", "x"); err != nil || got != "theirs" {
			t.Errorf("x holds %q, %v", got, err)
		}
		w.stop()
	})
}

// The same, but the new file is never committed, and then the daemon is killed.
func TestKillAfterTheConflictOfADeletion(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, 1)
		w.store.put("p/x", "old")
		if err := w.space.Unlink(t.Context(), "", "x"); err != nil {
			t.Fatal(err)
		}
		w.store.put("p/x", "theirs")
		if _, err := w.space.Create(t.Context(), "", "x", CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		w.crash(false)
		w.drain()
		if got, err := w.read("", "x"); err != nil || got != "theirs" {
			t.Errorf("x holds %q, %v", got, err)
		}
		w.stop()
	})
}

// A directory in place of a deleted file outlives the conflict as well.
func TestDirectoryInPlaceOfADeletedFileSurvivesAConflict(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, 1)
		w.store.put("p/x", "old")
		if err := w.space.Unlink(t.Context(), "", "x"); err != nil {
			t.Fatal(err)
		}
		w.store.put("p/x", "theirs")
		if err := w.space.Mkdir(t.Context(), "", "x", SetAttr{}); err != nil {
			t.Fatal(err)
		}
		w.write("x", "y", "below")
		w.drain()
		if got, err := w.read("x", "y"); err != nil || got != "below" {
			t.Errorf("x/y holds %q, %v", got, err)
		}
		if got := w.inBucket(); got["p/x"] != "theirs" || got["p/x/y"] != "below" {
			t.Errorf("the bucket holds %q", got)
		}
		w.checkJournal()
		w.stop()
	})
}
