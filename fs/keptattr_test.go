package fs

import (
	"os"
	"syscall"
	"testing"
	"time"
)

// TestAChangeOfOneAttributeLeavesTheOthers: of an object that has no metadata the owner and mode are the
// mount's, and stay so where only one of them is changed.
func TestAChangeOfOneAttributeLeavesTheOthers(t *testing.T) {
	e := startStore(t)
	e.Put("object", []byte("content"))
	e.Put("other", []byte("content"))
	e.Put("third", []byte("content"))
	w := mountWritten(t, e, writtenOptions{config: Config{Attrs: true, UID: 1234, GID: 1235, FileMode: 0o640, DirMode: 0o755}})
	check := func(base string, mode, uid, gid uint32) {
		t.Helper()
		var st syscall.Stat_t
		must(t, syscall.Stat(w.path(base), &st))
		if st.Mode&0o7777 != mode || st.Uid != uid || st.Gid != gid {
			t.Errorf("%s: mode %o, owner %d:%d, want %o and %d:%d", base, st.Mode&0o7777, st.Uid, st.Gid, mode, uid, gid)
		}
	}
	check("object", 0o640, 1234, 1235)
	must(t, os.Chmod(w.path("object"), 0o750))
	check("object", 0o750, 1234, 1235)
	must(t, os.Chown(w.path("other"), 7, -1))
	check("other", 0o640, 7, 1235)
	now := time.Unix(1234567890, 0)
	must(t, os.Chtimes(w.path("third"), now, now))
	check("third", 0o640, 1234, 1235)
}

// TestWhatIsMadeInASetGroupIDDirectoryHasItsGroup: a directory that a group shares.
func TestWhatIsMadeInASetGroupIDDirectoryHasItsGroup(t *testing.T) {
	w := mountWritten(t, startStore(t), writtenOptions{config: Config{Attrs: true, FileMode: 0o640, DirMode: 0o755}})
	must(t, os.Mkdir(w.path("shared"), 0o755))
	must(t, os.Chown(w.path("shared"), -1, 77))
	must(t, syscall.Chmod(w.path("shared"), 0o2775))
	must(t, os.WriteFile(w.path("shared/file"), []byte("content"), 0o664))
	must(t, os.Mkdir(w.path("shared/dir"), 0o755))
	var st syscall.Stat_t
	must(t, syscall.Stat(w.path("shared/file"), &st))
	if st.Gid != 77 {
		t.Errorf("the file belongs to group %d, want 77", st.Gid)
	}
	must(t, syscall.Stat(w.path("shared/dir"), &st))
	if st.Gid != 77 || st.Mode&syscall.S_ISGID == 0 {
		t.Errorf("the directory belongs to group %d and has mode %o, want 77 and the set-group-ID bit", st.Gid, st.Mode&0o7777)
	}
}
