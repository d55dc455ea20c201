package writeback

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// A close looks at the staged file by the descriptor that is open: of a small file the
// way there would be the most of the work.
func TestCloseOpensNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, 1)
		h, err := w.space.Create(t.Context(), "", "a", CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := h.WriteAt(t.Context(), []byte("content"), 0); err != nil {
			t.Fatal(err)
		}
		path := w.space.path(h.File().id)
		if err := os.Rename(path, path+".away"); err != nil {
			t.Fatal(err)
		}
		if err := h.Flush(t.Context()); err != nil {
			t.Errorf("close: %v", err)
		}
		if err := os.Rename(path+".away", path); err != nil {
			t.Fatal(err)
		}
		h.Release()
		w.drain()
		if got := w.inBucket()["p/a"]; got != "content" {
			t.Errorf("the bucket holds %q", got)
		}
		w.stop()
	})
}

// What opens staged files must go on to say what os.Open says, and leave no descriptor
// to programs that are started.
func TestStagedFilesAreOpenedAsOthers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if _, err := openStagedFile(path, os.O_RDONLY); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("open of what is not there: %v", err)
	}
	f, err := openStagedFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt([]byte("content"), 0); err != nil {
		t.Fatal(err)
	}
	flags, err := unix.FcntlInt(f.Fd(), unix.F_GETFD, 0)
	if err != nil || flags&unix.FD_CLOEXEC == 0 {
		t.Errorf("flags of the descriptor are %#x, %v", flags, err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 || info.Size() != 7 {
		t.Errorf("the file is %v, %v", info, err)
	}
	if _, err := openStagedFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL); !errors.Is(err, fs.ErrExist) {
		t.Errorf("open of what is there, as a new file: %v", err)
	}
}

// What fsync has promised needs the name of the staged file as well as its bytes.
func TestSyncBringsTheNameOfAStagedFileToTheDisk(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorldWith(t, 1, func(c *Config) {
			l := usualLimits
			l.inline = 3
			c.limits = &l
		})
		d := w.disk
		h, err := w.space.Create(t.Context(), "", "a", CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := h.WriteAt(t.Context(), []byte("content"), 0); err != nil {
			t.Fatal(err)
		}
		d.Lock()
		d.failDir = errors.New("no descriptor is left")
		d.Unlock()
		if err := h.Sync(t.Context()); err == nil {
			t.Error("fsync succeeded without the name")
		}
		d.Lock()
		d.failDir = nil
		d.Unlock()
		if err := h.Sync(t.Context()); err != nil {
			t.Errorf("fsync a moment later: %v", err)
		}
		d.Lock()
		named := d.names[w.space.path(h.File().id)]
		d.Unlock()
		if !named {
			t.Error("the name of the staged file is not on the disk")
		}
		h.Release()
		w.drain()
		if got := w.inBucket()["p/a"]; got != "content" {
			t.Errorf("the bucket holds %q", got)
		}
		w.stop()
	})
}
