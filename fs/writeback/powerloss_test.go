package writeback

import (
	"context"
	"errors"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pailfs/pailfs/oss"
)

// worldOfFiles is a world in which no content travels inside records.
func worldOfFiles(t *testing.T, seed uint64) *world {
	t.Helper()
	return newWorldWith(t, seed, func(c *Config) {
		l := usualLimits
		l.inline = 3
		c.limits = &l
	})
}

// create opens a new file that holds content.
func (w *world) create(base, content string) *Handle {
	w.Helper()
	h, err := w.space.Create(w.Context(), "", base, CreateOptions{})
	if err != nil {
		w.Fatal(err)
	}
	if _, err := h.WriteAt(w.Context(), []byte(content), 0); err != nil {
		w.Fatal(err)
	}
	return h
}

// A durable file is replaced, or removed, and power is lost before the disk knows.
func TestReplacedFileOutlivesTheLossOfPower(t *testing.T) {
	for name, take := range map[string]func(w *world) error{
		"renamed over": func(w *world) error {
			_, err := w.space.Rename(w.Context(), "", "b", "", "a", 0)
			return err
		},
		"unlinked": func(w *world) error { return w.space.Unlink(w.Context(), "", "a") },
	} {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(8) {
				bubble(t, func(t *testing.T) {
					w := worldOfFiles(t, seed)
					w.store.deny("p/a", true)
					h := w.create("a", "durable")
					if err := h.Sync(t.Context()); err != nil {
						t.Fatal(err)
					}
					closeHandle(t, h)
					closeHandle(t, w.create("b", "replacement"))
					if err := w.space.Sync(t.Context()); err != nil {
						t.Fatal(err)
					}
					synctest.Wait() // what is published brings the journal to the disk
					if err := take(w); err != nil {
						t.Fatal(err)
					}
					w.disk.onlySynced = true
					w.crash(true)
					if got, err := w.read("", "a"); err != nil || got != "durable" {
						t.Errorf("seed %d: a holds %q, %v", seed, got, err)
					}
					if got := w.space.Status().Suspects; len(got) > 0 && got[0] == "a" {
						t.Errorf("seed %d: suspects are %q", seed, got)
					}
					w.stop()
				})
			}
		})
	}
}

// The staged file of a name that is gone goes as well, as soon as it may.
func TestStagedFileOfAnUnlinkedNameGoes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := worldOfFiles(t, 1)
		h := w.create("a", "content")
		path := w.space.path(h.file.id)
		closeHandle(t, h)
		if err := w.space.Unlink(t.Context(), "", "a"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the staged file is there after a second: %v", err)
		}
		w.stop()
	})
}

// The kernel forgets pages that it could not write: once a sync has failed, a later
// one that succeeds says nothing about them.
func TestFileWhoseSyncFailedIsSuspectUntilItIsWrittenAnew(t *testing.T) {
	for _, restarted := range []bool{false, true} {
		bubble(t, func(t *testing.T) {
			w := worldOfFiles(t, 1)
			h := w.create("a", "some of this is lost")
			w.disk.Lock()
			w.disk.fail = syscall.EIO
			w.disk.Unlock()
			if err := h.Sync(t.Context()); !errors.Is(err, syscall.EIO) {
				t.Fatalf("fsync: %v", err)
			}
			w.disk.Lock()
			w.disk.fail = nil
			w.disk.Unlock()
			if restarted {
				w.crash(false)
				var err error
				if h, err = w.space.Open(t.Context(), "", "a", OpenOptions{Write: true}); err != nil {
					t.Fatal(err)
				}
			}
			for range 2 {
				if _, err := h.WriteAt(t.Context(), []byte("S"), 0); err != nil {
					t.Fatal(err)
				}
				if err := h.Sync(t.Context()); !errors.Is(err, syscall.EIO) {
					t.Errorf("fsync after a partial rewrite: %v", err)
				}
				if err := h.Flush(t.Context()); !errors.Is(err, syscall.EIO) {
					t.Errorf("close: %v", err)
				}
			}
			if got := w.space.Status().Suspects; len(got) != 1 || got[0] != "a" {
				t.Errorf("suspects are %q, want a", got)
			}
			time.Sleep(10 * time.Minute)
			if got := w.inBucket(); len(got) > 0 {
				t.Errorf("published %q", got)
			}
			if err := h.Truncate(t.Context(), 0); err != nil {
				t.Fatal(err)
			}
			if _, err := h.WriteAt(t.Context(), []byte("all new"), 0); err != nil {
				t.Fatal(err)
			}
			if err := h.Sync(t.Context()); err != nil {
				t.Errorf("fsync of what was written anew: %v", err)
			}
			closeHandle(t, h)
			w.drain()
			w.holds("p/a", "all new")
			w.stop()
		})
	}
}

// Power is lost during an fsync, and another one has brought the journal to the disk: what
// the fsync before had brought there is published.
func TestFsyncThatIsCutOffPutsNothingInDoubt(t *testing.T) {
	base := strings.Repeat("object 16 bytes ", 20)
	for name, partial := range map[string]bool{"a file of its own": false, "some chunks of an object": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w, want := newPartialWorld(t, func(c *Config) { c.limits.inline = 3 }), "synced twice, or once"
				var h *Handle
				if partial {
					w.store.put("p/a", base)
					h, want = w.openToEdit("", "a"), want+base[len(want):]
				} else {
					h = w.create("a", "")
				}
				w.writeAt(h, "synced twice, or once", 0)
				if err := h.Sync(t.Context()); err != nil {
					t.Fatal(err)
				}
				w.writeAt(h, "SYNCED", 0)
				w.disk.Lock()
				w.disk.slow = w.space.path(h.file.id)
				w.disk.Unlock()
				ended := make(chan struct{})
				go func() {
					defer close(ended)
					_ = h.Sync(t.Context()) // of a machine that loses power meanwhile
				}()
				time.Sleep(time.Second)
				w.losePower()
				<-ended
				if got := w.space.Status().Suspects; len(got) > 0 {
					t.Errorf("suspects are %q", got)
				}
				w.drain()
				w.holds("p/a", want)
				w.stop()
			})
		})
	}
}

// While an fsync brings some chunks to the disk another one is written: the journal does
// not say that the disk has that.
func TestFsyncDoesNotVouchForWhatIsWrittenMeanwhile(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newPartialWorld(t, func(c *Config) { c.limits.inline = 3 })
		base := strings.Repeat("object 16 bytes ", 20)
		w.store.put("p/a", base)
		h := w.openToEdit("", "a")
		w.writeAt(h, "first", 0)
		if err := h.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.writeAt(h, "again", 0)
		w.disk.Lock()
		w.disk.slow = w.space.path(h.file.id)
		w.disk.late = func() {
			w.disk.Lock()
			w.disk.slow, w.disk.late = "", nil
			w.disk.Unlock()
			w.writeAt(h, "meanwhile", 160)
		}
		w.disk.Unlock()
		if err := h.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.losePower()
		got, err := w.read("", "a")
		if err != nil {
			t.Fatal(err)
		}
		if got[:5] != "again" || got[5:] != base[5:] && got[5:] != base[5:160]+"meanwhile"+base[169:] {
			t.Errorf("a holds %q", got)
		}
		w.checkJournal()
		w.stop()
	})
}

// An object is published, power is lost at once, and the file is written again: what
// is there is ours, not somebody else's.
func TestPublishedJustBeforeTheLossOfPowerIsNoConflict(t *testing.T) {
	for seed := range uint64(8) {
		bubble(t, func(t *testing.T) {
			w := worldOfFiles(t, seed)
			w.write("", "a", "first content")
			for len(w.inBucket()) == 0 {
				time.Sleep(time.Millisecond)
			}
			w.disk.onlySynced = true
			w.crash(true)
			w.write("", "a", "second content")
			w.drain()
			if got := w.space.Status().Conflicts; len(got) > 0 {
				t.Errorf("seed %d: conflicts %+v", seed, got)
			}
			w.holds("p/a", "second content")
			w.stop()
		})
	}
}

// A file is synced and closed at once, within one tick of the clock that tells writes
// apart. The close knows of no change and must not put in doubt what was synced.
func TestCloseAfterFsyncPutsNothingInDoubt(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := worldOfFiles(t, 1)
		h := w.create("a", "")
		h.OSFile() // the kernel may write to it
		if err := overlay(w.space.path(h.file.id), []byte("synced")); err != nil {
			t.Fatal(err)
		}
		// The clock of a bubble is not that of the disk.
		now := time.Now()
		if err := os.Chtimes(w.space.path(h.file.id), now, now); err != nil {
			t.Fatal(err)
		}
		if err := h.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
		gen := h.file.state().Gen
		closeHandle(t, h)
		if h.file.state().Gen == gen {
			t.Fatal("the close saw no change: that is not the case to be tested")
		}
		if err := w.space.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.disk.onlySynced = true
		w.crash(true)
		w.drain()
		w.holds("p/a", "synced")
		w.stop()
	})
}

// A shard is closed, and then latest, which travels in the journal; power is lost before
// the disk has the shard. Latest must not appear in the bucket without it, after another
// restart either, until one of the two is written again.
func TestLatestDoesNotOutliveItsLostShard(t *testing.T) {
	for name, mend := range map[string]func(w *world){
		"latest is written again":  func(w *world) { w.write("ckpt", "latest", "s2") },
		"the shard is, and closed": func(w *world) { w.write("ckpt/step", "shard", "a longer shard") },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := worldOfFiles(t, 1)
				w.store.put("p/ckpt/latest", "s0")
				w.write("ckpt/step", "shard", "longer than a record takes")
				w.write("ckpt", "latest", "s1")
				w.write("ckpt", "note", "s1")
				w.losePower()
				for restarted := range 2 {
					w.waits("ckpt/step/shard")
					got := w.inBucket()
					_, note := got["p/ckpt/note"]
					_, log := got["p/logs/log"]
					if got["p/ckpt/latest"] != "s0" || note || !log {
						t.Errorf("restarted %d times, the bucket has %q", restarted, got)
					}
					if st := w.space.Status(); st.FailingCount != 2 || !strings.Contains(st.Failing[0].Error, "ckpt/step/shard") {
						t.Errorf("status says %+v", st)
					}
					w.checkJournal()
					if err := w.space.compact(); err != nil {
						t.Fatal(err)
					}
					w.crash(false)
				}
				mend(w)
				w.write("ckpt", "note", "s2")
				w.drain()
				got := w.inBucket()
				if got["p/ckpt/latest"] == "s0" || got["p/ckpt/note"] != "s2" {
					t.Errorf("afterwards the bucket has %q", got)
				}
				w.stop()
			})
		})
	}
}

// losePower brings the journal to the disk with the fsync of another file, and no file
// beside that, and takes the power.
func (w *world) losePower() {
	w.Helper()
	h, err := w.space.Create(w.Context(), "logs", "log", CreateOptions{})
	if err != nil {
		w.Fatal(err)
	}
	if err := h.Sync(w.Context()); err != nil {
		w.Fatal(err)
	}
	w.disk.onlySynced = true
	w.crash(true)
}

// waits checks that a flush ends, and names the lost file.
func (w *world) waits(lost string) {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), time.Hour)
	defer cancel()
	if err := w.space.Flush(ctx, ""); err == nil || !strings.Contains(err.Error(), strconv.Quote(lost)) || ctx.Err() != nil {
		w.Errorf("flush says %v of what waits for %q", err, lost)
	}
}

// _SUCCESS stands beside its shards and is a new name: it must not appear without one
// that the power took either, unless it might have overtaken that.
func TestMarkerDoesNotOutliveTheLostShardBesideIt(t *testing.T) {
	for name, c := range map[string]struct {
		shard string
		later time.Duration
		waits bool
	}{
		"closed two seconds later":      {"longer than a record takes", 2 * time.Second, true},
		"closed within the same second": {"longer than a record takes", time.Second / 2, false},
		"the shard is large":            {strings.Repeat("large ", 100), time.Second / 2, true},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newWorldWith(t, 1, func(c *Config) {
					l := usualLimits
					l.inline, l.small = 3, 100
					c.limits = &l
				})
				h, err := w.space.Create(t.Context(), "ckpt/step", "shard", CreateOptions{})
				if err != nil {
					t.Fatal(err)
				}
				if _, err := h.WriteAt(t.Context(), []byte(c.shard), 0); err != nil {
					t.Fatal(err)
				}
				w.disk.Lock()
				w.disk.slow = w.space.path(h.file.id)
				w.disk.Unlock()
				closeHandle(t, h)
				time.Sleep(c.later)
				w.write("ckpt/step", "_SUCCESS", "ok")
				w.losePower()
				if got := w.space.Status().Suspects; len(got) != 1 || got[0] != "ckpt/step/shard" {
					t.Fatalf("suspects are %q: that is not the case to be tested", got)
				}
				if !c.waits {
					w.drain()
					w.holds("p/ckpt/step/_SUCCESS", "ok")
					w.stop()
					return
				}
				w.waits("ckpt/step/shard")
				if _, ok := w.inBucket()["p/ckpt/step/_SUCCESS"]; ok {
					t.Errorf("the bucket has %q", w.inBucket())
				}
				// The new shard comes before what waited for the old one.
				w.store.deny("p/ckpt/step/shard", true)
				w.write("ckpt/step", "shard", c.shard)
				if err := w.space.Flush(t.Context(), ""); !errors.Is(err, oss.ErrAccessDenied) {
					t.Errorf("flush says %v", err)
				}
				if _, ok := w.inBucket()["p/ckpt/step/_SUCCESS"]; ok {
					t.Errorf("before the new shard the bucket has %q", w.inBucket())
				}
				w.checkJournal()
				w.store.deny("p/ckpt/step/shard", false)
				w.drain()
				w.holds("p/ckpt/step/shard", c.shard)
				w.holds("p/ckpt/step/_SUCCESS", "ok")
				w.stop()
			})
		})
	}
}

// What waits for a lost file gets another name, or another mode: that is no reason to
// publish what it says.
func TestRenamedLatestDoesNotOutliveItsLostShard(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorldWith(t, 1, func(c *Config) {
			l := usualLimits
			l.inline = 3
			c.limits, c.Attrs = &l, true
		})
		w.store.put("p/ckpt/latest", "s0")
		w.store.put("p/ckpt/step/config", "before")
		w.write("ckpt/step", "shard", "longer than a record takes")
		w.write("ckpt", "latest", "s1")
		w.losePower()
		for restarted := range 2 {
			if restarted == 0 {
				if _, err := w.space.Rename(t.Context(), "ckpt", "latest", "ckpt", "newest", 0); err != nil {
					t.Fatal(err)
				}
				w.checkJournal()
			}
			mode := 0o600 + uint32(restarted)
			if _, err := w.space.SetAttr(t.Context(), "ckpt", "newest", SetAttr{Mode: &mode}); err != nil {
				t.Fatal(err)
			}
			w.waits("ckpt/step/shard")
			got := w.inBucket()
			if _, newest := got["p/ckpt/newest"]; newest || got["p/ckpt/latest"] != "s0" {
				t.Errorf("restarted %d times, the bucket has %q", restarted, got)
			}
			w.checkJournal()
			if err := w.space.compact(); err != nil {
				t.Fatal(err)
			}
			w.checkJournal()
			w.crash(false)
		}
		// What is moved into its place mends the loss.
		w.write("ckpt/step", "other", "a longer shard")
		if _, err := w.space.Rename(t.Context(), "ckpt/step", "other", "ckpt/step", "shard", 0); err != nil {
			t.Fatal(err)
		}
		w.drain()
		w.holds("p/ckpt/newest", "s1")
		w.holds("p/ckpt/step/shard", "a longer shard")
		if got, ok := w.inBucket()["p/ckpt/latest"]; ok {
			t.Errorf("latest is there still, and holds %q", got)
		}
		w.stop()
	})
}

// What nothing waits for is remembered as lost, but looked at no more.
func TestLossThatNothingWaitsForIsToldAndNoMore(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := worldOfFiles(t, 1)
		w.write("step", "shard", "longer than a record takes")
		w.write("", "latest", "s1")
		w.write("other", "shard", "longer than a record takes")
		w.losePower()
		told := func(want int) {
			t.Helper()
			w.checkJournal()
			w.space.mu.Lock()
			got := len(w.space.mu.Losses)
			w.space.mu.Unlock()
			if got != want {
				t.Errorf("%d losses precede something, want %d", got, want)
			}
			if got := w.space.Status().Suspects; len(got) != 2 {
				t.Errorf("suspects are %q", got)
			}
		}
		w.waits("step/shard")
		told(1)
		w.crash(false)
		told(1)
		if err := w.space.Unlink(t.Context(), "", "latest"); err != nil {
			t.Fatal(err)
		}
		told(0)
		w.drain()
		w.crash(false)
		told(0)
		w.stop()
	})
}

// A renamed object is changed before it is copied to its new name, and the loss of
// power takes the change: what was renamed is still there.
func TestRenamedObjectOutlivesItsLostChange(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := worldOfFiles(t, 1)
		w.store.put("p/old", "what was there")
		w.store.deny("p/new", true)
		if _, err := w.space.Rename(t.Context(), "", "old", "", "new", 0); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		h, err := w.space.Open(t.Context(), "", "new", OpenOptions{Write: true})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := h.WriteAt(t.Context(), []byte("What"), 0); err != nil {
			t.Fatal(err)
		}
		if err := h.Flush(t.Context()); !errors.Is(err, oss.ErrAccessDenied) {
			t.Fatal(err) // it tells of the copy
		}
		h.Release()
		if err := w.create("synced", "").Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.disk.onlySynced = true
		w.crash(true)
		if got, err := w.read("", "new"); err != nil || got != "what was there" {
			t.Errorf("new holds %q, %v", got, err)
		}
		w.checkJournal()
		w.store.deny("p/new", false)
		time.Sleep(10 * time.Minute) // a copy that was on its way is refused still, and tried again
		w.waits("new")
		w.holds("p/new", "what was there")
		w.write("", "synced", "again")
		w.drain()
		got := w.inBucket()
		if _, old := got["p/old"]; old || got["p/new"] != "what was there" {
			t.Errorf("the bucket has %q", got)
		}
		w.stop()
	})
}

// A close that waits for the bucket does not wait for ever behind what waits for a lost
// file.
func TestCloseThatWaitsForTheBucketTellsOfTheLostFile(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorldWith(t, 1, func(c *Config) {
			l := usualLimits
			l.inline = 3
			c.limits = &l
			c.Through = func(path string) bool { return path == "ckpt/next" }
		})
		w.store.put("p/ckpt/latest", "s0")
		w.write("ckpt/step", "shard", "longer than a record takes")
		w.write("ckpt", "latest", "s1")
		w.losePower()
		h, err := w.space.Create(t.Context(), "ckpt", "next", CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := h.WriteAt(t.Context(), []byte("s2"), 0); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if err := h.Flush(ctx); err == nil || !strings.Contains(err.Error(), `"ckpt/step/shard"`) {
			t.Errorf("close says %v", err)
		}
		h.Release()
		w.stop()
	})
}
