package fs

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pailfs/pailfs/cache"
	"github.com/pailfs/pailfs/manifest"
)

func TestAttributesOfAManifestAreShown(t *testing.T) {
	w := newWorld()
	w.put("dir/all", 1)
	w.put("dir/some", 1)
	set := func(dir, name string, a *manifest.Attr) {
		w.mu.Lock()
		defer w.mu.Unlock()
		e := w.mu.dirs[dir][name]
		e.Attr = a
		w.mu.dirs[dir][name] = e
		delete(w.mu.sorted, dir)
	}
	known := manifest.Attr{
		Known: manifest.AttrMode | manifest.AttrUID | manifest.AttrGID | manifest.AttrMTime,
		Mode:  0o4751, UID: 7, GID: 8, MTime: time.Unix(1_500_000_000, 9),
	}
	set("", "dir", &manifest.Attr{Known: manifest.AttrMode, Mode: 0o2750})
	set("dir", "all", &known)
	set("dir", "some", &manifest.Attr{Known: manifest.AttrGID, Mode: 0o777, UID: 5, GID: 6})
	s := mounted(t, w, Config{UID: 1, GID: 2}, cache.Config{})
	for name, want := range map[string]unix.Stat_t{
		"dir":      {Mode: unix.S_IFDIR | 0o2750, Uid: 1, Gid: 2},
		"dir/all":  {Mode: unix.S_IFREG | 0o4751, Uid: 7, Gid: 8, Mtim: unix.Timespec{Sec: 1_500_000_000, Nsec: 9}},
		"dir/some": {Mode: unix.S_IFREG | 0o644, Uid: 1, Gid: 6, Mtim: unix.Timespec{Sec: bornAt.Unix()}},
	} {
		var got unix.Stat_t
		must(t, unix.Lstat(s.path(name), &got))
		if got.Mode != want.Mode || got.Uid != want.Uid || got.Gid != want.Gid || want.Mtim.Sec != 0 && got.Mtim != want.Mtim {
			t.Errorf("%s: mode %o, owner %d:%d, mtime %v", name, got.Mode, got.Uid, got.Gid, got.Mtim)
		}
	}
}

// A generation that knows more of a version than the one before is shown by the
// inode that the kernel has.
func TestAttributesThatBecomeKnownAreShown(t *testing.T) {
	w := newWorld()
	w.put("dir/file", 1)
	s, g := following(t, w)
	number := inode64(t, s.path("dir/file"))
	w.mu.Lock()
	e := w.mu.dirs["dir"]["file"]
	e.Attr = &manifest.Attr{Known: manifest.AttrMode, Mode: 0o700}
	w.mu.dirs["dir"]["file"] = e
	delete(w.mu.sorted, "dir")
	w.mu.Unlock()
	g.publish(w)
	g.settle(t, 1)
	var st unix.Stat_t
	must(t, unix.Lstat(s.path("dir/file"), &st))
	if st.Ino != number || st.Mode != unix.S_IFREG|0o700 {
		t.Errorf("inode %d, was %d; mode %o", st.Ino, number, st.Mode)
	}
}
