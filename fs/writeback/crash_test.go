package writeback

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestKilledDaemonLosesNothingThatWasClosed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, 2)
		w.store.put("p/old", "before")
		w.write("", "a", "first")
		w.write("", "old", "after")
		h, err := w.space.Create(t.Context(), "", "open", CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := h.WriteAt(t.Context(), []byte("never closed"), 0); err != nil {
			t.Fatal(err)
		}
		w.crash(false)
		w.drain()
		want := map[string]string{"p/a": "first", "p/old": "after"}
		if diff := cmp.Diff(want, w.inBucket()); diff != "" {
			t.Errorf("bucket (-want +got):\n%s", diff)
		}
		w.stop()
	})
}

func TestLossOfPowerSparesWhatWasSynced(t *testing.T) {
	for seed := range uint64(20) {
		bubble(t, func(t *testing.T) {
			w := newWorldWith(t, seed, func(c *Config) {
				l := usualLimits
				l.inline = 10
				c.limits = &l
			})
			h, err := w.space.Create(t.Context(), "", "synced", CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := h.WriteAt(t.Context(), []byte("longer than a record takes"), 0); err != nil {
				t.Fatal(err)
			}
			if err := h.Sync(t.Context()); err != nil {
				t.Fatal(err)
			}
			h.Release()
			w.write("", "closed", "also longer than a record takes")
			w.crash(true)
			if got, err := w.read("", "synced"); err != nil || got != "longer than a record takes" {
				t.Errorf("synced holds %q, %v", got, err)
			}
			w.drain()
			got := w.inBucket()
			if got["p/synced"] != "longer than a record takes" {
				t.Errorf("published %q", got)
			}
			if c, ok := got["p/closed"]; ok && c != "also longer than a record takes" {
				t.Errorf("published %q of what was not synced", c)
			}
			w.stop()
		})
	}
}
