package writeback

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// newPartsWorld is a world in which parts have 40 bytes, the fourth to the sixth 80
// and so on, and files of more than 100 bytes go in parts.
func newPartsWorld(t *testing.T, change func(*Config)) *world {
	t.Helper()
	return newWorldWith(t, 1, func(c *Config) {
		l := usualLimits
		l.inline, l.small, l.part, l.growth, l.base = 30, 100, 40, 3, 50
		c.limits = &l
		change(c)
	})
}

// startWriting makes a file and writes to it as the kernel does in passthrough, and
// waits until something should have been sent. It leaves the file open.
func (w *world) startWriting(dir, base, content string) *Handle {
	w.Helper()
	h, err := w.space.Create(w.Context(), dir, base, CreateOptions{})
	if err != nil {
		w.Fatal(err)
	}
	w.passThrough(h, content, 0)
	return h
}

// passThrough writes to an open file unseen, and waits a while.
func (w *world) passThrough(h *Handle, content string, off int64) {
	w.Helper()
	file, err := os.OpenFile(h.OSFile().Name(), os.O_WRONLY, 0)
	if err == nil {
		_, err = file.WriteAt([]byte(content), off)
		err = errors.Join(err, file.Close())
	}
	if err != nil {
		w.Fatal(err)
	}
	time.Sleep(3 * time.Second)
	synctest.Wait()
}

func (w *world) finish(h *Handle) {
	w.Helper()
	if err := h.Flush(w.Context()); err != nil {
		w.Fatal(err)
	}
	h.Release()
}

// inUploads returns the numbers of the parts of all uploads by key, and what was
// sent so far.
func (w *world) inUploads() (parts map[string][]int, sent int64) {
	w.store.Lock()
	defer w.store.Unlock()
	parts = make(map[string][]int)
	for _, u := range w.store.uploads {
		parts[u.key] = slices.Sorted(maps.Keys(u.parts))
	}
	return parts, w.store.sent
}

func filled(n int) string { return strings.Repeat("0123456789abcdefghij!", n/21+1)[:n] }

// TestPartsAreSentWhileAFileGrows: and only those that changed since are sent again
// when it is closed. Nothing is visible before.
func TestPartsAreSentWhileAFileGrows(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newPartsWorld(t, func(*Config) {})
		h := w.startWriting("", "model", filled(150))
		if parts, _ := w.inUploads(); !slices.Equal(parts["p/model"], []int{1, 2, 3}) {
			t.Errorf("of 150 bytes there are parts %v, want 1 to 3", parts)
		}
		w.passThrough(h, filled(290)[150:], 150)
		// The third part again, which was sent.
		w.passThrough(h, "XYZ", 90)
		parts, before := w.inUploads()
		if !slices.Equal(parts["p/model"], []int{1, 2, 3, 4, 5}) || before != 3*40+2*80 {
			t.Errorf("of 290 bytes there are parts %v, %d bytes, want 1 to 5 and 280", parts, before)
		}
		if got := w.inBucket(); len(got) > 0 {
			t.Errorf("the bucket shows %q before the file was closed", got)
		}
		w.finish(h)
		w.drain()
		want := filled(290)
		want = want[:90] + "XYZ" + want[93:]
		if got := w.inBucket()["p/model"]; got != want {
			t.Errorf("the bucket has %q, want %q", got, want)
		}
		if parts, sent := w.inUploads(); len(parts) > 0 || sent-before != 40+10 {
			t.Errorf("%d bytes were sent after the close, want the changed part and the last one; uploads left: %v", sent-before, parts)
		}
		w.stop()
	})
}

// TestPartsWithHolesWait: a file that gets its size first has nothing to send yet.
func TestPartsWithHolesWait(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorldWith(t, 1, func(c *Config) {
			l := usualLimits
			l.small, l.part = 100<<10, 64<<10
			c.limits = &l
		})
		h := w.startWriting("", "array", "")
		if err := h.Truncate(t.Context(), 256<<10); err != nil {
			t.Fatal(err)
		}
		w.passThrough(h, strings.Repeat("x", 64<<10), 128<<10)
		if parts, _ := w.inUploads(); !slices.Equal(parts["p/array"], []int{3}) {
			t.Errorf("parts %v were sent, want the third, which has data", parts)
		}
		w.finish(h)
		w.drain()
		if got := w.inBucket()["p/array"]; len(got) != 256<<10 || strings.Trim(got[128<<10:192<<10], "x") != "" || strings.Trim(got[:128<<10], "\x00") != "" {
			t.Error("the bucket has other bytes than the file")
		}
		w.stop()
	})
}

// TestEarlyPartsOfNamesThatGoAreAborted: an upload is bound to its key.
func TestEarlyPartsOfNamesThatGoAreAborted(t *testing.T) {
	for what, do := range map[string]func(w *world) error{
		"unlink": func(w *world) error { return w.space.Unlink(w.Context(), "", "a") },
		"rename": func(w *world) error {
			_, err := w.space.Rename(w.Context(), "", "a", "", "b", 0)
			return err
		},
		"replace": func(w *world) error {
			w.write("", "c", "small")
			_, err := w.space.Rename(w.Context(), "", "c", "", "a", 0)
			return err
		},
		"kill": func(w *world) error {
			w.crash(false)
			return nil
		},
		"lose power": func(w *world) error {
			w.crash(true)
			return nil
		},
	} {
		t.Run(what, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newPartsWorld(t, func(*Config) {})
				h := w.startWriting("", "a", filled(200))
				if parts, _ := w.inUploads(); len(parts["p/a"]) == 0 {
					t.Fatal("nothing was sent")
				}
				runs := w.runs
				if err := do(w); err != nil {
					t.Fatal(err)
				}
				time.Sleep(30 * time.Second)
				synctest.Wait()
				if parts, _ := w.inUploads(); len(parts["p/a"]) > 0 {
					t.Errorf("parts %v of the old name are left", parts)
				}
				if w.runs == runs {
					w.finish(h)
				}
				w.drain()
				want := map[string]string{"rename": filled(200), "replace": "small"}[what]
				got := w.inBucket()
				if got["p/a"]+got["p/b"] != want {
					t.Errorf("the bucket has %q, want %q", got, want)
				}
				if parts, _ := w.inUploads(); len(parts) > 0 {
					t.Errorf("uploads are left: %v", parts)
				}
				w.stop()
			})
		})
	}
}

// TestEarlyPartsServeAFileWithAttributes: its mode is known when it is made, and the time
// of its last write is the object's own. Of a staged file that was copied to another
// directory nobody knows who has set its time: it is kept.
func TestEarlyPartsServeAFileWithAttributes(t *testing.T) {
	for name, moved := range map[string]bool{"stays": false, "moved": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newPartsWorld(t, func(c *Config) { c.Attrs = true })
				h := w.startWriting("", "model", filled(200))
				w.finish(h)
				_, before := w.inUploads()
				want := before
				if moved {
					w.crash(false)
					want += 200
				}
				w.drain()
				time.Sleep(time.Minute)
				if parts, sent := w.inUploads(); before != 200 || sent != want || len(parts) > 0 {
					t.Errorf("%d bytes were sent before and %d after the close, want 200 and %d; uploads left: %v", before, sent-before, want-before, parts)
				}
				w.store.Lock()
				got := w.store.objects["p/model"]
				w.store.Unlock()
				if _, timed := got.Meta["mtime"]; timed != moved || got.Meta["mode"] != fmt.Sprint(0o100000) || w.inBucket()["p/model"] != filled(200) {
					t.Errorf("the object has %v and %d bytes, want a mode, a time: %v, and 200 bytes", got.Meta, got.Size, moved)
				}
				w.stop()
			})
		})
	}
}

// TestAttributesThatAProgramSetsAreNotLostToEarlyParts: what was sent before cannot have
// them.
func TestAttributesThatAProgramSetsAreNotLostToEarlyParts(t *testing.T) {
	mode, mtime := uint32(0o751), time.Unix(1234567890, 0)
	xattr := &SetXAttr{Name: "user.step", Value: []byte("7")}
	for name, set := range map[string]SetAttr{
		"mode": {Mode: &mode}, "time": {Mtime: &mtime}, "both": {Mode: &mode, Mtime: &mtime}, "an extended one": {XAttr: xattr},
	} {
		for _, killed := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, killed %v", name, killed), func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					w := newPartsWorld(t, func(c *Config) { c.Attrs = true })
					h := w.startWriting("", "model", filled(200))
					if err := w.space.SetAttrFile(t.Context(), h.File(), set); err != nil {
						t.Fatal(err)
					}
					w.finish(h)
					if killed {
						w.crash(false)
					}
					w.drain()
					w.store.Lock()
					got := w.store.objects["p/model"]
					w.store.Unlock()
					if set.Mode != nil && got.Meta["mode"] != fmt.Sprint(0o100751) || set.Mtime != nil && got.Meta["mtime"] != "1234567890" || w.inBucket()["p/model"] != filled(200) {
						t.Errorf("the object has %v and %d bytes", got.Meta, got.Size)
					}
					if value, _ := XAttrValue(got.Meta["xattr"], "user.step"); set.XAttr != nil && string(value) != "7" {
						t.Errorf("the object has %v", got.Meta)
					}
					time.Sleep(time.Minute)
					if parts, _ := w.inUploads(); len(parts) > 0 {
						t.Errorf("uploads are left: %v", parts)
					}
					w.stop()
				})
			})
		}
	}
}

func TestTemporaryNamesAreNotSentEarly(t *testing.T) {
	for _, name := range []string{"a.tmp", ".a", "a.part", "step.tmp/a"} {
		bubble(t, func(t *testing.T) {
			w := newPartsWorld(t, func(*Config) {})
			dir, base := "", name
			if name == "step.tmp/a" {
				dir, base = "step.tmp", "a"
				if err := w.space.Mkdir(t.Context(), "", dir, SetAttr{}); err != nil {
					t.Fatal(err)
				}
			}
			h := w.startWriting(dir, base, filled(200))
			if parts, _ := w.inUploads(); len(parts) > 0 {
				t.Errorf("%s: parts %v were sent", name, parts)
			}
			w.finish(h)
			w.drain()
			if got := w.inBucket()["p/"+name]; got != filled(200) {
				t.Errorf("%s: the bucket has %q", name, got)
			}
			w.stop()
		})
	}
}

// TestKilledAfterCloseSendsOnlyWhatIsMissing: the parts that are there are compared
// with the staged file.
func TestKilledAfterCloseSendsOnlyWhatIsMissing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newPartsWorld(t, func(*Config) {})
		h := w.startWriting("", "model", filled(200))
		w.finish(h)
		_, before := w.inUploads()
		w.crash(false)
		w.drain()
		if got := w.inBucket()["p/model"]; got != filled(200) {
			t.Errorf("the bucket has %q", got)
		}
		// Parts of 40, 40, 40 and 80 bytes.
		if parts, sent := w.inUploads(); len(parts) > 0 || before < 200 || sent != before {
			t.Errorf("%d bytes were sent before and %d after the crash, want 200 and none; uploads left: %v", before, sent-before, parts)
		}
		w.stop()
	})
}

// TestEarlyPartsYieldToFastWriters: to programs that wait for the object store, too.
// A drain ends that.
func TestEarlyPartsYieldToFastWriters(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newPartsWorld(t, func(c *Config) { c.Busy = func() bool { return true } })
		h := w.startWriting("", "model", filled(200))
		if parts, _ := w.inUploads(); len(parts) > 0 {
			t.Errorf("parts %v were sent although programs wait", parts)
		}
		w.space.mu.Lock()
		st := w.space.mu.Files[h.File().ID()]
		slow, fast := w.space.earlyRoom(st, false), w.space.earlyRoom(st, true)
		w.space.mu.Unlock()
		if slow != earlyParts || fast != 0 {
			t.Errorf("room for %d parts beside slow writers and for %d beside fast ones, want %d and none", slow, fast, earlyParts)
		}
		w.space.SetDraining(true)
		time.Sleep(time.Second)
		synctest.Wait()
		if parts, _ := w.inUploads(); !slices.Equal(parts["p/model"], []int{1, 2, 3, 4}) {
			t.Errorf("a drain has sent parts %v, want all four", parts)
		}
		w.finish(h)
		w.drain()
		w.stop()
	})
}

// TestUploadsYieldToFastWriters: also those of files that are closed, unless somebody
// waits for them.
func TestUploadsYieldToFastWriters(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newPartsWorld(t, func(*Config) {})
		slots := func() (n int) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			for {
				release, err := w.space.partSlot(ctx)
				if err != nil {
					return n
				}
				defer release()
				n++
			}
		}
		if got := slots(); got != maxPartsInFlight {
			t.Errorf("%d parts in flight when nobody writes, want %d", got, maxPartsInFlight)
		}
		w.space.pacing.fast.Store(true)
		w.space.pacing.yielding.Store(true)
		if got := slots(); got != 0 {
			t.Errorf("%d parts in flight while programs write fast, want none", got)
		}
		w.space.pacing.yielding.Store(false)
		if got := slots(); got != fastParts {
			t.Errorf("%d parts in flight while programs have long written fast, want %d", got, fastParts)
		}
		w.space.pacing.yielding.Store(true)
		w.space.SetDraining(true)
		if got := slots(); got != maxPartsInFlight {
			t.Errorf("%d parts in flight in a drain, want %d", got, maxPartsInFlight)
		}
		w.stop()
	})
}

// TestSizeSetBesideAWriterIsForgotten: a file that nobody has open is not watched.
func TestSizeSetBesideAWriterIsForgotten(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newPartsWorld(t, func(*Config) {})
		watched := func() int {
			w.space.mu.Lock()
			defer w.space.mu.Unlock()
			return len(w.space.mu.writing)
		}
		h := w.startWriting("", "a", "hello")
		size := int64(3)
		if err := w.space.SetAttrFile(t.Context(), h.File(), SetAttr{Size: &size}); err != nil {
			t.Fatal(err)
		}
		if n := watched(); n != 1 {
			t.Errorf("%d files are watched while one is open", n)
		}
		w.finish(h)
		if n := watched(); n != 0 {
			t.Errorf("%d files are watched although nobody has one open", n)
		}
		w.drain()
		w.stop()
	})
}

// TestUploadsOfAWaitingFileDoNotPileUp: while something earlier fails, no version of a
// file leaves an upload with all its parts behind.
func TestUploadsOfAWaitingFileDoNotPileUp(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newPartsWorld(t, func(*Config) {})
		w.store.deny("p/d/x", true)
		if err := w.space.Mkdir(t.Context(), "", "d", SetAttr{}); err != nil {
			t.Fatal(err)
		}
		w.write("d", "x", "denied")
		time.Sleep(time.Minute)
		h := w.startWriting("d", "model", filled(400))
		w.finish(h)
		for i := range 10 {
			time.Sleep(time.Minute)
			h, err := w.space.Open(t.Context(), "d", "model", OpenOptions{Write: true, Truncate: true})
			if err != nil {
				t.Fatal(err)
			}
			w.passThrough(h, strings.Repeat(string(rune('a'+i)), 400), 0)
			w.finish(h)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		w.store.Lock()
		uploads, bytes := len(w.store.uploads), 0
		for _, u := range w.store.uploads {
			for _, p := range u.parts {
				bytes += len(p)
			}
		}
		w.store.Unlock()
		if uploads != 1 || bytes != 400 {
			t.Errorf("%d uploads with %d bytes are there for one file of 400 bytes", uploads, bytes)
		}
		w.store.deny("p/d/x", false)
		w.drain()
		if got := w.inBucket()["p/d/model"]; got != strings.Repeat("j", 400) {
			t.Errorf("the bucket has %.20q", got)
		}
		if parts, _ := w.inUploads(); len(parts) > 0 {
			t.Errorf("uploads are left: %v", parts)
		}
		w.stop()
	})
}
