package fs

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pailfs/pailfs/fs/internal/names"
	"github.com/pailfs/pailfs/oss"
)

// TestFifosAndSocketsAreShownAsProgramsSeeThem: whoever asks by path, too, decides by their
// modes and owners.
func TestFifosAndSocketsAreShownAsProgramsSeeThem(t *testing.T) {
	s := mountSpecials(t)
	must(t, os.Chown(s.path("dir/fifo"), 1001, 2000))
	must(t, unix.Chmod(s.path("dir/socket"), 0o700))
	page, err := s.mount.Names().ReadDir(t.Context(), "dir", "", 10)
	if err != nil || len(page) != 2 {
		t.Fatalf("%+v, %v", page, err)
	}
	for _, listed := range page {
		found, err := s.mount.Names().Lookup(t.Context(), "dir", listed.Name)
		must(t, err)
		var st unix.Stat_t
		must(t, unix.Lstat(s.path("dir/"+listed.Name), &st))
		for _, shown := range []Shown{listed, found} {
			if shown.Mode != st.Mode&names.Permissions || shown.UID != st.Uid || shown.GID != st.Gid || shown.Object != (oss.Object{}) || shown.Staged {
				t.Errorf("%s is shown as %+v, lstat says mode %o, %d:%d", listed.Name, shown, st.Mode&names.Permissions, st.Uid, st.Gid)
			}
		}
	}
}

// TestADirectoryIsToldFromOthersOfItsName, as long as somebody has it open.
func TestADirectoryIsToldFromOthersOfItsName(t *testing.T) {
	u := &upper{}
	s := mountWritten(t, startStore(t), writtenOptions{config: Config{Attrs: true, Control: u}})
	id := func(path string) uint64 {
		t.Helper()
		shown, err := s.mount.Names().Lookup(t.Context(), "", path)
		must(t, err)
		return shown.ID
	}
	ids := map[uint64]string{}
	for _, what := range []string{"made", "made when the first was renamed", "made when the second was removed"} {
		must(t, os.Mkdir(s.path("dir"), 0o755))
		fd := openDir(t, s.path("dir"))
		defer closeFD(t, fd)
		_, _, err := shout(s.path("dir"), upperCommand)
		must(t, err)
		called := u.called()
		if got := called[len(called)-1].DirID; got == 0 || got != id("dir") || ids[got] != "" {
			t.Errorf("the one %s has id %d, is shown with %d, others have %v", what, got, id("dir"), ids)
		}
		ids[id("dir")] = what
		switch what {
		case "made":
			must(t, os.Rename(s.path("dir"), s.path("moved")))
			if ids[id("moved")] != what {
				t.Errorf("it has another id %d at its new place", id("moved"))
			}
		default:
			must(t, os.Remove(s.path("dir")))
		}
	}
}
