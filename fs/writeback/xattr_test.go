package writeback

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pailfs/pailfs/manifest"
	"github.com/pailfs/pailfs/oss"
)

// worldOfXAttrs has objects of others: p/theirs and p/dir/theirs with one attribute and
// other metadata, p/plain without any.
func worldOfXAttrs(t *testing.T, change func(*Config)) *world {
	t.Helper()
	w := newWorldWith(t, 1, func(c *Config) {
		c.Attrs = true
		change(c)
	})
	for _, key := range []string{"p/theirs", "p/dir/theirs"} {
		w.store.store(key, []byte("of others"), oss.PutOptions{ContentType: "x/y", Meta: map[string]string{"color": "red", "xattr": `{"user.theirs":"b25l"}`}}, "")
	}
	w.store.put("p/plain", "content")
	return w
}

// setXAttr sets an extended attribute of a file.
func (w *world) setXAttr(dir, base, name, value string) {
	w.Helper()
	if _, err := w.space.SetAttr(w.Context(), dir, base, SetAttr{XAttr: &SetXAttr{Name: name, Value: []byte(value)}}); err != nil {
		w.Fatalf("set %s of %s/%s: %v", name, dir, base, err)
	}
}

// xattrsOf returns the extended attributes that a file has on the mount.
func (w *world) xattrsOf(dir, base string) map[string]string {
	w.Helper()
	e, _, err := w.space.Lookup(w.Context(), dir, base)
	if err != nil {
		w.Fatal(err)
	}
	text := ""
	if e.File != nil {
		text, _ = e.File.XAttrs()
	} else {
		text = w.metaAt(e.Object.Key)["xattr"]
	}
	return byName(text)
}

func byName(text string) map[string]string {
	all := make(map[string]string)
	for _, name := range XAttrNames(text) {
		value, _ := XAttrValue(text, name)
		all[name] = string(value)
	}
	return all
}

func (w *world) metaAt(key string) map[string]string {
	w.store.Lock()
	defer w.store.Unlock()
	return maps.Clone(w.store.objects[key].Meta)
}

func (w *world) wantXAttrs(dir, base, when string, want map[string]string) {
	w.Helper()
	if got := w.xattrsOf(dir, base); !maps.Equal(got, want) {
		w.Errorf("%s %s/%s has %q, want %q", when, dir, base, got, want)
	}
}

// What a file is given outlives kill -9, compaction, renaming and rewriting, and is in the
// bucket beside what its object had.
func TestExtendedAttributesOutliveEverything(t *testing.T) {
	for _, compacted := range []bool{false, true} {
		t.Run(fmt.Sprint("compacted: ", compacted), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := worldOfXAttrs(t, func(*Config) {})
				again := func() {
					t.Helper()
					w.checkJournal()
					if compacted {
						if err := w.space.compact(); err != nil {
							t.Fatal(err)
						}
						w.checkJournal()
					}
					w.crash(false)
				}
				w.write("", "new", "content")
				for _, base := range []string{"new", "theirs", "plain"} {
					w.setXAttr("", base, "user.ours", "two")
				}
				w.setXAttr("dir", "theirs", "user.theirs", "three")
				both := map[string]string{"user.theirs": "one", "user.ours": "two"}
				ours := map[string]string{"user.ours": "two"}
				three := map[string]string{"user.theirs": "three"}
				again()
				w.wantXAttrs("", "new", "after a crash", ours)
				w.wantXAttrs("", "theirs", "after a crash", both)
				w.wantXAttrs("dir", "theirs", "after a crash", three)
				if _, err := w.space.Rename(t.Context(), "", "theirs", "", "moved", 0); err != nil {
					t.Fatal(err)
				}
				if _, err := w.space.Rename(t.Context(), "", "dir", "", "fresh", 0); err != nil {
					t.Fatal(err)
				}
				again()
				w.write("", "plain", "other content")
				w.drain()
				if compacted {
					again()
				}
				for key, want := range map[string]map[string]string{"p/new": ours, "p/plain": ours, "p/moved": both, "p/fresh/theirs": three} {
					meta := w.metaAt(key)
					if got := byName(meta["xattr"]); !maps.Equal(got, want) {
						t.Errorf("%s has %q, want %q", key, got, want)
					}
					if strings.HasSuffix(key, "new") || strings.HasSuffix(key, "plain") {
						continue
					}
					if meta["color"] != "red" || meta["mtime"] == "" {
						t.Errorf("%s has %q", key, meta)
					}
				}
				w.write("", "moved", "written again, after it was published and renamed")
				w.drain()
				if meta := w.metaAt("p/moved"); !maps.Equal(byName(meta["xattr"]), both) || meta["color"] != "red" {
					t.Errorf("written again it has %q, want %q", meta, both)
				}
				w.stop()
			})
		})
	}
}

// Nobody changes what nobody asked to change: it stays to the byte.
func TestExtendedAttributesStayAsOthersWroteThem(t *testing.T) {
	for _, theirs := range []string{`{"user.x":"eA"}`, "%7B%22user.x%22%3A%22eA%3D%3D%22%7D", "{ }", "not JSON %zz", "%7B%22user.x%22%3A7%7D"} {
		t.Run(theirs, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := worldOfXAttrs(t, func(*Config) {})
				for _, base := range []string{"a", "b", "c"} {
					w.store.store("p/"+base, []byte("of others"), oss.PutOptions{Meta: map[string]string{"xattr": theirs}}, "")
				}
				giveMode(w) // of a
				w.write("", "b", "other content")
				if _, err := w.space.Rename(t.Context(), "", "c", "", "d", 0); err != nil {
					t.Fatal(err)
				}
				w.drain()
				for _, key := range []string{"p/a", "p/b", "p/d"} {
					if got := w.metaAt(key)["xattr"]; got != theirs {
						t.Errorf("%s has %q, want %q", key, got, theirs)
					}
				}
				w.stop()
			})
		})
	}
}

// What else an object has goes along with a file that is edited while it is open, also when
// the object that it was made from is gone since.
func TestMetadataOfOthersOutlivesARenamingThatIsPublished(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := worldOfXAttrs(t, func(*Config) {})
		h, err := w.space.Open(t.Context(), "", "theirs", OpenOptions{Write: true})
		if err != nil {
			t.Fatal(err)
		}
		for i, text := range []string{"edited once", "edited again"} {
			if _, err := h.WriteAt(t.Context(), []byte(text), 0); err != nil {
				t.Fatal(err)
			}
			if err := h.Sync(t.Context()); err != nil {
				t.Fatal(err)
			}
			w.drain()
			if i == 0 {
				w.rename("theirs", "moved")
				w.drain()
				time.Sleep(time.Minute)
			}
		}
		w.setXAttr("", "moved", "user.ours", "two")
		h.Release()
		w.drain()
		meta := w.metaAt("p/moved")
		if want := map[string]string{"user.theirs": "one", "user.ours": "two"}; !maps.Equal(byName(meta["xattr"]), want) || meta["color"] != "red" {
			t.Errorf("the object has %q", meta)
		}
		if all := w.inBucket(); all["p/moved"] != "edited again" || all["p/theirs"] != "" {
			t.Errorf("the bucket has %q", all)
		}
		w.stop()
	})
}

// TestExtendedAttributesChangeWhileTheFileIsUploaded: the metadata of an upload is fixed when
// it begins.
func TestExtendedAttributesChangeWhileTheFileIsUploaded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newPartsWorld(t, func(c *Config) { c.Attrs = true })
		for i := range 30 {
			name := fmt.Sprint("model", i)
			w.write("", name, filled(400))
			time.Sleep(time.Duration(20*i) * time.Millisecond)
			w.setXAttr("", name, "user.step", fmt.Sprint(i))
		}
		w.drain()
		for i := range 30 {
			if got := byName(w.metaAt(fmt.Sprint("p/model", i))["xattr"]); got["user.step"] != fmt.Sprint(i) {
				t.Errorf("changed %d ms after the close, it has %q", 20*i, got)
			}
		}
		w.stop()
	})
}

// After fsync a file has its attributes, whatever becomes of the machine.
func TestExtendedAttributesOutliveTheLossOfPower(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := worldOfXAttrs(t, func(*Config) {})
		h, err := w.space.Create(t.Context(), "", "new", CreateOptions{Mode: 0o644})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := h.WriteAt(t.Context(), []byte(strings.Repeat("x", 1<<20)), 0); err != nil {
			t.Fatal(err)
		}
		if err := h.File().space.SetAttrFile(t.Context(), h.File(), SetAttr{XAttr: &SetXAttr{Name: "user.ours", Value: []byte("1")}}); err != nil {
			t.Fatal(err)
		}
		if err := h.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
		o, err := w.space.Open(t.Context(), "", "theirs", OpenOptions{Write: true})
		if err != nil {
			t.Fatal(err)
		}
		w.setXAttr("", "theirs", "user.ours", "2")
		if err := o.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.disk.onlySynced = true
		w.crash(true)
		w.wantXAttrs("", "new", "after the loss of power", map[string]string{"user.ours": "1"})
		w.wantXAttrs("", "theirs", "after the loss of power", map[string]string{"user.ours": "2", "user.theirs": "one"})
		w.drain()
		if got := byName(w.metaAt("p/new")["xattr"]); got["user.ours"] != "1" {
			t.Errorf("the object has %q", got)
		}
		w.stop()
	})
}

// A journal of an older version says nothing of what an object had: a change asks.
func TestExtendedAttributesThatTheJournalDoesNotTell(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := worldOfXAttrs(t, func(*Config) {})
		mode := uint32(0o600)
		f, err := w.space.SetAttr(t.Context(), "", "theirs", SetAttr{Mode: &mode})
		if err != nil {
			t.Fatal(err)
		}
		w.space.mu.Lock()
		w.space.mu.Files[f.id].XAttrs = nil
		w.space.mu.Unlock()
		w.setXAttr("", "theirs", "user.ours", "two")
		w.drain()
		want := map[string]string{"user.theirs": "one", "user.ours": "two"}
		if got := byName(w.metaAt("p/theirs")["xattr"]); !maps.Equal(got, want) {
			t.Errorf("the object has %q, want %q", got, want)
		}
		w.stop()
	})
}

// Metadata that is full takes no more, whoever filled it, but gives room back.
func TestExtendedAttributesFitIntoMetadata(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := worldOfXAttrs(t, func(*Config) {})
		w.store.store("p/full", nil, oss.PutOptions{Meta: map[string]string{"color": strings.Repeat("x", 7<<10), "xattr": `{"user.theirs":"b25l"}`}}, "")
		w.write("", "new", "content")
		set := func(base string, size int) error {
			_, err := w.space.SetAttr(t.Context(), "", base, SetAttr{XAttr: &SetXAttr{Name: "user.ours", Value: make([]byte, size)}})
			return err
		}
		if err := set("full", 1<<10); !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("beside the metadata of others: %v", err)
		}
		largest := 0
		for size := 1; set("new", size) == nil; size++ {
			largest = size
		}
		if largest < 5<<10 || largest > 6<<10 {
			t.Errorf("the largest value has %d bytes", largest)
		}
		if err := set("new", 65<<10); !errors.Is(err, syscall.E2BIG) {
			t.Errorf("a value of 65 KiB: %v", err)
		}
		if _, err := w.space.SetAttr(t.Context(), "", "full", SetAttr{XAttr: &SetXAttr{Name: "user.theirs", Remove: true}}); err != nil {
			t.Errorf("removing one: %v", err)
		}
		w.drain()
		if got := w.metaAt("p/full"); got["xattr"] != "" || len(got["color"]) != 7<<10 {
			t.Errorf("the object has %d of metadata", len(got))
		}
		if note := manifest.EncodeAttr(manifest.AttrOf(w.metaAt("p/new"))); len(note) > 8<<10 {
			t.Errorf("a cache does not remember the largest: %d bytes", len(note))
		}
		w.stop()
	})
}

// A renamed object whose change the loss of power took has what it had.
func TestRenamedObjectThatLostItsChangeKeepsItsExtendedAttributes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := worldOfXAttrs(t, func(c *Config) {
			l := usualLimits
			l.inline = 3
			c.limits = &l
		})
		w.store.deny("p/moved", true)
		w.rename("theirs", "moved")
		time.Sleep(time.Minute)
		h, err := w.space.Open(t.Context(), "", "moved", OpenOptions{Write: true})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := h.WriteAt(t.Context(), []byte("OF"), 0); err != nil {
			t.Fatal(err)
		}
		if err := h.Flush(t.Context()); !errors.Is(err, oss.ErrAccessDenied) {
			t.Fatal(err) // it tells of the copy
		}
		h.Release()
		w.losePower()
		one := map[string]string{"user.theirs": "one"}
		w.wantXAttrs("", "moved", "after the loss of power", one)
		w.checkJournal()
		w.store.deny("p/moved", false)
		time.Sleep(10 * time.Minute)
		w.drain()
		w.holds("p/moved", "of others")
		if got := byName(w.metaAt("p/moved")["xattr"]); !maps.Equal(got, one) {
			t.Errorf("the object has %q", got)
		}
		w.write("", "moved", "written again")
		w.drain()
		if got := byName(w.metaAt("p/moved")["xattr"]); !maps.Equal(got, one) {
			t.Errorf("written again it has %q", got)
		}
		w.stop()
	})
}
