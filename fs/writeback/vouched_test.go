package writeback

import (
	"math/rand/v2"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pailfs/pailfs/fs/writeback/internal/presence"
)

// newPartialFiles is newPartialWorld without content that travels inside records, and with a
// disk that has after the loss of power what was synced, and nothing else.
func newPartialFiles(t *testing.T) *world {
	t.Helper()
	return newPartialWorld(t, func(c *Config) { c.limits.inline = 3 })
}

// slowDisk makes the disk take a minute for what is staged of h, or no longer: whatever is lost
// within that, the committer has not brought there.
func (w *world) slowDisk(h *Handle, slow bool) {
	w.disk.Lock()
	defer w.disk.Unlock()
	if w.disk.slow = ""; slow {
		w.disk.slow = w.space.path(h.file.id)
	}
}

// powerOff takes the power when the disk has the journal, and no more than was synced of all else.
func (w *world) powerOff() {
	w.Helper()
	if err := w.space.journal.Sync(w.space.journal.End()); err != nil {
		w.Fatal(err)
	}
	w.disk.onlySynced = true
	w.crash(true)
}

// cutFast sets the size while the disk is not slow: who cuts a file waits for the disk.
func (w *world) cutFast(h *Handle, sizes ...int64) {
	w.Helper()
	w.disk.Lock()
	slow := w.disk.slow != ""
	w.disk.Unlock()
	w.slowDisk(h, false)
	for _, size := range sizes {
		w.truncate(h, size)
	}
	w.slowDisk(h, slow)
}

// TestWhatNoFsyncVouchesForOfALargeObjectIsTheObjects: the loss of power takes a close of which the
// journal knows. The chunks that were new then are read from the object, all that an fsync
// accepted is there, and nothing of the file is published before somebody has looked.
func TestWhatNoFsyncVouchesForOfALargeObjectIsTheObjects(t *testing.T) {
	old := filled(1000)
	synced := old[:50] + "<synced>" + old[58:]
	for name, c := range map[string]struct {
		// lost is what the disk does not have of it.
		lost func(w *world, h *Handle)
		name string
		want string
	}{
		"a new chunk": {
			func(w *world, h *Handle) { w.writeAt(h, "<lost>", 512) },
			"old", synced,
		},
		"closed twice": {
			func(w *world, h *Handle) {
				w.writeAt(h, "<lost>", 512)
				if err := h.Flush(w.Context()); err != nil {
					w.Fatal(err)
				}
				w.writeAt(h, strings.Repeat("#", 16), 704) // a whole chunk: nothing is waited for
			},
			"old", synced,
		},
		"a chunk that is there, too": {
			func(w *world, h *Handle) { w.writeAt(h, "<lost>", 50); w.writeAt(h, "<lost>", 512) },
			"old", synced,
		},
		"every chunk": {
			func(w *world, h *Handle) { w.writeAt(h, strings.Repeat("#", 1000), 0) },
			"old", synced,
		},
		"what was appended": {
			func(w *world, h *Handle) { w.writeAt(h, "<lost>", 512); w.writeAt(h, "<lost>", 1000) },
			"old", synced,
		},
		"after it was cut": {
			func(w *world, h *Handle) {
				w.cutFast(h, 300, 1000)
				w.writeAt(h, "<lost>", 100)
				w.writeAt(h, "<lost>", 512)
			},
			"old", synced[:300],
		},
		"after it was cut, and had every chunk": {
			func(w *world, h *Handle) {
				w.writeAt(h, strings.Repeat("#", 48), 0)
				w.writeAt(h, strings.Repeat("#", 936), 64)
				if err := h.Flush(w.Context()); err != nil {
					w.Fatal(err)
				}
				w.cutFast(h, 300, 1000)
				w.writeAt(h, "<lost>", 512)
			},
			"old", synced[:300],
		},
		"after it was opened anew and cut, and had every chunk": {
			func(w *world, h *Handle) {
				w.writeAt(h, strings.Repeat("#", 48), 0)
				w.writeAt(h, strings.Repeat("#", 936), 64)
				closeHandle(w.T, h)
				again := w.openToEdit("", "old")
				w.cutFast(again, 300, 1000)
				w.writeAt(again, "<lost>", 512)
				if err := again.Flush(w.Context()); err != nil {
					w.Fatal(err)
				}
			},
			"old", synced[:300],
		},
		"after it was renamed": {
			func(w *world, h *Handle) { w.rename("old", "new"); w.writeAt(h, "<lost>", 512) },
			"new", synced,
		},
	} {
		for _, compacted := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					w := newPartialFiles(t)
					w.store.put("p/old", old)
					w.deny("p/old", true)
					w.deny("p/new", true)
					h := w.openToEdit("", "old")
					w.writeAt(h, "<synced>", 50)
					if err := h.Sync(t.Context()); err != nil {
						t.Fatal(err)
					}
					w.slowDisk(h, true)
					c.lost(w, h)
					if err := h.Flush(t.Context()); err != nil {
						t.Fatal(err)
					}
					if compacted {
						if err := w.space.compact(); err != nil {
							t.Fatal(err)
						}
					}
					w.checkJournal()
					w.powerOff()
					for _, again := range []func(){func() {}, func() { w.crash(false) }, w.powerOff} {
						again()
						if got, err := w.read("", c.name); err != nil || got != c.want {
							t.Fatalf("read %q, %v, want %q", got, err, c.want)
						}
						if got := w.lostNow(); got != c.name {
							t.Errorf("%q is lost, want %q", got, c.name)
						}
						w.checkJournal()
						if err := w.space.compact(); err != nil {
							t.Fatal(err)
						}
						w.checkJournal()
					}
					w.deny("p/old", false)
					w.deny("p/new", false)
					w.waits(c.name)
					if got := w.inBucket()["p/old"]; got != old {
						t.Errorf("the bucket has %q before somebody has looked", got)
					}
					w.accepts(c.name)
					w.drain()
					w.holds("p/"+c.name, c.want)
					w.stop()
				})
			})
		}
	}
}

// TestWhatIsLeftOfALargeObjectIsTold: `pailfs staged` finds, before the next mount, the chunks that
// that will have.
func TestWhatIsLeftOfALargeObjectIsTold(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newPartialFiles(t)
		w.store.put("p/old", filled(1000))
		h := w.openToEdit("", "old")
		w.writeAt(h, "<synced>", 50)
		if err := h.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.slowDisk(h, true)
		w.writeAt(h, "<lost>", 512)
		if err := h.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := w.space.journal.Sync(w.space.journal.End()); err != nil {
			t.Fatal(err)
		}
		w.disk.onlySynced = true
		copied := filepath.Join(w.root, "copied")
		if _, err := w.copyDir(w.cfg.Dir, copied, true); err != nil {
			t.Fatal(err)
		}
		for boot, want := range map[string]presence.Extent{"boot-0": {Off: 512, Size: 16}, "later": {Off: 48, Size: 16}} {
			l, err := openLeftAs(copied, syscall.LOCK_SH, boot)
			if err != nil {
				t.Fatal(err)
			}
			found := false
			for _, s := range l.report.Pending {
				if s.Path == "old" && s.partial != nil {
					own := s.partial.Own(1000)
					found = s.Suspect == (boot == "later") && own[len(own)-1] == want
				}
			}
			if !found {
				t.Errorf("%s: %+v, want the last chunk of old at %+v", boot, l.report.Pending, want)
			}
			l.close()
		}
		w.stop()
	})
}

// TestALostLargeObjectThatIsEditedGoesBackAgain: nobody was promised anything of what was written
// since, but what is read is bytes that somebody wrote.
func TestALostLargeObjectThatIsEditedGoesBackAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newPartialFiles(t)
		old := filled(1000)
		w.store.put("p/old", old)
		h := w.openToEdit("", "old")
		w.writeAt(h, "<synced>", 50)
		if err := h.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.slowDisk(h, true)
		w.writeAt(h, "<lost>", 512)
		if err := h.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.powerOff()
		want := old[:50] + "<synced>" + old[58:]
		h = w.openToEdit("", "old")
		w.writeAt(h, "<more>", 512)
		if err := h.Flush(t.Context()); err == nil {
			t.Error("a close says that all is well with a lost file")
		}
		w.crash(false)
		if got, err := w.read("", "old"); err != nil || got != want[:512]+"<more>"+want[518:] {
			t.Errorf("after a kill read %q, %v", got, err)
		}
		w.powerOff()
		if got, err := w.read("", "old"); err != nil || got != want {
			t.Errorf("after the loss of power read %q, %v, want %q", got, err, want)
		}
		w.stop()
	})
}

// editedBytes are the bytes that a file may have at each place.
type editedBytes struct {
	now []byte
	// least is what is sure, may what was written since, by place; shortest and longest are the
	// sizes that it had since then.
	least             []byte
	may               [][]byte
	shortest, longest int
}

func (e *editedBytes) set(p []byte) {
	e.now = append([]byte(nil), p...)
	e.accept()
}

// accept notes that what it has now is sure.
func (e *editedBytes) accept() {
	e.least = append([]byte(nil), e.now...)
	e.may = make([][]byte, 2000)
	e.shortest, e.longest = len(e.now), len(e.now)
}

func (e *editedBytes) size(n int) {
	for len(e.now) < n {
		e.now = append(e.now, 0)
	}
	e.now = e.now[:n]
	e.shortest, e.longest = min(e.shortest, n), max(e.longest, n)
}

func (e *editedBytes) write(p string, off int) {
	if off+len(p) > len(e.now) {
		e.size(off + len(p))
	}
	copy(e.now[off:], p)
	for i := range len(p) {
		e.may[off+i] = append(e.may[off+i], p[i])
	}
}

// foreign returns the first place of a byte that nobody has written there, -1 if there is none, or
// the size if that is none that it had.
func (e *editedBytes) foreign(got string) int {
	if len(got) < e.shortest || len(got) > e.longest {
		return len(got)
	}
	for i := range len(got) {
		sure := i < len(e.least) && got[i] == e.least[i]
		if !sure && (got[i] != 0 || i < e.shortest) && strings.IndexByte(string(e.may[i]), got[i]) < 0 {
			return i
		}
	}
	return -1
}

// TestEveryByteOfALargeObjectWasWrittenThere, whatever is edited, synced, closed, published and
// compacted before the power is lost, and whatever of it the disk has.
func TestEveryByteOfALargeObjectWasWrittenThere(t *testing.T) {
	seeds, lost := uint64(60), 0
	if testing.Short() {
		seeds = 20
	}
	for seed := range seeds {
		bubble(t, func(t *testing.T) {
			w, rng := newPartialFiles(t), rand.New(rand.NewPCG(seed, 9))
			var e editedBytes
			e.set([]byte(filled(1000)))
			w.store.put("p/old", filled(1000))
			for range 3 {
				w.deny("p/old", rng.IntN(2) == 0)
				h := w.openToEdit("", "old")
				if rng.IntN(2) == 0 {
					w.slowDisk(h, true)
				}
				for range 1 + rng.IntN(8) {
					switch rng.IntN(12) {
					case 0, 1:
						w.slowDisk(h, false)
						if err := h.Sync(t.Context()); err != nil {
							t.Fatal(err)
						}
						e.accept()
						if rng.IntN(2) == 0 {
							w.slowDisk(h, true)
						}
					case 2:
						n := 250 + rng.IntN(900)
						w.cutFast(h, int64(n))
						e.size(n)
					case 3:
						if err := w.space.compact(); err != nil {
							t.Fatal(err)
						}
					case 4:
						time.Sleep(time.Duration(rng.IntN(400)) * time.Millisecond)
					case 5, 6, 7:
						closeHandle(t, h)
						h = w.openToEdit("", "old")
					default:
						p := strings.Repeat(string(rune('A'+rng.IntN(26))), 1+rng.IntN(100))
						off := rng.IntN(len(e.now))
						w.writeAt(h, p, int64(off))
						e.write(p, off)
					}
					w.checkJournal()
				}
				if rng.IntN(2) == 0 {
					w.finish(h)
				}
				w.powerOff()
				got, err := w.read("", "old")
				if err != nil {
					t.Fatalf("seed %d: %v", seed, err)
				}
				if i := e.foreign(got); i >= 0 {
					t.Fatalf("seed %d: nobody wrote what is at %d of %d: %q\nwant %q\nor    %q", seed, i, len(got), got, e.least, e.now)
				}
				e.set([]byte(got))
				if w.lostNow() != "" {
					lost++
					w.accepts("old")
				}
				w.deny("p/old", false)
				w.drain()
				w.holds("p/old", got)
			}
			w.stop()
		})
	}
	if lost == 0 {
		t.Error("no close was lost: that is not the case to be tested")
	}
}
