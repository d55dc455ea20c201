package writeback

import (
	"errors"
	"io/fs"
	"maps"
	"syscall"
	"testing"
	"time"

	"github.com/pailfs/pailfs/fs/writeback/internal/attrs"
	"github.com/pailfs/pailfs/fs/writeback/internal/state"
	"github.com/pailfs/pailfs/oss"
)

// marker returns the metadata of the object at key, nil if there is none.
func (w *world) marker(key string) (meta map[string]string, content string) {
	w.store.Lock()
	defer w.store.Unlock()
	o := w.store.objects[key]
	return o.Meta, string(o.content)
}

// give changes attributes of a directory.
func (w *world) give(dir, base string, mode, owner uint32, mtime time.Time) {
	w.Helper()
	if err := w.space.SetDirAttr(w.Context(), dir, base, SetAttr{Mode: &mode, UID: &owner, GID: &owner, Mtime: &mtime}); err != nil {
		w.Fatal(err)
	}
}

// What a directory is given is in its marker as ossfs 1 has it, after a crash, after it was
// renamed, and beside what else the marker has.
func TestMarkersKeepTheAttributesOfDirectories(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorldWith(t, 1, func(c *Config) { c.Attrs = true })
		w.store.Lock()
		w.store.store("p/old/", []byte("of others"), oss.PutOptions{ContentType: "x/y", Meta: map[string]string{"color": "red", "mode": "1"}}, "")
		w.store.Unlock()
		w.store.put("p/bare/file", "content")
		if err := w.space.Mkdir(t.Context(), "", "new", SetAttr{}); err != nil {
			t.Fatal(err)
		}
		want := map[string]string{"mode": "16832", "uid": "7", "gid": "7", "mtime": "1000000000", "pailfs-mtime": "1000000000.000000005"} // 040700
		for _, d := range []string{"new", "old", "bare"} {
			w.give("", d, 0o700, 7, time.Unix(1e9, 5))
		}
		w.crash(false)
		for _, d := range []string{"new", "old", "bare"} {
			e, _, err := w.space.Lookup(t.Context(), "", d)
			if err != nil || e.Attr == nil || e.Attr.Mode != 0o700 || e.Attr.UID != 7 || !e.Attr.MTime.Equal(time.Unix(1e9, 5)) {
				t.Errorf("after a crash %s has %+v, %v", d, e.Attr, err)
			}
		}
		w.drain()
		for _, d := range []string{"new", "bare"} {
			if got, _ := w.marker("p/" + d + "/"); !maps.Equal(got, want) {
				t.Errorf("the marker of %s says %v, want %v", d, got, want)
			}
		}
		all := maps.Clone(want)
		all["color"] = "red"
		if got, content := w.marker("p/old/"); !maps.Equal(got, all) || content != "of others" {
			t.Errorf("the marker of others says %v and holds %q, want %v", got, content, all)
		}
		later := time.Unix(2e9, 0)
		if err := w.space.SetDirAttr(t.Context(), "", "old", SetAttr{Mtime: &later}); err != nil {
			t.Fatal(err)
		}
		w.give("", "new", 0o700, 7, later)
		if _, err := w.space.Rename(t.Context(), "", "new", "", "moved", 0); err != nil {
			t.Fatal(err)
		}
		w.drain()
		want["mtime"] = "2000000000"
		delete(want, "pailfs-mtime")
		if got, _ := w.marker("p/moved/"); !maps.Equal(got, want) {
			t.Errorf("the marker of the renamed directory says %v, want %v", got, want)
		}
		all["mtime"] = "2000000000"
		delete(all, "pailfs-mtime")
		if got, _ := w.marker("p/old/"); !maps.Equal(got, all) {
			t.Errorf("the marker of others says %v, want %v", got, all)
		}
		if err := w.space.Rmdir(t.Context(), "", "moved"); err != nil {
			t.Fatal(err)
		}
		w.drain()
		if got := w.inBucket(); len(got) != 3 {
			t.Errorf("the bucket has %q", got)
		}
		w.nothingLeft()
		w.space.mu.Lock()
		if n := len(w.space.mu.Dirs) + len(w.space.mu.Names); n > 0 {
			t.Errorf("%d directories are remembered: %v %v", n, w.space.mu.Dirs, w.space.mu.Names)
		}
		w.space.mu.Unlock()
		w.stop()
	})
}

// TestDirectoryHasItsAttributesFromTheBeginning: wherever the journal ends, a directory is there with
// what mkdir gave it, or not at all.
func TestDirectoryHasItsAttributesFromTheBeginning(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorldWith(t, 1, func(c *Config) { c.Attrs = true })
		mode, owner, made := uint32(0o700), uint32(7), time.Unix(1e9, 5)
		if err := w.space.Mkdir(t.Context(), "", "d", SetAttr{Mode: &mode, UID: &owner, GID: &owner, Mtime: &made}); err != nil {
			t.Fatal(err)
		}
		want := attrs.Attrs{Mode: mode, UID: owner, GID: owner, Mtime: made.UnixNano(), Set: true}
		st, there := state.NewState(), false
		w.records(func(r state.Record) {
			st.Apply(r)
			if _, ok := st.Lookup("", "d"); ok {
				there = true
				if got := st.Dirs["p/d/"].Attr; got != want {
					t.Errorf("after a %T the directory has %+v, want %+v", r, got, want)
				}
			}
		})
		if !there {
			t.Error("the directory is not there")
		}
		w.drain()
		if got, _ := w.marker("p/d/"); got["mode"] != "16832" || got["uid"] != "7" || got["mtime"] != "1000000000" {
			t.Errorf("the marker says %v", got)
		}
		w.stop()
	})
}

// TestFailedMkdirLeavesNothing: what the journal could not take is not there, also when it can again.
func TestFailedMkdirLeavesNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorldWith(t, 1, func(c *Config) { c.Attrs = true })
		w.write("", "before", "content")
		w.drain()
		w.unwritable(syscall.EBADF)
		mode, owner := uint32(0o700), uint32(7)
		if err := w.space.Mkdir(t.Context(), "", "d", SetAttr{Mode: &mode, UID: &owner, GID: &owner}); err == nil {
			t.Error("mkdir succeeded without a journal")
		}
		w.unwritable(nil)
		if _, _, err := w.space.Lookup(t.Context(), "", "d"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the directory that could not be made: %v, want ErrNotExist", err)
		}
		w.checkJournal()
		w.drain()
		if got := w.inBucket(); len(got) != 1 {
			t.Errorf("the bucket has %q", got)
		}
		if err := w.space.Mkdir(t.Context(), "", "d", SetAttr{}); err != nil {
			t.Errorf("mkdir after one that failed: %v", err)
		}
		w.drain()
		if _, ok := w.inBucket()["p/d/"]; !ok {
			t.Error("the directory has no marker")
		}
		w.stop()
	})
}

// Without Attrs no attribute of a directory is taken.
func TestDirectoriesTakeNoAttributesThatNothingKeeps(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, 1)
		if err := w.space.Mkdir(t.Context(), "", "d", SetAttr{}); err != nil {
			t.Fatal(err)
		}
		mode := uint32(0o700)
		if err := w.space.Mkdir(t.Context(), "", "e", SetAttr{Mode: &mode}); err != syscall.ENOTSUP { //nolint:errorlint // it is not wrapped
			t.Errorf("%v, want ENOTSUP", err)
		}
		if err := w.space.SetDirAttr(t.Context(), "", "d", SetAttr{Mode: &mode}); err != syscall.ENOTSUP { //nolint:errorlint // it is not wrapped
			t.Errorf("%v, want ENOTSUP", err)
		}
		w.stop()
	})
}
