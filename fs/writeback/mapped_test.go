package writeback

import (
	"os"
	"testing"
	"time"
)

// mapStaged stands for a mapping of a handle's file that outlives its descriptor.
func mapStaged(t *testing.T, h *Handle) *os.File {
	t.Helper()
	m, err := os.OpenFile(h.OSFile().Name(), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// closeHandle does what close(2) does.
func closeHandle(t *testing.T, h *Handle) {
	t.Helper()
	if err := h.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.Release()
}

// An object is opened, mapped and closed, and only then changed.
func TestStoresAfterTheCloseOfACleanFileArePublished(t *testing.T) {
	for _, renamed := range []bool{false, true} {
		bubble(t, func(t *testing.T) {
			w := newWorld(t, 1)
			w.store.put("p/a", "content")
			h, err := w.space.Open(t.Context(), "", "a", OpenOptions{Write: true})
			if err != nil {
				t.Fatal(err)
			}
			mapping := mapStaged(t, h)
			closeHandle(t, h)
			key := "p/a"
			if renamed {
				key = "p/b"
				if _, err := w.space.Rename(t.Context(), "", "a", "", "b", 0); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(10 * time.Minute)
			if _, err := mapping.WriteAt([]byte("C"), 0); err != nil {
				t.Fatal(err)
			}
			if err := mapping.Close(); err != nil {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Minute)
			w.drain()
			if got := w.inBucket()[key]; got != "Content" {
				t.Errorf("%s holds %q", key, got)
			}
			w.stop()
		})
	}
}

// An object is opened, mapped and closed, and never changed.
func TestCleanFileIsGivenUpWhenItsMappingEnds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, 1)
		w.store.put("p/a", "content")
		h, err := w.space.Open(t.Context(), "", "a", OpenOptions{Write: true})
		if err != nil {
			t.Fatal(err)
		}
		mapping := mapStaged(t, h)
		closeHandle(t, h)
		if _, staged := h.File().Content(); !staged {
			t.Error("the staged file was given up while somebody may write to it")
		}
		if err := mapping.Close(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Minute)
		if _, staged := h.File().Content(); staged {
			t.Error("the staged file was never given up")
		}
		w.drain()
		w.stop()
	})
}

// A published file is changed through a mapping without its time showing it, as a
// store into a dirty page does.
func TestStoreThatTheTimeDoesNotShowIsPublished(t *testing.T) {
	for _, forgetful := range []float64{0, 1} {
		bubble(t, func(t *testing.T) {
			w := newWorld(t, 1)
			w.cache.forgetful = forgetful
			h, err := w.space.Create(t.Context(), "", "a", CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			mapping := mapStaged(t, h)
			if _, err := h.WriteAt(t.Context(), []byte("content"), 0); err != nil {
				t.Fatal(err)
			}
			closeHandle(t, h)
			time.Sleep(10 * time.Minute)
			if got := w.inBucket()["p/a"]; got != "content" {
				t.Fatalf("the bucket holds %q: that is not the case to be tested", got)
			}
			info, err := mapping.Stat()
			if err != nil {
				t.Fatal(err)
			}
			if _, err := mapping.WriteAt([]byte("C"), 0); err != nil {
				t.Fatal(err)
			}
			if err := os.Chtimes(mapping.Name(), time.Time{}, info.ModTime()); err != nil {
				t.Fatal(err)
			}
			if err := mapping.Close(); err != nil {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Minute)
			w.drain()
			if got := w.inBucket()["p/a"]; got != "Content" {
				t.Errorf("the bucket holds %q", got)
			}
			w.stop()
		})
	}
}

// What was stored through a mapping before a flush is published when it returns.
func TestFlushPublishesWhatWasStoredThroughAMapping(t *testing.T) {
	for _, hidden := range []bool{false, true} {
		bubble(t, func(t *testing.T) {
			w := newWorld(t, 1)
			h, err := w.space.Create(t.Context(), "", "a", CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			mapping := mapStaged(t, h)
			if _, err := h.WriteAt(t.Context(), []byte("content"), 0); err != nil {
				t.Fatal(err)
			}
			closeHandle(t, h)
			time.Sleep(10 * time.Minute)
			info, err := mapping.Stat()
			if err != nil {
				t.Fatal(err)
			}
			if _, err := mapping.WriteAt([]byte("C"), 0); err != nil {
				t.Fatal(err)
			}
			stored := info.ModTime()
			if !hidden {
				stored = stored.Add(time.Second)
			}
			if err := os.Chtimes(mapping.Name(), time.Time{}, stored); err != nil {
				t.Fatal(err)
			}
			w.drain()
			if got := w.inBucket()["p/a"]; got != "Content" {
				t.Errorf("the bucket holds %q", got)
			}
			if err := mapping.Close(); err != nil {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Minute)
			w.stop()
		})
	}
}

// A write that comes while the time is set does not show in the time.
func TestSettingTheTimeHidesNoWrite(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorldWith(t, 1, func(c *Config) { c.Attrs = true })
		h, err := w.space.Create(t.Context(), "", "a", CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		kernel := mapStaged(t, h)
		if _, err := h.WriteAt(t.Context(), []byte("content"), 0); err != nil {
			t.Fatal(err)
		}
		if err := h.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := h.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		info, err := kernel.Stat()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := kernel.WriteAt([]byte("C"), 0); err != nil {
			t.Fatal(err)
		}
		if err := kernel.Close(); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(kernel.Name(), time.Time{}, info.ModTime()); err != nil {
			t.Fatal(err)
		}
		h.file.unsure.Store(false)
		mtime := info.ModTime().Add(-time.Hour)
		if err := w.space.SetAttrFile(t.Context(), h.File(), SetAttr{Mtime: &mtime}); err != nil {
			t.Fatal(err)
		}
		if err := h.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.crash(true)
		if got, err := w.read("", "a"); err != nil || got != "Content" {
			t.Errorf("a holds %q, %v after it was synced", got, err)
		}
		h.Release()
		w.drain()
		w.stop()
	})
}
