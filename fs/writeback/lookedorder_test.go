package writeback

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// A program may open yet what was removed or replaced, for which its object stays for a moment.
// What comes after that, elsewhere too, does not appear before it.
func TestWhatMayBeOpenedYetKeepsTheOrder(t *testing.T) {
	for name, c := range map[string]struct {
		change func(w *world)
		want   []string
	}{
		"removed":  {func(w *world) { w.unlink("", "latest") }, []string{"latest", "step/a"}},
		"replaced": {func(w *world) { w.write("", "new", "step-600"); w.rename("new", "latest") }, []string{"latest: step-600", "step/a"}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newWorld(t, 1)
				w.store.put("p/latest", "step-500")
				w.store.put("p/step/a", "content")
				var got []string
				w.store.Lock()
				w.store.gone = func(key string, _ []byte) { got = append(got, key[len("p/"):]) }
				w.store.seen = func(key string, content []byte) {
					if key == "p/latest" {
						got = append(got, "latest: "+string(content))
					}
				}
				w.store.Unlock()
				release := w.space.HoldBackUnlessDraining("p/latest")
				c.change(w)
				time.Sleep(time.Second / 2)
				w.unlink("step", "a")
				time.Sleep(5 * time.Second)
				if w.inBucket()["p/latest"] != "step-500" {
					t.Error("latest did not stay")
				}
				release()
				time.Sleep(time.Minute)
				w.store.Lock()
				if d := cmp.Diff(c.want, got); d != "" {
					t.Error(d)
				}
				w.store.Unlock()
				w.drain()
				w.stop()
			})
		})
	}
}

func (w *world) unlink(dir, base string) {
	w.Helper()
	if err := w.space.Unlink(w.Context(), dir, base); err != nil {
		w.Fatal(err)
	}
}
