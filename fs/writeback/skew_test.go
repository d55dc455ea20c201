package writeback

import (
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/pailfs/pailfs/manifest"
)

// The time of a small upload is that of the answer. However far its clock is from the
// one of objects: what was made here is known by its bytes.
func TestOwnObjectsAreKnownUnderAnotherTime(t *testing.T) {
	one := strings.Repeat("one", leastBase/2)
	for name, c := range map[string]struct {
		change func(w *world)
		want   map[string]string
	}{
		"written again": {func(w *world) { w.write("", "a", "two") }, map[string]string{"p/a": "two"}},
		"replaced": {func(w *world) {
			w.write("", "b", "two")
			w.rename("b", "a")
		}, map[string]string{"p/a": "two"}},
		"renamed": {func(w *world) { w.rename("a", "b") }, map[string]string{"p/b": one}},
		"removed": {func(w *world) {
			if err := w.space.Unlink(w.Context(), "", "a"); err != nil {
				w.Fatal(err)
			}
		}, map[string]string{}},
		"given a mode": {giveMode, map[string]string{"p/a": one}},
	} {
		for _, skew := range []time.Duration{61 * time.Second, time.Hour, -time.Hour} {
			t.Run(name+" "+skew.String(), func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					w := newWorldWith(t, 1, func(c *Config) { c.Attrs = true })
					w.store.skew = skew
					w.write("", "a", one)
					w.drain()
					c.change(w)
					w.drain()
					time.Sleep(time.Minute)
					if got := w.inBucket(); !maps.Equal(got, c.want) {
						t.Errorf("the bucket holds %.30q, want %.30q", got, c.want)
					}
					if got := w.space.Status().Conflicts; len(got) > 0 {
						t.Errorf("conflicts: %v", got)
					}
					w.stop()
				})
			})
		}
	}
}

func giveMode(w *world) {
	w.Helper()
	mode := uint32(0o600)
	if _, err := w.space.SetAttr(w.Context(), "", "a", SetAttr{Mode: &mode}); err != nil {
		w.Fatal(err)
	}
}

func (w *world) rename(from, to string) {
	w.Helper()
	if _, err := w.space.Rename(w.Context(), "", from, "", to, 0); err != nil {
		w.Fatal(err)
	}
}

// What happens before a listing has shown the object costs no upload: it is copied.
func TestOwnObjectsAreCopiedUnderAnotherTime(t *testing.T) {
	for name, c := range map[string]struct {
		change func(w *world)
		key    string
	}{
		"renamed":      {func(w *world) { w.rename("a", "b") }, "p/b"},
		"given a mode": {giveMode, "p/a"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newWorldWith(t, 1, func(c *Config) { c.Attrs = true })
				w.store.skew = time.Hour
				tree := &deafTree{Live: w.base}
				w.space.base = tree
				content := strings.Repeat("one", leastBase/2)
				w.write("", "a", content)
				// The name stays ours, published or not.
				tree.deaf.Store(true)
				w.drain()
				time.Sleep(7 * time.Second)
				tree.deaf.Store(false)
				if obj, staged := w.content(t, "a"); staged || obj.ModTime.Before(time.Now()) {
					t.Fatalf("a is %v, staged: %v; that is not the case to be tested", obj, staged)
				}
				sent := w.store.sent
				c.change(w)
				w.drain()
				if got, want := w.inBucket(), map[string]string{c.key: content}; !maps.Equal(got, want) {
					t.Errorf("the bucket holds %.30q, want %.30q", got, want)
				}
				if w.store.sent != sent {
					t.Error("what the bucket has was sent again")
				}
				w.stop()
			})
		})
	}
}

// A symbolic link, which listings show as a file, stays one.
func TestOwnLinksAreKnownUnderAnotherTime(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, 1)
		w.store.skew = time.Hour
		if _, err := w.space.Symlink(t.Context(), "", "link", "target", CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		w.drain()
		time.Sleep(time.Minute)
		if e, _, err := w.space.Lookup(t.Context(), "", "link"); err != nil || e.Kind != manifest.Symlink {
			t.Errorf("the link is %v, %v", e.Kind, err)
		}
		w.stop()
	})
}

// Other bytes at the key are somebody else's, also if they are named as ours.
func TestOtherBytesUnderTheSameTagAreAConflict(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, 1)
		w.write("", "a", "one")
		w.drain()
		w.store.Lock()
		o := w.store.objects["p/a"]
		o.content, o.CRC64 = []byte("eno"), o.CRC64+1
		w.store.objects["p/a"] = o
		w.store.Unlock()
		w.write("", "a", "two")
		w.drain()
		if got := w.inBucket(); got["p/a"] != "eno" || len(got) != 2 {
			t.Errorf("the bucket holds %q, want both contents", got)
		}
		w.stop()
	})
}
