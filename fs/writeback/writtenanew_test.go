package writeback

import (
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

// anew is a file that is published, and how it comes to be written anew.
type anew struct {
	world func(t *testing.T) *world
	// prepare makes what is published, opened is the file, where somebody has it open still.
	prepare func(w *world) (opened *Handle)
}

// publishedInParts are the ways in which a file is sent in parts.
func publishedInParts() map[string]anew {
	parts := func(t *testing.T) *world { return newPartsWorld(t, func(c *Config) { c.Attrs = true }) }
	partial := func(t *testing.T) *world { return newPartialWorld(t, func(*Config) {}) }
	edited := func(w *world, edit func(h *Handle)) {
		w.store.put("p/a", filled(400))
		h := w.openToEdit("", "a")
		edit(h)
		w.finish(h)
	}
	return map[string]anew{
		"whole":       {parts, func(w *world) *Handle { w.write("", "a", filled(300)); return nil }},
		"appended to": {parts, func(w *world) *Handle { edited(w, func(h *Handle) { w.writeAt(h, filled(300), 400) }); return nil }},
		"edited":      {parts, func(w *world) *Handle { edited(w, func(h *Handle) { w.writeAt(h, "<changed>", 50) }); return nil }},
		"partial":     {partial, func(w *world) *Handle { edited(w, func(h *Handle) { w.writeAt(h, filled(100), 50) }); return nil }},
		"partial and appended to": {partial, func(w *world) *Handle {
			edited(w, func(h *Handle) { w.writeAt(h, filled(300), 400) })
			return nil
		}},
		"synced and open": {parts, func(w *world) *Handle {
			h, err := w.space.Create(w.Context(), "", "a", CreateOptions{})
			if err != nil {
				w.Fatal(err)
			}
			if err := h.Truncate(w.Context(), 300); err != nil { // a hole, so that nothing is sent early
				w.Fatal(err)
			}
			w.writeAt(h, filled(100), 200)
			if err := h.Sync(w.Context()); err != nil {
				w.Fatal(err)
			}
			return h
		}},
	}
}

// TestAFileThatIsWrittenAnewWhilePublishedIsNoFailure: it is emptied, so that a part of it ends
// too soon, and has its size again when that is told.
func TestAFileThatIsWrittenAnewWhilePublishedIsNoFailure(t *testing.T) {
	for name, c := range publishedInParts() {
		for _, renamed := range []bool{false, true} {
			if renamed {
				name += ", and renamed"
			}
			t.Run(name, func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					w := c.world(t)
					b := &cutting{fakeBucket: w.bucket}
					var again *Handle
					b.cut = func() {
						var err error
						if again, err = w.space.Open(t.Context(), "", "a", OpenOptions{Write: true, Truncate: true}); err != nil {
							t.Error(err)
						}
					}
					b.after = func() {
						w.truncate(again, 1000)
						w.writeAt(again, "written anew", 500)
						if err := again.Flush(t.Context()); err != nil {
							t.Errorf("close: %v", err)
						}
						again.Release()
					}
					key := "p/a"
					if renamed {
						key = "p/b"
						after := b.after
						b.after = func() {
							after()
							if _, err := w.space.Rename(t.Context(), "", "a", "", "b", 0); err != nil {
								t.Error(err)
							}
						}
					}
					w.space.bucket = b
					h := c.prepare(w)
					w.noFailure(h, b)
					if h != nil {
						w.finish(h)
					}
					w.noErrno(strings.TrimPrefix(key, "p/"))
					w.drain()
					w.holds(key, strings.Repeat("\x00", 500)+"written anew"+strings.Repeat("\x00", 488))
					w.stop()
				})
			})
		}
	}
}

// noErrno fails unless close and fsync of a file have nothing to tell.
func (w *world) noErrno(base string) {
	w.Helper()
	h := w.openToEdit("", base)
	defer h.Release()
	if err := errors.Join(h.Sync(w.Context()), h.Flush(w.Context())); err != nil {
		w.Errorf("fsync and close: %v", err)
	}
}

// TestAFileThatIsCutWhileItsPartsAreSentEarlyIsSentOn: what is written after that does not
// wait as what follows a failure does.
func TestAFileThatIsCutWhileItsPartsAreSentEarlyIsSentOn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newPartsWorld(t, func(*Config) {})
		b := &cutting{fakeBucket: w.bucket}
		w.space.bucket = b
		h := w.create("a", "")
		b.cut = func() { w.truncate(h, 10) }
		b.after = func() { w.writeAt(h, filled(400), 0) }
		w.passThrough(h, filled(200), 0) // three seconds
		if parts, _ := w.inUploads(); len(parts["p/a"]) < 4 {
			t.Errorf("parts %v were sent", parts)
		}
		w.noFailure(h, b)
		w.finish(h)
		w.drain()
		w.holds("p/a", filled(400))
		w.stop()
	})
}

// damaging makes the staged file of a world shorter while a part is sent, as no program does.
func (w *world) damaging(h *Handle, size int64) *cutting {
	path := w.space.path(h.file.id)
	return &cutting{fakeBucket: w.bucket, cut: func() {
		if err := os.Truncate(path, size); err != nil {
			w.Error(err)
		}
	}}
}

// TestAStagedFileThatIsShorterThanWhatWasWrittenIsDamaged: it is not published, and its program
// is told until it is written anew.
func TestAStagedFileThatIsShorterThanWhatWasWrittenIsDamaged(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newPartsWorld(t, func(*Config) {})
		h := w.create("a", filled(300))
		b := w.damaging(h, 150)
		w.space.bucket = b
		w.finish(h)
		time.Sleep(time.Minute)
		if st := w.space.Status(); st.FailingCount != 1 || !strings.Contains(st.Failing[0].Error, "cache directory") {
			t.Errorf("status says %+v", st.Failing)
		}
		if len(w.inBucket()) > 0 {
			t.Errorf("the bucket has %q", w.inBucket())
		}
		h = w.openToEdit("", "a")
		if err := h.Flush(t.Context()); !errors.Is(err, syscall.EIO) {
			t.Errorf("close: %v, want EIO", err)
		}
		h.Release()
		w.write("", "a", filled(200))
		w.drain()
		w.holds("p/a", filled(200))
		w.stop()
	})
}

// TestACutOfAPartialFileKeepsItsLimitAcrossAKill: what was cut off is zeros when the file is
// extended, also where the cut met its publication, and nothing was committed since.
func TestACutOfAPartialFileKeepsItsLimitAcrossAKill(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newPartialWorld(t, func(*Config) {})
		w.store.put("p/a", filled(400))
		b := &cutting{fakeBucket: w.bucket}
		h := w.openToEdit("", "a")
		b.cut = func() { w.truncate(h, 100) }
		b.after = func() { w.truncate(h, 350) }
		w.space.bucket = b
		w.writeAt(h, "<changed>", 50)
		if err := h.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.noFailure(nil, b)
		w.crash(false)
		want := filled(50) + "<changed>" + filled(100)[59:] + strings.Repeat("\x00", 250)
		if got, err := w.read("", "a"); got != want || err != nil {
			t.Errorf("after the kill it has %q, %v", got, err)
		}
		w.drain()
		w.stop()
	})
}
