package writeback

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pailfs/pailfs/fs/writeback/internal/attrs"
	"github.com/pailfs/pailfs/manifest"
	"github.com/pailfs/pailfs/oss"
)

// TestObjectThatGetsOtherMetadataAndIsRenamedMeanwhileIsNotLost: an object that is copied onto
// itself in parts has another ETag then, and who renames it meanwhile means the same content.
func TestObjectThatGetsOtherMetadataAndIsRenamedMeanwhileIsNotLost(t *testing.T) {
	mode := uint32(0o600)
	for what, change := range map[string]SetAttr{"mode": {Mode: &mode}, "xattr": {XAttr: &SetXAttr{Name: "user.x", Value: []byte("1")}}} {
		t.Run(what, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newWorldWith(t, 1, func(c *Config) {
					c.Attrs = true
					l := usualLimits
					l.copy, l.copyPart = 150, 50
					c.limits = &l
				})
				const n = 150
				for i := range n {
					w.store.store(fmt.Sprint("p/model", i), []byte(filled(400)), oss.PutOptions{Meta: map[string]string{"color": "red"}}, "")
				}
				for i := range n {
					if _, err := w.space.SetAttr(t.Context(), "", fmt.Sprint("model", i), change); err != nil {
						t.Fatal(err)
					}
					time.Sleep(time.Duration(5*i) * time.Millisecond)
					w.rename(fmt.Sprint("model", i), fmt.Sprint("moved", i))
				}
				w.checkJournal()
				w.drain()
				all := w.inBucket()
				for i := range n {
					key := fmt.Sprint("p/moved", i)
					if all[key] != filled(400) {
						t.Errorf("renamed after %d ms, %s has %d bytes, %s %d", 5*i, key, len(all[key]), fmt.Sprint("p/model", i), len(all[fmt.Sprint("p/model", i)]))
					}
					if meta := w.metaAt(key); meta["color"] != "red" {
						t.Errorf("renamed after %d ms, it has %q", 5*i, meta)
					}
				}
				w.stop()
			})
		})
	}
}

// TestMetadataOfOthersOutlivesARenamingDuringItsPublication: what else an object has.
func TestMetadataOfOthersOutlivesARenamingDuringItsPublication(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := worldOfXAttrs(t, func(*Config) {})
		const n = 150
		for i := range n {
			w.store.store(fmt.Sprint("p/o", i), []byte("of others"), oss.PutOptions{ContentType: "x/y", Meta: map[string]string{"color": "red"}}, "")
		}
		for i := range n {
			w.write("", fmt.Sprint("o", i), "edited")
			time.Sleep(time.Duration(5*i) * time.Millisecond)
			w.rename(fmt.Sprint("o", i), fmt.Sprint("m", i))
		}
		w.drain()
		for i := range n {
			if meta := w.metaAt(fmt.Sprint("p/m", i)); meta["color"] != "red" {
				t.Errorf("renamed after %d ms, it has %q", 5*i, meta)
			}
		}
		w.stop()
	})
}

// TestExtendedAttributesLeaveRoomForTheOthers: what setxattr has accepted fits when the file
// is given a mode and an owner, too.
func TestExtendedAttributesLeaveRoomForTheOthers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := worldOfXAttrs(t, func(*Config) {})
		for size := 5 << 10; ; size++ {
			if _, err := w.space.SetAttr(t.Context(), "", "plain", SetAttr{XAttr: &SetXAttr{Name: "user.ours", Value: make([]byte, size)}}); err != nil {
				break
			}
		}
		mode, owner := uint32(0o600), ^uint32(0)-1
		if _, err := w.space.SetAttr(t.Context(), "", "plain", SetAttr{Mode: &mode, UID: &owner, GID: &owner}); err != nil {
			t.Fatal(err)
		}
		w.drain()
		size := 0
		for name, value := range w.metaAt("p/plain") {
			size += len("x-oss-meta-") + len(name) + len(value)
		}
		if size > attrs.MaxSize || size < attrs.MaxSize-200 {
			t.Errorf("the metadata has %d bytes", size)
		}
		w.stop()
	})
}

// TestExtendedAttributesThatOthersChangedStay: another mount changes them, by a copy that leaves
// content and ETag as they are, and this one remembers what they were.
func TestExtendedAttributesThatOthersChangedStay(t *testing.T) {
	for _, give := range []bool{false, true} {
		t.Run(fmt.Sprint("given one: ", give), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := worldOfXAttrs(t, func(*Config) {})
				w.wantXAttrsShown("theirs", "user.theirs") // remembers it
				w.store.store("p/theirs", []byte("of others"), oss.PutOptions{Meta: map[string]string{"xattr": `{"user.later":"b25l"}`}}, "")
				time.Sleep(10 * time.Minute)
				if give {
					w.setXAttr("", "theirs", "user.ours", "1")
				} else {
					w.write("", "theirs", "edited")
				}
				w.drain()
				if got := w.metaAt("p/theirs")["xattr"]; !strings.Contains(got, "user.later") || give && !strings.Contains(got, "user.ours") {
					t.Errorf("the object has %q", got)
				}
				w.stop()
			})
		})
	}
}

func (w *world) wantXAttrsShown(base, name string) {
	w.Helper()
	e, _, err := w.space.Lookup(w.Context(), "", base)
	if err != nil || e.Attr == nil {
		w.Fatal(e, err)
	}
}

// TestMetadataOfAnObjectInPartsIsAskedForAgain: another version of the same parts has the same
// ETag, and what is remembered is that of the one before.
func TestMetadataOfAnObjectInPartsIsAskedForAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorldWith(t, 1, func(c *Config) {
			c.Attrs = true
			l := usualLimits
			l.copy, l.copyPart = 150, 50
			c.limits = &l
		})
		w.store.put("p/model", filled(400))
		for _, value := range []string{"one", "two"} {
			w.setXAttr("", "model", "user.x", value)
			w.drain()
			time.Sleep(10 * time.Minute)
			e, _, err := w.space.Lookup(t.Context(), "", "model")
			if err != nil || e.File != nil {
				t.Fatal(e, err)
			}
			if got := byName(manifest.XAttrs(e.Attr))["user.x"]; got != value {
				t.Errorf("it has %q, want %q", got, value)
			}
		}
		w.stop()
	})
}
