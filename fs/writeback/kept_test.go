package writeback

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// watchOrder fails the test if after appears while the bucket has nothing at before.
func (w *world) watchOrder(before, after string) {
	w.store.Lock()
	defer w.store.Unlock()
	w.store.seen = func(key string, _ []byte) {
		if _, ok := w.store.objects[before]; key == after && !ok {
			w.Errorf("%s appeared while there was no %s", after, before)
		}
	}
}

// move renames a file within a directory.
func (w *world) move(dir, from, to string) {
	w.Helper()
	if _, err := w.space.Rename(w.Context(), dir, from, dir, to, 0); err != nil {
		w.Fatal(err)
	}
}

// shard closes a shard, which is not published before the key may be written, and then
// latest above it.
func (w *world) shard() {
	w.Helper()
	if err := w.space.Mkdir(w.Context(), "", "d", SetAttr{}); err != nil {
		w.Fatal(err)
	}
	w.write("d", "s.bin", "one")
	time.Sleep(2 * time.Second)
	w.write("", "latest", "d/s.bin")
}

// moved replaces the shard.
func (w *world) moved(content string) {
	w.Helper()
	w.write("d", "s.tmp", content)
	w.move("d", "s.tmp", "s.bin")
	w.checkJournal()
	if got, err := w.read("d", "s.bin"); err != nil || got != content {
		w.Errorf("s.bin holds %q, %v", got, err)
	}
}

// A shard is closed, then latest above it, and the shard is replaced before anything is
// published: latest must not appear where there is no shard at all.
func TestReplacedShardAppearsBeforeLatest(t *testing.T) {
	killed := func(w *world) { w.crash(false) }
	for name, row := range map[string]struct {
		// refused says that the first request for the shard is not even begun before it is
		// replaced, else it is under way.
		refused bool
		replace func(w *world)
	}{
		"moved over":                      {true, func(w *world) { w.moved("two") }},
		"moved over twice":                {true, func(w *world) { w.moved("one and a half"); w.moved("two") }},
		"moved over, killed":              {true, func(w *world) { w.moved("two"); killed(w) }},
		"moved over in flight":            {false, func(w *world) { w.moved("two") }},
		"moved over in flight, killed":    {false, func(w *world) { w.moved("two"); killed(w) }},
		"written again in flight":         {false, func(w *world) { w.write("d", "s.bin", "two") }},
		"written again in flight, killed": {false, func(w *world) { w.write("d", "s.bin", "two"); killed(w) }},
		"compacted": {true, func(w *world) {
			w.moved("two")
			if err := w.space.compact(); err != nil {
				w.Fatal(err)
			}
			killed(w)
		}},
		"latest written again meanwhile": {true, func(w *world) {
			w.write("", "latest", "d/s.bin")
			w.moved("two")
		}},
		"moved on": {true, func(w *world) {
			w.moved("other")
			w.move("d", "s.bin", "t.bin")
			w.write("d", "s.bin", "two")
		}},
		"removed and made anew": {true, func(w *world) {
			w.moved("other")
			if err := w.space.Unlink(w.Context(), "d", "s.bin"); err != nil {
				w.Fatal(err)
			}
			w.write("d", "s.bin", "two")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newWorld(t, 1)
				w.watchOrder("p/d/s.bin", "p/latest")
				w.deny("p/d/s.bin", row.refused)
				if !row.refused {
					w.slowly(time.Minute)
				}
				w.shard()
				row.replace(w)
				time.Sleep(time.Second)
				w.checkJournal()
				w.deny("p/d/s.bin", false)
				w.slowly(0)
				time.Sleep(time.Second)
				w.drain()
				w.holds("p/latest", "d/s.bin")
				w.holds("p/d/s.bin", "two")
				time.Sleep(time.Hour)
				if staged, err := os.ReadDir(filepath.Join(w.cfg.Dir, stagedDir)); err != nil || len(staged) > 0 {
					t.Errorf("%d staged files are left, %v", len(staged), err)
				}
				w.stop()
			})
		})
	}
}

// A replaced shard for which nothing waits costs no request.
func TestReplacedFileForWhichNothingWaitsIsNotPublished(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, 1)
		w.deny("p/d/s.bin", true)
		if err := w.space.Mkdir(t.Context(), "", "d", SetAttr{}); err != nil {
			t.Fatal(err)
		}
		w.store.seen = func(_ string, content []byte) {
			if string(content) == "one" {
				t.Error("the replaced content was published")
			}
		}
		w.write("d", "s.bin", "one")
		time.Sleep(2 * time.Second)
		w.moved("two")
		w.deny("p/d/s.bin", false)
		w.drain()
		w.holds("p/d/s.bin", "two")
		w.stop()
	})
}

// A shard that is replaced and then removed is gone in the end.
func TestReplacedShardIsRemovedAfterAll(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, 1)
		w.watchOrder("p/d/s.bin", "p/latest")
		w.deny("p/d/s.bin", true)
		w.shard()
		w.moved("two")
		if err := w.space.Unlink(t.Context(), "d", "s.bin"); err != nil {
			t.Fatal(err)
		}
		w.deny("p/d/s.bin", false)
		w.drain()
		if got, ok := w.inBucket()["p/d/s.bin"]; ok {
			t.Errorf("the bucket has %q at p/d/s.bin", got)
		}
		time.Sleep(time.Hour)
		w.stop()
	})
}

// Who goes on writing to a replaced file, which has no name any more, holds up nothing.
func TestReplacedFileThatStaysOpenHoldsUpNothing(t *testing.T) {
	for name, before := range map[string]bool{"opened before": true, "mapped": false} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newWorld(t, 1)
				w.watchOrder("p/d/s.bin", "p/latest")
				w.deny("p/d/s.bin", true)
				w.shard()
				h, err := w.space.Open(t.Context(), "d", "s.bin", OpenOptions{Write: true})
				if err != nil {
					t.Fatal(err)
				}
				mapped, err := os.OpenFile(h.OSFile().Name(), os.O_RDWR, 0)
				if err != nil {
					t.Fatal(err)
				}
				defer mapped.Close()
				if !before {
					h.Release()
				}
				w.moved("two")
				w.deny("p/d/s.bin", false)
				for range 40 {
					// As stores through a mapping do.
					if _, err := mapped.WriteAt([]byte("x"), 1); err != nil {
						t.Fatal(err)
					}
					time.Sleep(time.Second)
				}
				w.holds("p/d/s.bin", "two")
				if before {
					h.Release()
				}
				w.drain()
				w.stop()
			})
		})
	}
}

// Somebody else puts an object there: ours goes beside it, once.
func TestReplacedShardMeetsAConflict(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, 1)
		w.deny("p/d/s.bin", true)
		w.shard()
		w.moved("two")
		w.store.put("p/d/s.bin", "theirs")
		w.deny("p/d/s.bin", false)
		w.drain()
		got := w.inBucket()
		w.holds("p/d/s.bin", "theirs")
		w.holds("p/latest", "d/s.bin")
		ours := 0
		for key, content := range got {
			if strings.HasPrefix(key, "p/d/s.bin.conflict-") {
				if ours++; content != "two" {
					t.Errorf("%s holds %q", key, content)
				}
			}
		}
		if ours != 1 || len(w.space.Status().Conflicts) != 1 {
			t.Errorf("the bucket has %q, status %v", got, w.space.Status().Conflicts)
		}
		time.Sleep(time.Hour)
		w.stop()
	})
}

// refusing returns a world that refuses the shard, and in which those directories are and hardly anything
// travels inside records: the loss of power takes what nobody synced.
func refusing(t *testing.T, dirs ...string) *world {
	t.Helper()
	w := newWorldWith(t, 1, func(c *Config) {
		l := usualLimits
		l.inline = 10
		c.limits = &l
	})
	w.deny("p/d/s.bin", true)
	for _, dir := range dirs {
		if err := w.space.Mkdir(t.Context(), "", dir, SetAttr{}); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(2 * time.Second)
	return w
}

// The power takes the replaced shard: latest waits for what is there instead.
func TestLostReplacedShardIsWaitedFor(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := refusing(t, "d", "logs")
		w.watchOrder("p/d/s.bin", "p/latest")
		// Nothing of this comes to the disk by itself: no time passes.
		w.write("d", "s.bin", "longer than a record takes")
		w.write("d", "u.bin", "2")
		w.write("", "latest", "d/s.bin")
		w.moved("two")
		if len(w.space.mu.Kept) != 1 {
			t.Fatal("nothing is kept: that is not the case to be tested")
		}
		w.losePower()
		w.checkJournal()
		if len(w.space.mu.Kept) != 0 || len(w.space.Status().Suspects) != 1 {
			t.Errorf("kept are %v, suspects %v", w.space.mu.Kept, w.space.Status().Suspects)
		}
		w.deny("p/d/s.bin", false)
		// A request that is under way is refused still.
		time.Sleep(time.Second)
		w.drain()
		w.holds("p/d/s.bin", "two")
		w.holds("p/latest", "d/s.bin")
		w.stop()
	})
}

// What a dead node left: both contents are told, the newest is copied out, and both are
// given up.
func TestReplacedShardThatADeadNodeLeft(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, 1)
		w.deny("p/d/s.bin", true)
		w.shard()
		w.moved("two")
		dir := w.leave(false)
		r, err := Inspect(dir)
		if err != nil {
			t.Fatal(err)
		}
		var replaced []string
		for _, s := range r.Pending {
			if s.Path == "d/s.bin" {
				replaced = append(replaced, map[bool]string{true: "old", false: "new"}[s.Replaced])
			}
		}
		if diff := cmp.Diff([]string{"old", "new"}, replaced); diff != "" {
			t.Errorf("d/s.bin (-want +got):\n%s", diff)
		}
		out := filepath.Join(t.TempDir(), "out")
		files, err := Export(context.Background(), dir, "d", out)
		if err != nil || len(files) != 1 || files[0].Err != nil {
			t.Errorf("export: %+v, %v", files, err)
		}
		if got, err := os.ReadFile(filepath.Join(out, "d/s.bin")); err != nil || string(got) != "two" {
			t.Errorf("exported is %q, %v", got, err)
		}
		if err := Discard(dir, "d/s.bin", func([]Staged) error { return nil }); err != nil {
			t.Fatal(err)
		}
		if r, err = Inspect(dir); err != nil || strings.Contains(strings.Join(changes(r), " "), "s.bin") {
			t.Errorf("after that there is %v, %v", changes(r), err)
		}
		w.cfg.Dir = dir
		w.start()
		w.deny("p/d/s.bin", false)
		w.drain()
		w.holds("p/latest", "d/s.bin")
		w.holds("p/d/s.bin", "")
		time.Sleep(time.Hour)
		w.stop()
	})
}

// What is saved again and again under one name while the object store cannot be reached
// is kept as far as it occupies a quarter of the room.
func TestReplacedFilesAreKeptInAQuarterOfTheRoom(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorldWith(t, 1, func(c *Config) { c.StagingSize = 1 << 20 })
		w.watchOrder("p/d/s.bin", "p/latest")
		w.deny("p/d/s.bin", true)
		w.shard()
		content := ""
		for i := range 8 {
			content = strings.Repeat(string(rune('a'+i)), 100<<10)
			w.moved(content)
			time.Sleep(2 * time.Second)
			w.write("", "latest", content[:1])
		}
		if n := len(w.space.mu.Kept); n != 3 {
			t.Errorf("%d files are kept, want the first of 3 bytes and two of 100 KiB", n)
		}
		w.deny("p/d/s.bin", false)
		w.drain()
		w.holds("p/d/s.bin", content)
		w.holds("p/latest", content[:1])
		time.Sleep(time.Hour)
		if staged, err := os.ReadDir(filepath.Join(w.cfg.Dir, stagedDir)); err != nil || len(staged) > 0 {
			t.Errorf("%d staged files are left, %v", len(staged), err)
		}
		w.stop()
	})
}

// The disk fails under a file that is kept: latest waits for what has its name now.
func TestKeptFileThatTheDiskLosesIsWaitedFor(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorldWith(t, 1, func(c *Config) {
			l := usualLimits
			l.inline = 3
			c.limits = &l
		})
		w.watchOrder("p/d/s.bin", "p/latest")
		w.deny("p/d/s.bin", true)
		if err := w.space.Mkdir(t.Context(), "", "d", SetAttr{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		// No time passes: nothing of this is on the disk yet.
		w.write("d", "s.bin", "longer than a record takes")
		w.write("", "latest", "two")
		w.moved("two")
		if len(w.space.mu.Kept) != 1 {
			t.Fatal("nothing is kept: that is not the case to be tested")
		}
		w.disk.Lock()
		w.disk.fail = syscall.EIO
		w.disk.Unlock()
		for file := range w.space.mu.KeptOf {
			if err := w.space.commitFile(w.space.mu.files[file]); err != nil {
				t.Log(err)
			}
		}
		w.disk.Lock()
		w.disk.fail = nil
		w.disk.Unlock()
		w.checkJournal()
		if len(w.space.mu.Kept) != 0 || len(w.space.Status().Suspects) == 0 {
			t.Errorf("kept are %v, suspects %v", w.space.mu.Kept, w.space.Status().Suspects)
		}
		w.deny("p/d/s.bin", false)
		w.drain()
		w.holds("p/d/s.bin", "two")
		w.holds("p/latest", "two")
		w.stop()
	})
}

// An object is moved away, a new file takes its name and is replaced, and the object comes
// back: what is kept there must not destroy it.
func TestObjectThatComesBackIsNotReplacedByWhatWasKept(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, 1)
		w.store.put("p/d/s.bin", "the object")
		w.store.put("p/d/other", "x")
		for _, key := range []string{"p/d/s.bin", "p/d/away"} {
			w.deny(key, true)
		}
		w.move("d", "s.bin", "away")
		w.write("d", "s.bin", "one")
		time.Sleep(2 * time.Second)
		w.write("", "latest", "d/s.bin")
		w.moved("two")
		if len(w.space.mu.Kept) != 1 {
			t.Fatal("nothing is kept: that is not the case to be tested")
		}
		w.move("d", "away", "s.bin")
		w.checkJournal()
		for _, key := range []string{"p/d/s.bin", "p/d/away"} {
			w.deny(key, false)
		}
		w.drain()
		w.holds("p/d/s.bin", "the object")
		w.holds("p/latest", "d/s.bin")
		w.holds("p/d/away", "")
		w.stop()
	})
}

// What is kept is to be copied, and somebody else removes the object: latest waits for
// what has the name now, and nothing is reported as lost.
func TestKeptCopyWhoseObjectIsGoneIsWaitedFor(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, 1)
		w.watchOrder("p/d/s.bin", "p/latest")
		w.store.put("p/d/old", "the object")
		w.deny("p/d/s.bin", true)
		w.move("d", "old", "s.bin")
		time.Sleep(2 * time.Second)
		w.write("", "latest", "d/s.bin")
		w.moved("two")
		if len(w.space.mu.Kept) != 1 {
			t.Fatal("nothing is kept: that is not the case to be tested")
		}
		w.store.Lock()
		delete(w.store.objects, "p/d/old")
		w.store.Unlock()
		w.slowly(5 * time.Second)
		w.deny("p/d/s.bin", false)
		w.drain()
		w.holds("p/d/s.bin", "two")
		w.holds("p/latest", "d/s.bin")
		if got := w.space.Status().Conflicts; len(got) > 0 {
			t.Errorf("conflicts are %+v, but what was replaced is not missed", got)
		}
		w.checkJournal()
		w.stop()
	})
}

// The power takes what replaced a kept shard, and what was closed beside it since waits:
// whoever writes the shard again ends that.
func TestLostShardBehindAKeptOneIsWrittenAgain(t *testing.T) {
	for _, made := range []bool{false, true} {
		bubble(t, func(t *testing.T) {
			w := refusing(t, "d", "logs")
			w.write("d", "s.bin", "1")
			w.write("", "latest", "1")
			w.write("d", "s.tmp", "2 longer than a record takes")
			w.move("d", "s.tmp", "s.bin")
			if made {
				w.write("d", "_SUCCESS", "2")
			}
			w.write("", "latest", "2")
			w.losePower()
			w.write("d", "s.bin", "3")
			w.write("", "latest", "3")
			w.deny("p/d/s.bin", false)
			time.Sleep(time.Minute)
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			if err := w.space.Flush(ctx, ""); err != nil {
				t.Errorf("made %v: %v", made, err)
			}
			w.holds("p/d/s.bin", "3")
			w.holds("p/latest", "3")
			w.stop()
		})
	}
}

// The power takes a kept shard, and what is beside it was closed before what has its name:
// that gets the place, and nothing waits for ever.
func TestPlaceOfALostKeptShardGoesToItsSuccessor(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorldWith(t, 1, func(c *Config) {
			l := usualLimits
			l.inline = 10
			c.limits = &l
		})
		w.store.put("p/d/_SUCCESS", "old")
		w.deny("p/d/s.bin", true)
		if err := w.space.Mkdir(t.Context(), "", "logs", SetAttr{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		w.write("d", "s.bin", "1 longer than a record takes")
		w.write("", "latest", "1")
		w.write("d", "_SUCCESS", "1")
		w.moved("2")
		w.losePower()
		w.checkJournal()
		w.watchOrder("p/d/s.bin", "p/latest")
		w.deny("p/d/s.bin", false)
		// A request that is under way is refused still.
		time.Sleep(time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if err := w.space.Flush(ctx, ""); err != nil {
			t.Error(err)
		}
		w.holds("p/d/s.bin", "2")
		w.holds("p/d/_SUCCESS", "1")
		w.holds("p/latest", "1")
		w.stop()
	})
}

// A shard is moved over one of which the power took the last change: what was closed after
// that change comes after the new one.
func TestWhatIsMovedOverASuspectShardHasItsPlace(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorldWith(t, 1, func(c *Config) {
			l := usualLimits
			l.inline, l.small = 10, 10
			c.limits = &l
		})
		w.deny("p/d/s.bin", true)
		for _, dir := range []string{"d", "logs"} {
			if err := w.space.Mkdir(t.Context(), "", dir, SetAttr{}); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(2 * time.Second)
		h := w.startWriting("d", "s.bin", "1 longer than a record takes")
		if err := h.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.finish(h)
		w.write("d", "s.bin", "2 longer than a record takes")
		w.write("", "latest", "2")
		w.losePower()
		if got := w.space.Status().Suspects; len(got) != 1 {
			t.Fatalf("suspects are %q, want the shard", got)
		}
		w.watchOrder("p/d/s.bin", "p/latest")
		w.moved("3")
		time.Sleep(time.Minute)
		w.deny("p/d/s.bin", false)
		w.drain()
		w.holds("p/d/s.bin", "3")
		w.holds("p/latest", "2")
		w.stop()
	})
}
