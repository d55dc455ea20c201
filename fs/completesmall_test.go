package fs

import (
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// Names that have no answer are asked for once a listing, however small the buffer is with which
// it is read.
func TestListingWithSmallBuffersAsksForRefusedNamesOnce(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	const files = 1000
	w, tree := mountMute(t, 1, files)
	fd := openDir(t, w.path("d0"))
	defer closeFD(t, fd)
	buf := make([]byte, 4096)
	for {
		some, err := getdents(fd, buf)
		must(t, err)
		if len(some) == 0 {
			break
		}
		var st unix.Stat_t
		for _, name := range namesIn(some) {
			must(t, unix.Fstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW))
		}
	}
	if tree.calls.Load() == 0 {
		t.Error("nothing is asked for together")
	}
	if tree.asked.Load() > 2*files {
		t.Errorf("%d names are asked for in %d answers, %d are there: each answer waits", tree.asked.Load(), tree.calls.Load(), files)
	}
}
