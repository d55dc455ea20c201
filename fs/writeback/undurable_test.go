package writeback

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/pailfs/pailfs/fs/writeback/internal/journal"
)

// TestWhatIsClosedOrRenamedIsNotDurableBeforeTheJournalHasIt: the disk has the bytes, and the
// journal, which was brought to it for somebody else when the file was closed, does not say so.
func TestWhatIsClosedOrRenamedIsNotDurableBeforeTheJournalHasIt(t *testing.T) {
	for name, do := range map[string]func(w *world){
		"closed": func(w *world) {
			w.stopCommits()
			closeHandle(w.T, w.create("a", "content"))
		},
		"closed, and the journal has that": func(w *world) {
			w.stopCommits()
			closeHandle(w.T, w.create("a", "content"))
			if err := w.space.Sync(w.Context()); err != nil {
				w.Fatal(err)
			}
		},
		"closed, and small": func(w *world) {
			w.stopCommits()
			closeHandle(w.T, w.create("a", "ab"))
		},
		"renamed there and back": func(w *world) {
			closeHandle(w.T, w.create("a", "content"))
			w.drain()
			time.Sleep(time.Minute) // the cache takes it
			w.stopCommits()
			for _, names := range [][2]string{{"a", "b"}, {"b", "a"}} {
				if _, err := w.space.Rename(w.Context(), "", names[0], "", names[1], 0); err != nil {
					w.Fatal(err)
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := worldOfFiles(t, 1)
				do(w)
				if n := w.space.Status().NotDurable; n != 1 {
					t.Errorf("status counts %d files that are not durable when the call returned, want 1", n)
				}
				looked := false
				syncing := func(tell func(f *os.File)) {
					w.disk.Lock()
					defer w.disk.Unlock()
					w.disk.syncing = tell
				}
				syncing(func(f *os.File) {
					if filepath.Base(f.Name()) != journal.Name {
						return
					}
					looked = true
					if n := w.space.Status().NotDurable; n != 1 {
						t.Errorf("status counts %d files that are not durable while the journal is brought to the disk, want 1", n)
					}
				})
				if err := w.space.commitAll(); err != nil {
					t.Fatal(err)
				}
				if !looked {
					t.Error("the journal was not brought to the disk")
				}
				if n := w.space.Status().NotDurable; n != 0 {
					t.Errorf("status counts %d files that are not durable at the end, want none", n)
				}
				syncing(nil)
				w.stop()
			})
		})
	}
}

// stopCommits ends the loops of the space, so that nothing is brought to the disk by itself.
func (w *world) stopCommits() {
	w.Helper()
	w.cancel()
	<-w.ended
}
