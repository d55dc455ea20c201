package writeback

import (
	"context"
	"errors"
	"strings"
	"syscall"
	"testing"
	"time"
)

// spoil writes a file of which the disk loses what was written, and closes it.
func (w *world) spoil(base string) {
	w.Helper()
	h := w.create(base, "some of this is lost")
	w.disk.Lock()
	w.disk.fail = syscall.EIO
	w.disk.Unlock()
	if err := h.Sync(w.Context()); !errors.Is(err, syscall.EIO) {
		w.Fatalf("fsync: %v", err)
	}
	w.disk.Lock()
	w.disk.fail = nil
	w.disk.Unlock()
	h.Release()
}

// A file of which the disk lost a change is not published until it is written anew. A
// flush tells of it, and of what waits behind it, rather than wait for that too.
func TestFlushDoesNotWaitBehindAFileThatTheDiskLost(t *testing.T) {
	for _, restarted := range []bool{false, true} {
		bubble(t, func(t *testing.T) {
			w := worldOfFiles(t, 1)
			w.store.put("p/latest", "s0")
			w.spoil("shard")
			w.write("", "latest", "s1")
			if restarted {
				w.crash(false)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			for _, path := range []string{"", "latest"} {
				err := w.space.Flush(ctx, path)
				if err == nil || errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), `"shard": the disk lost`) {
					t.Errorf("flush of %q says %v", path, err)
				}
			}
			w.holds("p/latest", "s0")
			w.stop()
		})
	}
}

// A close that waits for the bucket does not wait for ever behind it either.
func TestCloseThatWaitsForTheBucketTellsOfWhatTheDiskLost(t *testing.T) {
	for _, restarted := range []bool{false, true} {
		bubble(t, func(t *testing.T) {
			w := newWorldWith(t, 1, func(c *Config) {
				l := usualLimits
				l.inline = 3
				c.limits = &l
				c.Through = func(path string) bool { return path == "_SUCCESS" }
			})
			w.spoil("shard")
			if restarted {
				w.crash(false)
			}
			time.Sleep(2 * time.Second) // within one it might overtake the shard
			h := w.create("_SUCCESS", "done")
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			if err := h.Flush(ctx); err == nil || !strings.Contains(err.Error(), `"shard": the disk lost`) {
				t.Errorf("close says %v", err)
			}
			h.Release()
			w.stop()
		})
	}
}
