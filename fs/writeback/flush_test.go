package writeback

import (
	"context"
	"testing"
	"time"
)

// deny makes every write of key fail for good, or ends that.
func (w *world) deny(key string, denied bool) {
	w.store.Lock()
	defer w.store.Unlock()
	w.store.denied[key] = denied
}

// slowly lets requests that write take longer.
func (w *world) slowly(d time.Duration) {
	w.store.Lock()
	defer w.store.Unlock()
	w.store.slow = d
}

// A flush begins when the credentials are mended: what an attempt from before comes to
// does not count.
func TestFlushDoesNotEndWithAFailureFromBefore(t *testing.T) {
	for name, below := range map[string]string{"of what failed": "", "of what waits behind it": "z"} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newWorld(t, 1)
				w.deny("p/d/a", true)
				w.slowly(30 * time.Second)
				if err := w.space.Mkdir(t.Context(), "", "d", SetAttr{}); err != nil {
					t.Fatal(err)
				}
				w.write("d", "a", "refused")
				time.Sleep(5 * time.Second)
				w.write("", "z", "waits")
				// The request is under way, and will be refused.
				w.deny("p/d/a", false)
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				if err := w.space.Flush(ctx, below); err != nil {
					t.Errorf("flush: %v", err)
				}
				if st := w.space.Status(); st.Failures == 0 {
					t.Error("nothing failed: that is not the case to be tested")
				}
				w.holds("p/d/a", "refused")
				w.stop()
			})
		})
	}
}

// What fails still is told by a flush that tried it itself.
func TestFlushTellsWhatFailsStill(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, 1)
		w.deny("p/a", true)
		w.write("", "a", "refused")
		time.Sleep(5 * time.Second)
		for range 2 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			if err := w.space.Flush(ctx, ""); err == nil || ctx.Err() != nil {
				t.Errorf("flush: %v, %v", err, ctx.Err())
			}
			cancel()
		}
		w.deny("p/a", false)
		w.drain()
		w.stop()
	})
}

// An fsync that waits for the bucket tries again before it tells what failed.
func TestSyncThroughDoesNotEndWithAFailureFromBefore(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorldWith(t, 1, func(c *Config) { c.Through = func(string) bool { return true } })
		w.deny("p/a", true)
		h, err := w.space.Create(t.Context(), "", "a", CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := h.WriteAt(t.Context(), []byte("content"), 0); err != nil {
			t.Fatal(err)
		}
		if err := h.Sync(t.Context()); err == nil {
			t.Error("fsync succeeded although nothing may be written")
		}
		w.deny("p/a", false)
		if err := h.Sync(t.Context()); err != nil {
			t.Errorf("fsync after the mending: %v", err)
		}
		w.holds("p/a", "content")
		w.finish(h)
		w.stop()
	})
}

// TestStatusTellsWhatFailsNow: an outage is told of while it lasts, and counted when it is over.
func TestStatusTellsWhatFailsNow(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, 1)
		outage := func(on bool) {
			w.store.Lock()
			w.store.deaf = on
			w.store.Unlock()
		}
		w.store.put("p/a", "old")
		w.write("", "a", "content")
		outage(true)
		time.Sleep(time.Minute)
		st := w.space.Status()
		if st.Failures == 0 || st.RetryingCount != 1 || len(st.Retrying) != 1 || st.FailingCount != 0 {
			t.Fatalf("status in the outage: %+v", st)
		}
		if e := st.Retrying[0]; e.Path != "a" || e.Error == "" || e.State != "retrying" {
			t.Errorf("what is tried again: %+v", e)
		}
		outage(false)
		w.drain()
		if after := w.space.Status(); after.Failures < st.Failures || after.RetryingCount != 0 || after.Retrying != nil {
			t.Errorf("status after the outage: %+v", after)
		}
		w.stop()
	})
}
