package writeback

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// smallDisk mounts an ext4 of so many MiB.
func smallDisk(t *testing.T, mib int64) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("mounting a file system needs root")
	}
	dir, image := t.TempDir(), filepath.Join(t.TempDir(), "image")
	if err := os.WriteFile(image, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(image, mib<<20); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"mkfs.ext4", "-q", "-F", "-m", "0", image}, {"mount", "-o", "loop,noatime", image, dir}} {
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v: %s", args, err, out)
		}
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// fillDisk takes the last byte.
func fillDisk(t *testing.T, dir string) {
	t.Helper()
	f, err := os.OpenFile(filepath.Join(dir, "ballast"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for piece := make([]byte, 1<<20); len(piece) >= 512; {
		_, err := f.Write(piece)
		if err == nil {
			err = f.Sync()
		}
		if errors.Is(err, syscall.ENOSPC) {
			piece = piece[:len(piece)/2]
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

// On a disk without a free byte what was written is published, names are removed, the
// journal is compacted and taken up again; only what takes up more is refused.
func TestFullDiskLetsGoOfWhatItHas(t *testing.T) {
	disk := smallDisk(t, 32)
	bubble(t, func(t *testing.T) {
		w := newWorldWith(t, 1, func(c *Config) {
			c.Dir = filepath.Join(disk, "staging")
			l := usualLimits
			l.journal = 64 << 10
			c.limits = &l
		})
		w.disk.Lock()
		w.disk.real = true
		w.disk.Unlock()
		large, small := strings.Repeat("large", 1<<20), strings.Repeat("s", 50_000)
		for _, name := range []string{"a", "b", "c", "gone"} {
			w.store.deny("p/"+name, true)
		}
		w.store.put("p/old", "old")
		w.write("", "a", large)
		w.write("", "b", small)
		w.write("", "gone", large)
		open := w.create("c", small)
		if err := w.space.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
		fillDisk(t, disk)

		// What was allocated beyond the reserve is used up first, by what cannot be published.
		faults := func(share float64) {
			w.store.Lock()
			w.store.faults = share
			w.store.Unlock()
		}
		faults(1)
		var err error
		for n := 0; err == nil && n < 2000; n++ {
			err = w.space.Mkdir(t.Context(), "", fmt.Sprintf("directory-with-a-long-name-%d", n), SetAttr{})
		}
		if !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("mkdir on a full disk: %v", err)
		}
		if _, err := w.space.Create(t.Context(), "", "new", CreateOptions{}); !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("create on a full disk: %v", err)
		}
		faults(0)
		closeHandle(t, open)
		for _, name := range []string{"gone", "old"} {
			if err := w.space.Unlink(t.Context(), "", name); err != nil {
				t.Errorf("unlink on a full disk: %v", err)
			}
		}
		for range 3 {
			time.Sleep(time.Second) // what is unlinked has left its room
			fillDisk(t, disk)
			if err := w.space.compact(); err != nil {
				t.Errorf("compact on a full disk: %v", err)
			}
			fillDisk(t, disk)
			w.checkJournal()
		}
		// The next daemon finds the disk full.
		w.stop()
		w.boots++
		w.start()
		w.disk.Lock()
		w.disk.real = true
		w.disk.Unlock()
		for _, name := range []string{"a", "b", "c"} {
			w.store.deny("p/"+name, false)
		}
		w.drain()
		w.holds("p/a", large)
		w.holds("p/b", small)
		w.holds("p/c", small)
		w.holds("p/old", "")
		w.holds("p/gone", "")
		if err := os.Remove(filepath.Join(disk, "ballast")); err != nil {
			t.Fatal(err)
		}
		w.write("", "new", "room again")
		w.drain()
		w.holds("p/new", "room again")
		w.stop()
	})
}
