package writeback

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
	"testing"
	"time"
)

// A file that could not be recorded is not there, and nobody has it open.
func TestFailedCreationLeavesNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, 1)
		w.write("", "a", "content")
		w.drain()
		w.unwritable(syscall.ENOSPC)
		if _, err := w.space.Create(t.Context(), "", "x", CreateOptions{}); err == nil {
			t.Fatal("a file was made without a record")
		}
		w.unwritable(nil)
		if _, err := w.read("", "x"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("reading x: %v, want %v", err, fs.ErrNotExist)
		}
		w.write("", "x", "ours")
		w.drain()
		time.Sleep(10 * time.Minute)
		if got := w.inBucket()["p/x"]; got != "ours" {
			t.Errorf("the bucket holds %q", got)
		}
		staged, err := os.ReadDir(w.cfg.Dir + "/" + stagedDir)
		if err != nil || len(staged) != 0 {
			t.Errorf("%d staged files are left, %v", len(staged), err)
		}
		w.checkJournal()
		w.stop()
	})
}
