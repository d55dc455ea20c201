package writeback

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pailfs/pailfs/oss"
)

// newPartialWorld returns a world in which objects of 200 bytes are not fetched when they
// are opened for writing, but in chunks of 16 bytes when those are needed.
func newPartialWorld(t *testing.T, change func(*Config)) *world {
	t.Helper()
	return newPartsWorld(t, func(c *Config) {
		c.limits.base, c.limits.copyPart, c.limits.whole, c.limits.chunk = 20, 300, 200, 16
		change(c)
	})
}

// openToEdit opens a file that exists for writing.
func (w *world) openToEdit(dir, base string) *Handle {
	w.Helper()
	h, err := w.space.Open(w.Context(), dir, base, OpenOptions{Write: true})
	if err != nil {
		w.Fatal(err)
	}
	return h
}

// writeAt writes through a handle.
func (w *world) writeAt(h *Handle, content string, off int64) {
	w.Helper()
	if n, err := h.WriteAt(w.Context(), []byte(content), off); err != nil || n != len(content) {
		w.Fatalf("write: %d of %d, %v", n, len(content), err)
	}
}

// truncate sets the size through a handle.
func (w *world) truncate(h *Handle, size int64) {
	w.Helper()
	if err := h.Truncate(w.Context(), size); err != nil {
		w.Fatal(err)
	}
}

// sentNow returns how much was sent so far.
func (w *world) sentNow() int64 {
	w.store.Lock()
	defer w.store.Unlock()
	return w.store.sent
}

// TestOfALargeObjectOnlyWhatIsNeededIsFetchedAndSent: chunks are of 16 bytes.
func TestOfALargeObjectOnlyWhatIsNeededIsFetchedAndSent(t *testing.T) {
	old := filled(1000)
	for name, c := range map[string]struct {
		edit          func(w *world, h *Handle)
		want          string
		fetched, sent int64
	}{
		"nothing": {func(*world, *Handle) {}, old, 0, 0},
		"a few bytes": {
			func(w *world, h *Handle) { w.writeAt(h, "<changed>", 50) },
			old[:50] + "<changed>" + old[59:], 16, 16,
		},
		"across two chunks": {
			func(w *world, h *Handle) { w.writeAt(h, "<changed>", 60) },
			old[:60] + "<changed>" + old[69:], 32, 32,
		},
		"whole chunks": {
			func(w *world, h *Handle) { w.writeAt(h, strings.Repeat("#", 48), 160) },
			old[:160] + strings.Repeat("#", 48) + old[208:], 0, 48,
		},
		"the last chunk": {
			func(w *world, h *Handle) { w.writeAt(h, "12345678", 992) },
			old[:992] + "12345678", 0, 8,
		},
		"appended": {
			func(w *world, h *Handle) { w.writeAt(h, "<more>", 1000) },
			old + "<more>", 0, 6,
		},
		"appended after a hole": {
			func(w *world, h *Handle) { w.writeAt(h, "<more>", 1010) },
			old + strings.Repeat("\x00", 10) + "<more>", 0, 16,
		},
		"cut": {
			func(w *world, h *Handle) { w.truncate(h, 130) },
			old[:130], 0, 0,
		},
		"cut and extended": {
			func(w *world, h *Handle) { w.truncate(h, 130); w.truncate(h, 300) },
			old[:130] + strings.Repeat("\x00", 170), 0, 170,
		},
		"cut, extended and written": {
			func(w *world, h *Handle) { w.truncate(h, 130); w.truncate(h, 300); w.writeAt(h, "<>", 140) },
			old[:130] + strings.Repeat("\x00", 10) + "<>" + strings.Repeat("\x00", 158), 0, 170,
		},
		"cut to nothing and written": {
			func(w *world, h *Handle) { w.truncate(h, 0); w.writeAt(h, "new", 0) },
			"new", 0, 3,
		},
		"a hole punched": {
			func(w *world, h *Handle) {
				if err := h.Allocate(w.Context(), 3, 100, 100); err != nil {
					w.Fatal(err)
				}
			},
			// Chunks from 96 and 192 on are changed in part.
			old[:100] + strings.Repeat("\x00", 100) + old[200:], 32, 112,
		},
		"all of it": {
			func(w *world, h *Handle) { w.writeAt(h, strings.ToUpper(old), 0) },
			strings.ToUpper(old), 0, 1000,
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newPartialWorld(t, func(*Config) {})
				w.store.put("p/old", old)
				h := w.openToEdit("", "old")
				if got := w.cache.fetched.Load(); got != 0 || !h.File().Partial() || h.OSFile() != nil {
					t.Fatalf("%d bytes are fetched at once", got)
				}
				c.edit(w, h)
				if got := w.cache.fetched.Load(); got != c.fetched {
					t.Errorf("%d bytes were fetched, want %d", got, c.fetched)
				}
				if got, err := w.read("", "old"); got != c.want || err != nil {
					t.Errorf("read %q, %v, want %q", got, err, c.want)
				}
				read := w.cache.fetched.Load()
				w.slowly(time.Second)
				w.finish(h)
				if st := w.space.Status(); st.DirtyBytes != c.sent {
					t.Errorf("status: %d bytes are not in the object store, want %d", st.DirtyBytes, c.sent)
				}
				w.checkJournal()
				w.drain()
				w.holds("p/old", c.want)
				if sent, fetched := w.sentNow(), w.cache.fetched.Load()-read; sent != c.sent || fetched != 0 {
					t.Errorf("to publish it %d bytes were sent and %d fetched, want %d and none", sent, fetched, c.sent)
				}
				if told := w.space.Status().UploadedBytes; told != c.sent {
					t.Errorf("status: %d bytes were sent, want %d", told, c.sent)
				}
				time.Sleep(time.Minute)
				w.leftNothing()
				w.stop()
			})
		})
	}
}

// leftNothing fails if a file is staged although all is published, or something pinned.
func (w *world) leftNothing() {
	w.Helper()
	w.space.mu.Lock()
	defer w.space.mu.Unlock()
	for _, f := range w.space.mu.Files {
		if f.Staged {
			w.Errorf("%s is staged still: %+v", f.Name, *f)
		}
	}
	if pins := w.cache.pins.Load(); pins != 0 {
		w.Errorf("%d objects are pinned", pins)
	}
}

// TestPartialFileIsOneFileForAll: what one handle writes the others read, also while it is
// published and its base becomes another object.
func TestPartialFileIsOneFileForAll(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newPartialWorld(t, func(*Config) {})
		want := []byte(filled(1000))
		w.store.put("p/old", string(want))
		a, b := w.openToEdit("", "old"), w.openToEdit("", "old")
		for i := range 200 {
			h := []*Handle{a, b}[i%2]
			off := w.rand.IntN(1000)
			text := []byte(strings.Repeat(string(rune('A'+i%26)), 1+w.rand.IntN(40)))
			w.writeAt(h, string(text), int64(off))
			if grown := off + len(text) - len(want); grown > 0 {
				want = append(want, make([]byte, grown)...)
			}
			copy(want[off:], text)
			if i%5 == 0 {
				if err := h.Sync(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(time.Duration(w.rand.IntN(20)) * time.Second)
			if got, err := w.read("", "old"); got != string(want) || err != nil {
				t.Fatalf("after %d writes: %q, %v\nwant %q", i, got, err, want)
			}
		}
		w.finish(a)
		w.finish(b)
		w.drain()
		w.holds("p/old", string(want))
		w.stop()
	})
}

// TestPartialFileSurvivesAKill: of what was closed everything, and what was cut off after
// that does not come back.
func TestPartialFileSurvivesAKill(t *testing.T) {
	for _, powerLost := range []bool{false, true} {
		bubble(t, func(t *testing.T) {
			w := newPartialWorld(t, func(*Config) {})
			w.disk.onlySynced = true
			old := filled(1000)
			w.store.put("p/old", old)
			w.store.denied["p/old"] = true // it stays here
			h := w.openToEdit("", "old")
			w.writeAt(h, "<changed>", 50)
			if err := h.Sync(t.Context()); err != nil {
				t.Fatal(err)
			}
			want := old[:50] + "<changed>" + old[59:]
			w.writeAt(h, "lost, or not", 512)
			w.crash(powerLost)
			got, err := w.read("", "old")
			if with := want[:512] + "lost, or not" + want[524:]; err != nil || got != want && got != with {
				t.Fatalf("powerLost=%v: %q, %v", powerLost, got, err)
			}
			w.disk.onlySynced = true
			h = w.openToEdit("", "old")
			w.writeAt(h, got[512:524], 512)
			w.truncate(h, 55)
			w.truncate(h, 600)
			w.crash(powerLost)
			want = got[:55] + strings.Repeat("\x00", 545)
			now, err := w.read("", "old")
			if shorter := powerLost && now == want[:55]; err != nil || now != want && !shorter {
				t.Fatalf("powerLost=%v: %q, %v, want %q", powerLost, now, err, want)
			}
			want = now
			w.store.Lock()
			w.store.denied = map[string]bool{}
			w.store.Unlock()
			if !powerLost {
				w.drain()
				w.holds("p/old", want)
			}
			w.stop()
		})
	}
}

// lostAnswers says of the next completions that they came to nothing, although they did
// their work.
type lostAnswers struct {
	*fakeBucket
	lost int
}

func (b *lostAnswers) CompleteUpload(ctx context.Context, u oss.MultipartUpload, parts []oss.Part, o oss.PutOptions) (oss.Info, error) {
	info, err := b.fakeBucket.CompleteUpload(ctx, u, parts, o)
	b.Lock()
	defer b.Unlock()
	if err == nil && b.lost > 0 {
		b.lost--
		return oss.Info{}, oss.ErrUnavailable
	}
	return info, err
}

// TestPartialFileFollowsItsPublicationOfWhichTheAnswerWasLost, and is changed before that is
// found out.
func TestPartialFileFollowsItsPublicationOfWhichTheAnswerWasLost(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newPartialWorld(t, func(*Config) {})
		old := filled(1000)
		w.store.put("p/old", old)
		w.space.bucket = &lostAnswers{w.bucket, 1}
		h := w.openToEdit("", "old")
		w.writeAt(h, "<1>", 50)
		if err := h.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		one := old[:50] + "<1>" + old[53:]
		for w.inBucket()["p/old"] != one {
			time.Sleep(time.Millisecond)
		}
		w.writeAt(h, "<2>", 500)
		want := one[:500] + "<2>" + one[503:]
		if got, err := w.read("", "old"); got != want || err != nil {
			t.Fatalf("read %q, %v", got, err)
		}
		w.finish(h)
		w.drain()
		w.holds("p/old", want)
		if s := w.space.Status(); len(s.Conflicts) > 0 {
			t.Errorf("conflicts: %v", s.Conflicts)
		}
		w.stop()
	})
}

// TestPartialFileWhoseBaseIsGoneSaysSo: reads of what was not fetched are ESTALE, what was
// written can be read, publication fails, and ours goes beside theirs.
func TestPartialFileWhoseBaseIsGoneSaysSo(t *testing.T) {
	for _, removed := range []bool{false, true} {
		bubble(t, func(t *testing.T) {
			w := newPartialWorld(t, func(*Config) {})
			w.store.put("p/old", filled(1000))
			h := w.openToEdit("", "old")
			w.writeAt(h, "<changed>", 50)
			if removed {
				w.store.Lock()
				delete(w.store.objects, "p/old")
				w.store.Unlock()
			} else {
				w.store.put("p/old", "theirs")
			}
			b := make([]byte, 9)
			if _, _, err := h.ReadAt(t.Context(), b, 50); err != nil || string(b) != "<changed>" {
				t.Errorf("what was written reads as %q, %v", b, err)
			}
			if _, _, err := h.ReadAt(t.Context(), b, 500); !errors.Is(err, syscall.ESTALE) {
				t.Errorf("read: %v, want ESTALE", err)
			}
			if _, err := h.WriteAt(t.Context(), b, 500); !errors.Is(err, syscall.ESTALE) {
				t.Errorf("write to a part of a chunk: %v, want ESTALE", err)
			}
			w.writeAt(h, strings.Repeat("#", 32), 512)
			if err := h.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
			h.Release()
			if err := w.space.Flush(t.Context(), ""); !errors.Is(err, errBaseGone) {
				t.Errorf("flush: %v", err)
			}
			s := w.space.Status()
			if s.FailingCount != 1 || removed == (len(s.Conflicts) > 0) {
				t.Errorf("status %+v", s)
			}
			if got := w.inBucket()["p/old"]; !removed && got != "theirs" {
				t.Errorf("theirs is %q", got)
			}
			w.crash(false)
			if err := w.space.Flush(t.Context(), ""); !errors.Is(err, errBaseGone) {
				t.Errorf("after a restart flush: %v", err)
			}
			w.stop()
		})
	}
}

// TestWhatWasWrittenOfAPartialFileIsExported, with a list of where it belongs, and nothing
// is taken for the file itself.
func TestWhatWasWrittenOfAPartialFileIsExported(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newPartialWorld(t, func(*Config) {})
		old := filled(1000)
		w.store.put("p/old", old)
		w.deny("p/old", true)
		h := w.openToEdit("", "old")
		w.writeAt(h, "<changed>", 50)
		w.writeAt(h, "more", 1000)
		w.finish(h)
		w.stop()
		dst := filepath.Join(t.TempDir(), "out")
		all, err := Export(t.Context(), w.cfg.Dir, "", dst)
		if err != nil || len(all) != 1 || all[0].Err != nil || all[0].To != "old.partial" || all[0].Bytes != 20 || all[0].Base != "p/old" {
			t.Fatalf("%+v, %v", all, err)
		}
		b, err := os.ReadFile(filepath.Join(dst, "old.partial"))
		none := strings.Repeat("\x00", 1004)
		if want := none[:48] + old[48:50] + "<changed>" + old[59:64] + none[64:1000] + "more"; err != nil || string(b) != want {
			t.Errorf("exported %q, %v, want %q", b, err, want)
		}
		list, err := os.ReadFile(filepath.Join(dst, "old.partial.extents"))
		if err != nil || !strings.HasSuffix(string(list), "\n48 16\n1000 4\n") || !strings.Contains(string(list), `object "p/old"`) {
			t.Errorf("the list is %q, %v", list, err)
		}
	})
}

// TestPartialFileIsRenamedUnlinkedAndReplaced: its base stays until it is not needed.
func TestPartialFileIsRenamedUnlinkedAndReplaced(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newPartialWorld(t, func(*Config) {})
		one, two, three := filled(1000), strings.ToUpper(filled(900)), strings.Repeat("three", 100)
		w.store.put("p/a", one)
		w.store.put("p/b", two)
		w.store.put("p/c", three)
		a, b, c := w.openToEdit("", "a"), w.openToEdit("", "b"), w.openToEdit("", "c")
		w.writeAt(a, "<a>", 500)
		w.writeAt(b, "<b>", 600)
		w.writeAt(c, "<c>", 100)
		one, two, three = one[:500]+"<a>"+one[503:], two[:600]+"<b>"+two[603:], three[:100]+"<c>"+three[103:]
		for _, h := range []*Handle{a, b, c} {
			if err := h.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		// a and b change places, c is unlinked and made anew.
		for _, names := range [][2]string{{"a", "t"}, {"b", "a"}, {"t", "b"}} {
			if _, err := w.space.Rename(t.Context(), "", names[0], "", names[1], 0); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.space.Unlink(t.Context(), "", "c"); err != nil {
			t.Fatal(err)
		}
		w.write("", "c", "new")
		time.Sleep(10 * time.Minute)
		for h, want := range map[*Handle]string{a: one, b: two, c: three} {
			got := make([]byte, len(want))
			if _, _, err := h.ReadAt(t.Context(), got, 0); err != nil && !errors.Is(err, io.EOF) || string(got) != want {
				t.Errorf("read %q, %v, want %q", got, err, want)
			}
			h.Release()
		}
		w.drain()
		w.holds("p/a", two)
		w.holds("p/b", one)
		w.holds("p/c", "new")
		time.Sleep(time.Minute)
		w.leftNothing()
		w.checkJournal()
		w.stop()
	})
}
