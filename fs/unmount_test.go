package fs

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pailfs/pailfs/cache"
	"github.com/pailfs/pailfs/oss"
)

func TestUnmountIsRefusedWhileFilesAreOpen(t *testing.T) {
	w := newWorld()
	o := w.put("file", 1<<20)
	s := mounted(t, w, Config{}, cache.Config{})
	f, err := os.Open(s.path("file"))
	must(t, err)
	err = s.mount.Unmount()
	if !errors.Is(err, ErrBusy) || !strings.Contains(err.Error(), s.dir) {
		t.Fatalf("%v, want ErrBusy with the mount point", err)
	}
	got, err := io.ReadAll(f)
	must(t, err)
	same(t, got, all(o))
	must(t, f.Close())
	eventually(t, "it is released", func() bool { return s.mount.Status().OpenFiles == 0 })
	must(t, s.mount.Unmount())
	s.mount.Wait()
	must(t, s.mount.Unmount()) // once more does no harm
	if _, err := os.Stat(s.path("file")); !os.IsNotExist(err) {
		t.Errorf("after unmounting: %v", err)
	}
}

func TestDetachLetsOpenFilesFinish(t *testing.T) {
	w := newWorld()
	o := w.put("file", 4<<20)
	s := mounted(t, w, Config{}, cache.Config{})
	f, err := os.Open(s.path("file"))
	must(t, err)
	must(t, s.mount.Detach())
	if _, err := os.Stat(s.path("file")); !os.IsNotExist(err) {
		t.Errorf("the name is still there: %v", err)
	}
	got, err := io.ReadAll(f)
	must(t, err)
	same(t, got, all(o))
	must(t, f.Close())
	s.mount.Wait()
}

func TestWaitReturnsWhenSomebodyElseUnmounts(t *testing.T) {
	w := newWorld()
	w.put("file", 1000)
	s := mounted(t, w, Config{}, cache.Config{})
	readAll(t, s.path("file"))
	eventually(t, "umount(2) succeeds", func() bool { return unix.Unmount(s.dir, 0) == nil })
	s.mount.Wait()
	must(t, s.mount.Unmount())
	must(t, s.mount.Detach())
}

// TestForcedUnmountFreesWhoWaits ends the connection while a read waits for the
// store: the program gets its error at once, and everything ends when the store
// has answered.
func TestForcedUnmountFreesWhoWaits(t *testing.T) {
	w := newWorld()
	w.put("file", 1<<20)
	s := mounted(t, w, Config{}, cache.Config{})
	waiting, answer := make(chan struct{}, 100), make(chan struct{})
	w.reading(func(context.Context, oss.RangeRequest) error {
		waiting <- struct{}{}
		<-answer
		return oss.ErrUnavailable
	})
	failed := make(chan error)
	go func() {
		fd, err := unix.Open(s.path("file"), unix.O_RDONLY, 0)
		if err == nil {
			_, err = unix.Pread(fd, make([]byte, 10), 0)
			_ = unix.Close(fd) // the connection is gone
		}
		failed <- err
	}()
	<-waiting
	_ = unix.Unmount(s.dir, unix.MNT_FORCE) // aborts, and may still be busy
	if err := <-failed; err == nil {
		t.Error("the read succeeded")
	}
	_ = unix.Unmount(s.dir, unix.MNT_DETACH)
	close(answer)
	s.mount.Wait()
	if n := pinned(s); n != 0 {
		t.Errorf("%d objects are still pinned", n)
	}
}

func TestMetricsLeaveWithTheMount(t *testing.T) {
	w := newWorld()
	w.put("file", 1000)
	s := mounted(t, w, Config{}, cache.Config{})
	readAll(t, s.path("file"))
	ours := func() (n int) {
		families, err := s.reg.Gather()
		must(t, err)
		for _, f := range families {
			if strings.HasPrefix(f.GetName(), "pailfs_fs_") {
				n++
			}
		}
		return n
	}
	if ours() < 10 {
		t.Errorf("%d metrics are exported", ours())
	}
	eventually(t, "it is released", func() bool { return s.mount.Status().OpenFiles == 0 })
	must(t, s.mount.Unmount())
	if n := ours(); n != 0 {
		t.Errorf("%d metrics are left", n)
	}
}
