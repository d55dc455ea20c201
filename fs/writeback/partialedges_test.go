package writeback

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/pailfs/pailfs/oss"
)

// hookedCache calls a hook before each read of an object.
type hookedCache struct {
	Cache
	before func(obj oss.Object, off int64)
}

func (c *hookedCache) ReadAt(ctx context.Context, obj oss.Object, p []byte, off int64) (int, error) {
	if do := c.before; do != nil {
		do(obj, off)
	}
	return c.Cache.ReadAt(ctx, obj, p, off)
}

// TestPartialFileThatGrewIsPublishedAsItIs: what was synced is not published with its old
// length and what came after it.
func TestPartialFileThatGrewIsPublishedAsItIs(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newPartialWorld(t, func(*Config) {})
		w.store.put("p/model", grown(1000))
		w.checkMoments()
		h := w.openToEdit("", "model")
		w.writeAt(h, grown(1020)[1000:], 1000)
		w.writeAt(h, "00001020", 0)
		if err := h.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		w.writeAt(h, grown(1040)[1020:], 1020)
		w.writeAt(h, "00001040", 0)
		time.Sleep(2 * openWait)
		w.holds("p/model", grown(1040))
		w.finish(h)
		w.drain()
		w.holds("p/model", grown(1040))
		w.stop()
	})
}

// cutInTheNextFetch cuts p/old, which h has open, to 300 bytes and lets it be published, while
// something is fetched for it.
func (w *world) cutInTheNextFetch(h *Handle) {
	c := &hookedCache{Cache: w.space.cache}
	w.space.cache = c
	c.before = func(oss.Object, int64) {
		c.before = nil
		w.truncate(h, 300)
		if err := h.Sync(w.Context()); err != nil {
			w.Error(err)
		}
		for len(w.inBucket()["p/old"]) != 300 {
			time.Sleep(time.Second)
		}
	}
}

// TestFileIsCutAndPublishedWhileItIsRead: who reads what is gone meets the end, not an error.
func TestFileIsCutAndPublishedWhileItIsRead(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newPartialWorld(t, func(*Config) {})
		old := filled(1000)
		w.store.put("p/old", old)
		h := w.openToEdit("", "old")
		w.writeAt(h, "<>", 0)
		w.cutInTheNextFetch(h)
		b := make([]byte, 100)
		n, _, err := h.ReadAt(t.Context(), b, 250)
		if err != nil && !errors.Is(err, io.EOF) || string(b[:n]) != old[250:300] {
			t.Errorf("read %q, %v", b[:n], err)
		}
		h.Release()
		w.stop()
	})
}

// TestFileIsCutAndPublishedWhileItIsWritten does the same with a write.
func TestFileIsCutAndPublishedWhileItIsWritten(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newPartialWorld(t, func(*Config) {})
		old := filled(1000)
		w.store.put("p/old", old)
		h := w.openToEdit("", "old")
		w.writeAt(h, "<>", 0)
		w.cutInTheNextFetch(h)
		if _, err := h.WriteAt(t.Context(), []byte("abc"), 500); err != nil {
			t.Error(err)
		}
		want := "<>" + old[2:300] + strings.Repeat("\x00", 200) + "abc"
		if got, err := w.read("", "old"); got != want || err != nil {
			t.Errorf("read %q, %v", got, err)
		}
		h.Release()
		w.stop()
	})
}

// TestAppendToAnObjectThatWasReplacedBeforeItWasOpened: it to an object that somebody else has replaced before it was
// opened is not accepted, or at least not stranded.
func TestAppendToAnObjectThatWasReplacedBeforeItWasOpened(t *testing.T) {
	for _, whole := range []int64{1 << 20, 200} {
		bubble(t, func(t *testing.T) {
			w := newPartialWorld(t, func(c *Config) { c.limits.whole = whole })
			w.store.put("p/log", filled(1000))
			if _, _, err := w.space.Lookup(t.Context(), "", "log"); err != nil {
				t.Fatal(err)
			}
			theirs := filled(1200)
			w.store.put("p/log", theirs)
			h, err := w.space.Open(t.Context(), "", "log", OpenOptions{Write: true})
			if err != nil {
				time.Sleep(time.Minute)
				h, err = w.space.Open(t.Context(), "", "log", OpenOptions{Write: true})
				if err != nil {
					t.Fatal(err)
				}
			}
			a, err := h.File().Stat()
			if err != nil {
				t.Fatal(err)
			}
			w.writeAt(h, "line", a.Size)
			if err := h.Sync(t.Context()); err != nil {
				t.Fatal(err)
			}
			h.Release()
			if err := w.space.Flush(t.Context(), ""); err != nil {
				t.Errorf("whole=%d: flush: %v", whole, err)
			}
			w.holds("p/log", theirs+"line")
			w.stop()
		})
	}
}

// TestLostPartialFileHoldsNothingBack: what is written anew where the loss of power took a
// partial file is published.
func TestLostPartialFileHoldsNothingBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newPartialWorld(t, func(*Config) {})
		w.store.put("p/old", filled(1000))
		h := w.openToEdit("", "old")
		w.disk.onlySynced = true
		w.writeAt(h, "<changed>", 50)
		// The record is on the disk, the content is not.
		if err := h.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := w.space.journal.Sync(w.space.journal.End()); err != nil {
			t.Fatal(err)
		}
		w.crash(true)
		if s := w.space.Status(); len(s.Suspects) != 1 {
			t.Errorf("nothing was lost: %+v", s)
		}
		w.write("", "old", "anew")
		time.Sleep(10 * time.Minute)
		w.holds("p/old", "anew")
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if err := w.space.Flush(ctx, ""); err != nil {
			t.Errorf("flush: %v", err)
		}
		w.holds("p/old", "anew")
		w.stop()
	})
}

// TestWhatReplacesAnOpenPartialFileIsPublished: what replaces a file that somebody has open is published.
func TestWhatReplacesAnOpenPartialFileIsPublished(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newPartialWorld(t, func(*Config) {})
		w.store.put("p/old", filled(1000))
		h := w.openToEdit("", "old")
		w.writeAt(h, "<changed>", 50)
		w.write("", "fresh", "fresh")
		if _, err := w.space.Rename(t.Context(), "", "fresh", "", "old", 0); err != nil {
			t.Fatal(err)
		}
		w.write("", "latest", "latest")
		time.Sleep(time.Hour)
		w.holds("p/old", "fresh")
		w.holds("p/latest", "latest")
		h.Release()
		w.stop()
	})
}

// TestDiscardLeavesTheObjectThatAPartialFileLacks: what is given up of a file that was published
// and renamed since leaves it where it was.
func TestDiscardLeavesTheObjectThatAPartialFileLacks(t *testing.T) {
	for _, whole := range []int64{200, 1 << 20} {
		bubble(t, func(t *testing.T) {
			w := newPartialWorld(t, func(c *Config) { c.limits.whole = whole })
			old := filled(1000)
			w.store.put("p/a", old)
			h := w.openToEdit("", "a")
			w.writeAt(h, "<changed>", 50)
			want := old[:50] + "<changed>" + old[59:]
			if _, err := w.space.Rename(t.Context(), "", "a", "", "b", 0); err != nil {
				t.Fatal(err)
			}
			if err := h.Sync(t.Context()); err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * openWait)
			w.holds("p/b", want)
			w.holds("p/a", "")
			w.deny("p/c", true)
			w.writeAt(h, "<again>", 500)
			if err := h.Sync(t.Context()); err != nil {
				t.Fatal(err)
			}
			if _, err := w.space.Rename(t.Context(), "", "b", "", "c", 0); err != nil {
				t.Fatal(err)
			}
			w.finish(h)
			w.stop()
			if err := Discard(w.cfg.Dir, "c", func([]Staged) error { return nil }); err != nil {
				t.Fatal(err)
			}
			w.start()
			w.drain()
			w.holds("p/b", want)
			w.stop()
		})
	}
}

// archive is a bucket that tells of what it has, and lets nobody read it.
type archive struct{ *fakeBucket }

func (archive) ReadRange(context.Context, oss.RangeRequest) (oss.RangeResult, error) {
	return oss.RangeResult{}, fmt.Errorf("%w: InvalidObjectState", oss.ErrInvalid)
}

// TestObjectThatMayNotBeReadIsNotOpenedForWriting: nothing that was written to it could be
// published, and who opens it is told so.
func TestObjectThatMayNotBeReadIsNotOpenedForWriting(t *testing.T) {
	for _, whole := range []int64{200, 1 << 20} {
		bubble(t, func(t *testing.T) {
			w := newPartialWorld(t, func(c *Config) { c.limits.whole = whole })
			w.store.put("p/old", filled(1000))
			w.space.bucket = archive{w.bucket}
			w.space.cache.(*fakeCache).bucket = w.space.bucket
			h, err := w.space.Open(t.Context(), "", "old", OpenOptions{Write: true})
			if err == nil {
				h.Release()
			}
			if !errors.Is(err, oss.ErrInvalid) {
				t.Errorf("whole=%d: open: %v", whole, err)
			}
			if err := w.space.Flush(t.Context(), ""); err != nil {
				t.Errorf("whole=%d: flush: %v", whole, err)
			}
			w.stop()
		})
	}
}

// TestWhatIsDirtyOfAPartialFileIsWhatIsStaged: the rest is in the object store.
func TestWhatIsDirtyOfAPartialFileIsWhatIsStaged(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newPartialWorld(t, func(*Config) {})
		w.store.put("p/old", filled(1000))
		w.deny("p/old", true)
		h := w.openToEdit("", "old")
		w.writeAt(h, "<>", 50)    // of a chunk of 16 bytes
		w.writeAt(h, "end", 1000) // behind the object
		if err := h.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := w.space.Status().DirtyBytes; got != 16+3 {
			t.Errorf("%d bytes are dirty", got)
		}
		w.deny("p/old", false)
		w.finish(h)
		w.drain()
		if got := w.space.Status().DirtyBytes; got != 0 {
			t.Errorf("%d bytes are dirty when all is published", got)
		}
		w.stop()
	})
}
