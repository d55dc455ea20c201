package writeback

import (
	"fmt"
	"testing"
	"time"
)

// TestRemovedTreeIsGoneSoon: whoever removes a thousand files does not wait for a thousand
// pairs of requests one after another.
func TestRemovedTreeIsGoneSoon(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const dirs, files = 10, 50
		w := newWorld(t, 1)
		for i := range dirs * files {
			w.store.put(fmt.Sprintf("p/tree/%d/%d", i%dirs, i), "content")
		}
		began := time.Now()
		for d := range dirs {
			dir := fmt.Sprintf("tree/%d", d)
			for i := d; i < dirs*files; i += dirs {
				if err := w.space.Unlink(t.Context(), dir, fmt.Sprint(i)); err != nil {
					t.Fatal(err)
				}
			}
			if err := w.space.Rmdir(t.Context(), "tree", fmt.Sprint(d)); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.space.Rmdir(t.Context(), "", "tree"); err != nil {
			t.Fatal(err)
		}
		removed := time.Now()
		w.drain()
		// A request takes 20 ms in the mean, and each removal two of them.
		took := time.Since(removed)
		t.Logf("%d removals, made in %v, were published in %v", dirs*files, removed.Sub(began), took)
		if took > 2*time.Second {
			t.Error("want two seconds at most")
		}
		if got := w.inBucket(); len(got) > 0 {
			t.Errorf("%d objects are left", len(got))
		}
		w.stop()
	})
}
