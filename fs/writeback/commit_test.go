package writeback

import (
	"context"
	"errors"
	"os"
	"syscall"
	"testing"
	"time"
)

// A write that leaves size and time as they were, because the clock has not gone on
// since the last commit, is a change all the same.
func TestWriteAtTheSameTickIsNotMissed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, 1)
		h, err := w.space.Create(t.Context(), "", "a", CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		path := h.OSFile().Name()
		unseen := func(content string) {
			if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
			// The bubble's clock is far behind: any time of the disk's is as new as can be.
			if err := os.Chtimes(path, time.Time{}, time.Unix(2e9, 0)); err != nil {
				t.Fatal(err)
			}
		}
		unseen("first")
		for range 2 {
			if err := h.Sync(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		w.drain()
		unseen("other")
		if err := h.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		h.Release()
		w.drain()
		if got := w.inBucket()["p/a"]; got != "other" {
			t.Errorf("the bucket holds %q", got)
		}
		w.stop()
	})
}

// Where the journal's disk fails nothing more can be published, and whoever waits for
// that is told.
func TestFlushOverABrokenJournalEnds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, 1)
		w.write("", "a", "content")
		w.disk.Lock()
		w.disk.fail = syscall.EIO
		w.disk.Unlock()
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if err := w.space.Flush(ctx, ""); !errors.Is(err, syscall.EIO) {
			t.Errorf("flush ended with %v", err)
		}
		w.cancel()
		<-w.ended
		if err := w.space.Close(); !errors.Is(err, syscall.EIO) {
			t.Errorf("close ended with %v", err)
		}
		if err := w.base.Close(); err != nil {
			t.Fatal(err)
		}
	})
}
