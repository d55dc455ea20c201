package writeback

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/pailfs/pailfs/fs/writeback/internal/attrs"
	"github.com/pailfs/pailfs/fs/writeback/internal/order"
)

// replacing opens a good object to be written anew.
func (w *world) replacing(name, good string) *Handle {
	w.Helper()
	w.store.put("p/"+name, good)
	h, err := w.space.Open(w.Context(), "", name, OpenOptions{Write: true, Truncate: true})
	if err != nil {
		w.Fatal(err)
	}
	return h
}

func (w *world) holds(key, want string) {
	w.Helper()
	if got := w.inBucket()[key]; got != want {
		w.Errorf("%s holds %d bytes, %.40q, want %d, %.40q", key, len(got), got, len(want), want)
	}
}

// setSize is truncate(2) by name.
func (w *world) setSize(name string, size int64) {
	w.Helper()
	if _, err := w.space.SetAttr(w.Context(), "", name, SetAttr{Size: &size}); err != nil {
		w.Fatal(err)
	}
}

// A size that is set while somebody writes is a part of what is written.
func TestSizeSetBesideAWriterIsCommittedWithItsClose(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, 1)
		w.replacing("a", "good")
		w.setSize("a", 8192)
		time.Sleep(10 * time.Minute)
		w.holds("p/a", "good")
		w.crash(false)
		w.drain()
		w.holds("p/a", "good")

		h, err := w.space.Open(t.Context(), "", "a", OpenOptions{Write: true, Truncate: true})
		if err != nil {
			t.Fatal(err)
		}
		w.setSize("a", 4)
		if _, err := h.WriteAt(t.Context(), []byte("more"), 0); err != nil {
			t.Fatal(err)
		}
		closeHandle(t, h)
		w.drain()
		w.holds("p/a", "more")
		w.setSize("a", 2)
		w.crash(false)
		w.drain()
		w.holds("p/a", "mo")
		w.stop()
	})
}

// A program sets a size, maps the file, closes the descriptor but not the one that
// belongs to the mapping, and fills the file at leisure, as numpy.memmap does. What
// is not filled is not published, and nothing waits for it.
func TestFileThatIsBeingFilledIsPublishedWhenItIsClosed(t *testing.T) {
	for _, passed := range []bool{false, true} {
		bubble(t, func(t *testing.T) {
			w := newWorld(t, 1)
			w.store.put("p/other", "old")
			h := w.replacing("a", "good")
			const size = 64 << 10
			if err := h.Truncate(t.Context(), size); err != nil {
				t.Fatal(err)
			}
			mapping := mapStaged(t, h)
			if err := h.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
			if passed {
				// The kernel has the staged file mapped, and no handle of ours.
				h.Release()
			}
			w.write("", "other", "new")
			w.write("", "beside", "new")
			time.Sleep(10 * time.Minute)
			w.holds("p/a", "good")
			w.holds("p/other", "new")
			w.holds("p/beside", "new")
			whole := bytes.Repeat([]byte("x"), size)
			for off := 0; off < size; off += 4096 {
				if _, err := mapping.WriteAt(whole[off:off+4096], int64(off)); err != nil {
					t.Fatal(err)
				}
				now := time.Now()
				if err := os.Chtimes(mapping.Name(), now, now); err != nil {
					t.Fatal(err)
				}
				time.Sleep(20 * time.Second)
				w.holds("p/a", "good")
			}
			if err := mapping.Close(); err != nil {
				t.Fatal(err)
			}
			if !passed {
				closeHandle(t, h)
			}
			time.Sleep(10 * time.Second)
			w.holds("p/a", string(whole))
			w.stop()
		})
	}
}

// What was synced is published after a while although the file stays open, also if it
// is synced again and again; and before what was closed later.
func TestSyncedFileIsPublishedWhileItIsOpenBeforeWhatFollows(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, 1)
		w.store.put("p/l/latest", "old")
		w.store.put("p/shards/old", "")
		h, err := w.space.Create(t.Context(), "shards", "a", CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := h.WriteAt(t.Context(), []byte("shard"), 0); err != nil {
			t.Fatal(err)
		}
		if err := h.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.store.Lock()
		w.store.seen = func(key string, content []byte) {
			if _, there := w.store.objects["p/shards/a"]; key == "p/l/latest" && !there {
				t.Error("latest was published before the shard that was synced before it")
			}
		}
		w.store.Unlock()
		w.write("l", "latest", "shards/a")
		for range 12 {
			time.Sleep(5 * time.Second)
			if _, err := h.Append(t.Context(), []byte(", more")); err != nil {
				t.Fatal(err)
			}
			if err := h.Sync(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if got := w.inBucket()["p/shards/a"]; !strings.HasPrefix(got, "shard, more") {
			t.Errorf("after a minute the shard holds %q", got)
		}
		w.holds("p/l/latest", "shards/a")
		closeHandle(t, h)
		w.drain()
		w.stop()
	})
}

// A file that was synced and changes all the time never stands still to be read. It
// holds back what is beside it, and for a while the rest, but not for ever.
func TestFileThatNeverRestsHoldsBackOnlyWhatIsBeside(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorldWith(t, 1, func(c *Config) {
			l := usualLimits
			l.small, l.part = 10, 5
			c.limits = &l
		})
		w.store.put("p/e/elsewhere", "old")
		w.store.put("p/d/old", "")
		h, err := w.space.Create(t.Context(), "d", "restless", CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		change := func() {
			n++
			text := strings.Repeat(string(rune('a'+n%26)), 40)
			if _, err := h.WriteAt(t.Context(), []byte(text), 0); err != nil {
				t.Error(err)
			}
			if err := h.Sync(t.Context()); err != nil {
				t.Error(err)
			}
		}
		change()
		w.write("e", "elsewhere", "new")
		w.write("d", "beside", "must follow")
		time.Sleep(25 * time.Second)
		w.holds("p/e/elsewhere", "old")
		for range 4000 {
			change()
			time.Sleep(5 * time.Millisecond)
		}
		w.holds("p/e/elsewhere", "new")
		w.holds("p/d/beside", "")
		closeHandle(t, h)
		time.Sleep(10 * time.Second)
		w.holds("p/d/beside", "must follow")
		w.drain()
		w.stop()
	})
}

// What was synced is meant until it is published, also if the close of another
// descriptor commits what was written since.
func TestSyncedFileIsMeantAlsoAfterAnotherClose(t *testing.T) {
	for _, another := range []bool{false, true} {
		t.Run(fmt.Sprint("another close: ", another), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newPartsWorld(t, func(*Config) {})
				h := w.startWriting("", "shard", filled(80))
				if err := h.Sync(t.Context()); err != nil {
					t.Fatal(err)
				}
				w.passThrough(h, "more", 10)
				if another {
					h2, err := w.space.Open(t.Context(), "", "shard", OpenOptions{Write: true})
					if err != nil {
						t.Fatal(err)
					}
					w.finish(h2)
				}
				w.write("", "latest", "shard")
				for range 100 {
					w.passThrough(h, time.Now().String()[:20], 30)
					got := w.inBucket()
					if got["p/latest"] != "" && got["p/shard"] == "" {
						t.Fatal("latest is there, and the shard that was synced before is not")
					}
				}
				if got := w.inBucket(); got["p/shard"] == "" {
					t.Error("five minutes after it was synced, the shard is not published")
				}
				w.finish(h)
				w.drain()
				w.stop()
			})
		})
	}
}

// A time that is set on an object that is being edited holds back nothing: until it is
// committed, the key has its content.
func TestTimeOfAnOpenFileHoldsBackNothing(t *testing.T) {
	for _, keep := range []bool{false, true} {
		t.Run(fmt.Sprint("attributes: ", keep), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newPartsWorld(t, func(c *Config) { c.Attrs = keep })
				w.store.put("p/d/old", filled(60))
				h, err := w.space.Open(t.Context(), "d", "old", OpenOptions{Write: true})
				if err != nil {
					t.Fatal(err)
				}
				mode := uint32(0o600)
				if keep {
					err = w.space.SetAttrFile(t.Context(), h.File(), SetAttr{Mode: &mode})
				} else {
					err = w.space.Touch(h.File(), time.Now())
				}
				if err != nil {
					t.Fatal(err)
				}
				w.write("d", "new", "new")
				time.Sleep(10 * time.Minute)
				w.holds("p/d/new", "new")
				w.finish(h)
				w.drain()
				if keep {
					w.store.Lock()
					got := attrs.Parse(w.store.objects["p/d/old"].Meta)
					w.store.Unlock()
					if got.Mode != mode {
						t.Errorf("the bucket has mode %o, want %o", got.Mode, mode)
					}
				}
				w.stop()
			})
		})
	}
}

// A file is found unfinished, and synced before the publisher hears of that: what is
// closed after the fsync must not appear without it.
func TestFileThatIsSyncedWhileItIsLookedAtHoldsBackWhatFollows(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, 1)
		shard := w.create("shard", "a part")
		if err := shard.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := shard.WriteAt(t.Context(), []byte("the whole"), 0); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		w.cancel() // this test is the publisher from now on
		<-w.ended
		s := w.space
		s.mu.Lock()
		run := s.mu.runs[s.mu.Keys["p/shard"].Pending]
		run.next = time.Time{}
		s.mu.Unlock()
		var op order.Operation
		s.dispatch(func(x order.Operation, _ bool) { op = x })
		_, err := s.snapshot(op)
		if !errors.Is(err, errUnfinished) {
			t.Fatalf("a file that is being written: %v", err)
		}
		if err := shard.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.mu.Lock()
		run.running = false
		s.mu.running--
		s.judge(t.Context(), &op, run, err)
		absent := s.standing(&op).Absent
		s.mu.Unlock()
		if absent {
			t.Error("a file that was synced holds back nothing")
		}
		w.crash(false)
		w.drain()
		w.holds("p/shard", "the whole")
		w.stop()
	})
}
