package writeback

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

// lose lets the disk refuse what a file has at its fsync, and closes it.
func (w *world) lose(h *Handle) {
	w.Helper()
	below := w.space.disk
	w.space.disk = &onceFailing{disk: below, path: w.space.path(h.file.id)}
	if err := h.Sync(w.Context()); !errors.Is(err, syscall.EIO) {
		w.Fatalf("fsync: %v, want EIO", err)
	}
	w.space.disk = below
	if err := h.Flush(w.Context()); !errors.Is(err, syscall.EIO) {
		w.Fatalf("close: %v, want EIO", err)
	}
}

// accepts takes back what was lost at a path, and returns what that is.
func (w *world) accepts(path string) Remains {
	w.Helper()
	r, err := w.space.Remains(w.Context(), path)
	if err != nil {
		w.Fatal(err)
	}
	taken, err := w.space.Accept(w.Context(), path, r.Sum)
	if err != nil || taken != r {
		w.Fatalf("accepted %+v, %v, want %+v", taken, err, r)
	}
	return r
}

// lostNow is what status names.
func (w *world) lostNow() string { return strings.Join(w.space.Status().Suspects, " ") }

// TestALostFileWhoseBytesCanBeReadIsTakenBack when somebody asks for that, and not before; then
// it outlives the loss of power, and is published.
func TestALostFileWhoseBytesCanBeReadIsTakenBack(t *testing.T) {
	for name, c := range map[string]struct {
		world func(t *testing.T) *world
		open  func(w *world) *Handle
		want  string
	}{
		"new": {
			func(t *testing.T) *world { return worldOfFiles(t, 1) },
			func(w *world) *Handle { return w.create("a", filled(400)) },
			filled(400),
		},
		"small": {
			func(t *testing.T) *world { return newWorld(t, 1) },
			func(w *world) *Handle {
				h := w.create("a", strings.Repeat("x", 200<<10)) // too large for the journal
				w.truncate(h, 200<<10-1)
				return h
			},
			strings.Repeat("x", 200<<10-1),
		},
		"partial": {
			func(t *testing.T) *world { return newPartialWorld(t, func(*Config) {}) },
			func(w *world) *Handle {
				w.store.put("p/a", filled(400))
				h := w.openToEdit("", "a")
				w.writeAt(h, "<changed>", 50)
				return h
			},
			filled(50) + "<changed>" + filled(400)[59:],
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := c.world(t)
				h := c.open(w)
				w.lose(h)
				if _, err := w.space.Remains(t.Context(), "a"); !errors.Is(err, ErrStillOpen) {
					t.Errorf("remains of an open file: %v", err)
				}
				h.Release()
				time.Sleep(time.Hour)
				if got := w.lostNow(); got != "a" {
					t.Errorf("an hour later %q is lost, want a", got)
				}
				if _, err := w.space.Accept(t.Context(), "a", "0123456789abcdef"); !errors.Is(err, ErrLooksOtherwise) {
					t.Errorf("accepted what nobody has looked at: %v", err)
				}
				if got := w.lostNow(); got != "a" {
					t.Errorf("after that %q is lost, want a", got)
				}
				r := w.accepts("a")
				if r.Bytes != int64(len(c.want)) || r.Differs != 0 {
					t.Errorf("accepted %+v, want %d bytes", r, len(c.want))
				}
				if got := w.lostNow(); got != "" {
					t.Errorf("%q is lost still", got)
				}
				w.noErrno("a")
				w.disk.onlySynced = true
				w.crash(true)
				if got, err := w.read("", "a"); err != nil || got != c.want {
					t.Errorf("after the loss of power it has %d bytes, %v", len(got), err)
				}
				w.drain()
				w.holds("p/a", c.want)
				if _, err := w.space.Remains(t.Context(), "a"); !errors.Is(err, ErrNotLost) {
					t.Errorf("remains of what is not lost: %v", err)
				}
				w.stop()
			})
		})
	}
}

// TestALostFileStaysLostWhereItsCopyIsNotOnTheDisk: the disk refuses that, too, and a kill leaves
// half of it.
func TestALostFileStaysLostWhereItsCopyIsNotOnTheDisk(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := worldOfFiles(t, 1)
		h := w.create("a", filled(400))
		w.lose(h)
		h.Release()
		r, err := w.space.Remains(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		copied := w.space.path(h.file.id) + acceptEnding
		below := w.space.disk
		w.space.disk = &onceFailing{disk: below, path: copied}
		if _, err := w.space.Accept(t.Context(), "a", r.Sum); !errors.Is(err, syscall.EIO) {
			t.Errorf("accepted what the disk did not take: %v", err)
		}
		w.space.disk = below
		if _, err := os.Stat(copied); !errors.Is(err, fs.ErrNotExist) || w.lostNow() != "a" {
			t.Errorf("the copy is there: %v; lost are %q", err, w.lostNow())
		}
		if err := os.WriteFile(copied, []byte("half"), 0o600); err != nil {
			t.Fatal(err)
		}
		w.crash(false)
		copied = w.space.path(h.file.id) + acceptEnding
		if _, err := os.Stat(copied); !errors.Is(err, fs.ErrNotExist) || w.lostNow() != "a" {
			t.Errorf("after a kill the copy is there: %v; lost are %q", err, w.lostNow())
		}
		w.accepts("a")
		w.drain()
		w.holds("p/a", filled(400))
		w.stop()
	})
}

// TestALostFileThatWasUnlinkedIsLetGo when somebody asks for that.
func TestALostFileThatWasUnlinkedIsLetGo(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := worldOfFiles(t, 1)
		h := w.create("a", filled(400))
		w.lose(h)
		h.Release()
		shown, err := w.space.Remains(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		if err := w.space.Unlink(t.Context(), "", "a"); err != nil {
			t.Fatal(err)
		}
		if _, err := w.space.Accept(t.Context(), "a", shown.Sum); !errors.Is(err, ErrLooksOtherwise) {
			t.Errorf("accepted what has lost its name since it was shown: %v", err)
		}
		if got := w.lostNow(); got != "a" {
			t.Errorf("%q is lost, want a", got)
		}
		w.write("", "a", "another file")
		r := w.accepts("a")
		if r.Unlinked != 1 || r.Bytes != 400 || w.lostNow() != "" {
			t.Errorf("accepted %+v, lost are %q", r, w.lostNow())
		}
		w.drain()
		w.holds("p/a", "another file")
		if _, err := os.Stat(w.space.path(h.file.id)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("its bytes are there: %v", err)
		}
		w.stop()
	})
}

// TestWhatProgramsSeeOtherwiseThanTheDiskHasItIsTold.
func TestWhatProgramsSeeOtherwiseThanTheDiskHasItIsTold(t *testing.T) {
	c := newComparison(strings.NewReader("0123456789"))
	for _, b := range []struct {
		block string
		off   int64
	}{{"0123", 0}, {"4x6", 4}, {"7yy", 7}} {
		if err := c.compare([]byte(b.block), b.off); err != nil {
			t.Fatal(err)
		}
	}
	if c.differs != 3 || c.first != 5 {
		t.Errorf("%d bytes differ, from %d on, want 3 from 5 on", c.differs, c.first)
	}
	if err := c.compare([]byte("0"), 10); err == nil {
		t.Error("what programs see is shorter, and nobody is told")
	}
}
