package writeback

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// leave stops the world as kill -9 does and returns the directory that is left, with
// what was not synced gone or not.
func (w *world) leave(powerLost bool) string {
	w.Helper()
	next := filepath.Join(w.root, "left")
	release := w.space.journal.Hold()
	_, err := w.copyDir(w.cfg.Dir, next, powerLost)
	w.bucket.kill()
	release()
	if err != nil {
		w.Fatal(err)
	}
	w.cancel()
	<-w.ended
	if err := w.space.Close(); err != nil && w.disk.fail == nil {
		w.Fatal(err)
	}
	w.closeBase()
	return next
}

// changes returns what a report says is pending, suspect and unfinished.
func changes(r Report) []string {
	var all []string
	for _, s := range r.Pending {
		all = append(all, s.Doing+" "+s.Path)
	}
	for _, s := range r.Suspects {
		all = append(all, "suspect "+s.Path)
	}
	for _, s := range r.Unfinished {
		all = append(all, "unfinished "+s.Path)
	}
	return all
}

// quietly makes nothing be published.
func quietly(t *testing.T, seed uint64) *world {
	t.Helper()
	w := newWorldWith(t, seed, func(c *Config) {
		l := usualLimits
		l.inline = 10
		c.limits = &l
		c.Busy = func() bool { return true }
	})
	return w
}

func TestInspectSaysWhatTheNextRunFinds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := quietly(t, 1)
		w.store.put("p/old", "before")
		w.write("", "closed", "longer than a record takes")
		if _, err := w.space.Rename(t.Context(), "", "old", "", "new", 0); err != nil {
			t.Fatal(err)
		}
		h, err := w.space.Create(t.Context(), "", "open", CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := h.WriteAt(t.Context(), []byte("never closed"), 0); err != nil {
			t.Fatal(err)
		}
		if _, err := Inspect(w.cfg.Dir); !errors.Is(err, ErrInUse) {
			t.Errorf("inspect of a directory in use: %v", err)
		}
		dir := w.leave(false)
		boot := w.space.boot
		before := read(t, dir)

		// The same boot: what was closed is there.
		l, err := openLeftAs(dir, syscall.LOCK_SH, boot)
		if err != nil {
			t.Fatal(err)
		}
		want := []string{"upload closed", "copy new", "delete old", "unfinished open"}
		if diff := cmp.Diff(want, changes(l.report)); diff != "" {
			t.Errorf("same boot (-want +got):\n%s", diff)
		}
		l.close()
		if diff := cmp.Diff(before, read(t, dir)); diff != "" {
			t.Errorf("looking has changed the directory (-before +after):\n%s", diff)
		}

		// Giving up the renamed file leaves the old name what it was.
		var lost []string
		err = discard(realDisk{}, dir, "new", func(list []Staged) error {
			for _, s := range list {
				lost = append(lost, s.Doing+" "+s.Path)
			}
			return nil
		})
		if diff := cmp.Diff([]string{"copy new", "delete old"}, lost); diff != "" || err != nil {
			t.Errorf("discard (-want +got): %v\n%s", err, diff)
		}
		w.cfg.Dir = dir
		w.start()
		w.drain()
		if diff := cmp.Diff(map[string]string{"p/old": "before", "p/closed": "longer than a record takes"}, w.inBucket()); diff != "" {
			t.Errorf("bucket (-want +got):\n%s", diff)
		}
		if got, err := w.read("", "old"); got != "before" || err != nil {
			t.Errorf("old reads %q, %v", got, err)
		}
		w.stop()
	})
}

// read returns every file of a directory.
func read(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := make(map[string]string)
	err := filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		all[path] = string(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestSuspectsAreListedAndExported: what the loss of power took some of is listed,
// copied out under a name that says so, and not published.
func TestSuspectsAreListedAndExported(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := quietly(t, 3)
		w.disk.Lock()
		w.disk.fail = errors.New("no sync ends before the power goes")
		w.disk.Unlock()
		w.write("d", "closed", "longer than a record takes")
		dir := w.leave(false)
		// Another boot, although nothing is missing: nobody can know that.
		r, err := Inspect(dir)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{"suspect d/closed"}, changes(r)); diff != "" {
			t.Errorf("inspect (-want +got):\n%s", diff)
		}
		to := filepath.Join(w.root, "rescued")
		files, err := Export(t.Context(), dir, "", to)
		if err != nil || len(files) != 1 || files[0].Err != nil || !files[0].Suspect || !strings.HasPrefix(files[0].To, "d/closed.suspect-") {
			t.Fatalf("export: %+v, %v", files, err)
		}
		if got, err := os.ReadFile(filepath.Join(to, files[0].To)); string(got) != "longer than a record takes" {
			t.Errorf("exported %q, %v", got, err)
		}
		files, err = Export(t.Context(), dir, "d", to)
		if err != nil || len(files) != 1 || !errors.Is(files[0].Err, os.ErrExist) {
			t.Errorf("export over a file: %+v, %v", files, err)
		}
		if err := discard(realDisk{}, dir, "d/closed", func([]Staged) error { return nil }); err != nil {
			t.Error(err)
		}
		if r, err = Inspect(dir); err != nil || len(changes(r)) != 0 {
			t.Errorf("after discard: %q, %v", changes(r), err)
		}
	})
}

// TestDiscardThatStopsHalfway: the journal says first what is given up.
func TestDiscardThatStopsHalfway(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for _, path := range []string{"", "a"} {
			w := quietly(t, 4)
			w.write("", "a", "longer than a record takes")
			dir := w.leave(false)
			if err := discard(failingDisk{}, dir, path, func([]Staged) error { return nil }); err == nil {
				t.Fatal("a disk that fails was not noticed")
			}
			if left, err := os.ReadDir(filepath.Join(dir, stagedDir)); len(left) != 1 || err != nil {
				t.Errorf("%q: the bytes went before the journal said so: %v, %v", path, left, err)
			}
			refused := errors.New("refused")
			if err := discard(realDisk{}, dir, "", func([]Staged) error { return refused }); path == "" && !errors.Is(err, refused) {
				t.Errorf("not agreed: %v", err)
			}
		}
	})
}

// failingDisk syncs nothing.
type failingDisk struct{ realDisk }

func (failingDisk) Sync(*os.File) error { return syscall.EIO }

// TestRoomIsKeptAheadOfTheKernel: what the kernel writes past us asks for no room, so
// that is looked after as long as a file is open for writing.
func TestRoomIsKeptAheadOfTheKernel(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, 6)
		h, err := w.space.Create(t.Context(), "", "open", CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		sleep(t.Context(), time.Second)
		w.disk.Lock()
		w.disk.full = true
		w.disk.Unlock()
		before := w.cache.asked.Load()
		sleep(t.Context(), 2*roomEvery)
		if n := w.cache.asked.Load() - before; n < spareRoom {
			t.Errorf("the cache was asked for %d bytes while a file is open", n)
		}
		if err := h.Flush(t.Context()); err != nil {
			t.Error(err)
		}
		h.Release()
		sleep(t.Context(), time.Second)
		before = w.cache.asked.Load()
		sleep(t.Context(), 20*roomEvery)
		if n := w.cache.asked.Load() - before; n != 0 {
			t.Errorf("the cache was asked for %d bytes while nothing is open", n)
		}
		w.drain()
		w.stop()
	})
}

// TestFullDiskTakesFromTheCache: what was written comes before what can be fetched
// again.
func TestFullDiskTakesFromTheCache(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, 5)
		w.write("", "a", "first")
		if n := w.cache.asked.Load(); n != 0 {
			t.Errorf("the cache was asked for %d bytes of a disk with room", n)
		}
		w.disk.Lock()
		w.disk.full = true
		w.disk.Unlock()
		sleep(t.Context(), usageAge)
		w.write("", "b", "second")
		if n := w.cache.asked.Load(); n < spareRoom {
			t.Errorf("the cache was asked for %d bytes of a full disk", n)
		}
		// A disk on which not a byte is left.
		w.cache.gives.Store(1)
		before, tries := w.cache.asked.Load(), 0
		err := w.space.withRoom(t.Context(), 1<<30, func() error {
			if tries++; tries == 1 {
				return &os.PathError{Op: "write", Path: "x", Err: syscall.ENOSPC}
			}
			return nil
		})
		if err != nil || tries != 2 || w.cache.asked.Load()-before != 1<<30 {
			t.Errorf("%d tries, %d bytes asked for, %v", tries, w.cache.asked.Load()-before, err)
		}
		w.cache.gives.Store(0)
		err = w.space.withRoom(t.Context(), 1, func() error { return syscall.ENOSPC })
		if !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("a disk that stays full: %v", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := w.space.withRoom(ctx, 1, func() error { return syscall.ENOSPC }); !errors.Is(err, syscall.EINTR) {
			t.Errorf("interrupted: %v", err)
		}
		w.drain()
		w.stop()
	})
}
