package writeback

import (
	"testing"
	"testing/synctest"
	"time"
)

// late lets requests that begin, or complete, an upload be carried out late, their answers
// lost, or ends that.
func (w *world) late(begin, end bool) {
	w.store.Lock()
	defer w.store.Unlock()
	w.store.lateBegin, w.store.lateEnd = begin, end
}

// A completion that was given up comes between the comparison of the key and what is put
// there next, or is removed.
func TestLateCompletionChangesNothing(t *testing.T) {
	for name, then := range map[string]string{"written anew": "newer", "removed": ""} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newPartsWorld(t, func(*Config) {})
				w.late(false, true)
				w.write("", "a", filled(400))
				time.Sleep(700 * time.Millisecond)
				synctest.Wait()
				w.store.Lock()
				late := len(w.store.late)
				w.store.Unlock()
				if late != 1 {
					t.Fatalf("%d completions are late: that is not the case to be tested", late)
				}
				w.late(false, false)
				if then != "" {
					w.write("", "a", then)
				} else if err := w.space.Unlink(t.Context(), "", "a"); err != nil {
					t.Fatal(err)
				}
				w.drain()
				if st := w.space.Status(); len(st.Conflicts) > 0 {
					t.Errorf("conflicts with nobody: %+v", st.Conflicts)
				}
				w.holds("p/a", then)
				w.nothingLeft()
				w.holds("p/a", then)
				w.stop()
			})
		})
	}
}

// A request for an upload that was given up begins one after it was looked for.
func TestLateUploadIsAborted(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newPartsWorld(t, func(*Config) {})
		w.late(true, false)
		w.write("", "a", filled(400))
		time.Sleep(700 * time.Millisecond)
		w.late(false, false)
		w.drain()
		w.holds("p/a", filled(400))
		time.Sleep(5 * time.Second)
		synctest.Wait()
		w.store.Lock()
		if n := len(w.store.late); n != 1 {
			t.Errorf("%d requests are late: that is not the case to be tested", n)
		}
		w.store.carryOut()
		if n := len(w.store.uploads); n != 1 {
			t.Errorf("%d uploads are there: that is not the case to be tested", n)
		}
		w.store.Unlock()
		w.nothingLeft()
		w.stop()
	})
}
