package systemtest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// disk is a small file system for a cache.
type disk struct {
	t *testing.T
	// dir is where it is mounted, cache an empty directory in it.
	dir, cache string
}

// newDisk makes a file system of so many MiB: ext4 in an image, or tmpfs.
func newDisk(t *testing.T, kind string, mib int, options ...string) *disk {
	t.Helper()
	d := &disk{t: t, dir: filepath.Join(t.TempDir(), "disk")}
	if err := os.Mkdir(d.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if kind == "tmpfs" {
		if err := unix.Mount("tmpfs", d.dir, "tmpfs", 0, fmt.Sprintf("size=%dm", mib)); err != nil {
			t.Fatal(err)
		}
	} else {
		image := filepath.Join(t.TempDir(), "image")
		if err := os.WriteFile(image, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(image, int64(mib)<<20); err != nil {
			t.Fatal(err)
		}
		run(t, "mkfs.ext4", append(append([]string{"-q", "-F", "-m", "0"}, options...), image)...)
		run(t, "mount", "-o", "loop,noatime", image, d.dir)
	}
	d.cache = filepath.Join(d.dir, "cache")
	if err := os.Mkdir(d.cache, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = d.thaw() // it may not be frozen
		_ = unix.Unmount(d.dir, unix.MNT_DETACH)
	})
	return d
}

func run(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %s: %v: %s", name, strings.Join(args, " "), err, out)
	}
}

// fill takes all the room there is, and returns what gives it back.
func (d *disk) fill() (empty func()) {
	d.t.Helper()
	ballast := filepath.Join(d.dir, "ballast")
	f, err := os.OpenFile(ballast, os.O_WRONLY|os.O_CREATE, 0o600)
	// The cache may have the last inode, until its evictor looks.
	for deadline := time.Now().Add(patience); errors.Is(err, unix.ENOSPC) && time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		f, err = os.OpenFile(ballast, os.O_WRONLY|os.O_CREATE, 0o600)
	}
	if err != nil {
		d.t.Fatal(err)
	}
	defer f.Close()
	piece := make([]byte, 64<<10)
	for len(piece) > 512 {
		if _, err := f.Write(piece); errors.Is(err, unix.ENOSPC) {
			piece = piece[:len(piece)/2]
		} else if err != nil {
			d.t.Fatal(err)
		}
	}
	return func() {
		if err := os.Remove(ballast); err != nil {
			d.t.Fatal(err)
		}
	}
}

// The ioctls of a file system.
const (
	fiFreeze = 0xC0045877
	fiThaw   = 0xC0045878
)

func (d *disk) ioctl(request uint) error {
	f, err := os.Open(d.dir)
	if err != nil {
		return err
	}
	defer f.Close()
	return unix.IoctlSetInt(int(f.Fd()), request, 0)
}

// freeze lets everything that would change the file system hang.
func (d *disk) freeze() {
	d.t.Helper()
	if err := d.ioctl(fiFreeze); err != nil {
		d.t.Fatal(err)
	}
}

func (d *disk) thaw() error { return d.ioctl(fiThaw) }

// abort makes the file system read-only at once, as an error on the disk does.
func (d *disk) abort() {
	d.t.Helper()
	if err := unix.Mount("", d.dir, "", unix.MS_REMOUNT, "abort"); err != nil {
		d.t.Fatal(err)
	}
}

// crowd stores what is several times as much as the disk holds.
func (w *world) crowd(rng *rand.Rand, bytes int64) {
	w.t.Helper()
	var sizes []int64
	for n := int64(0); n < bytes; {
		size := 1 + rng.Int64N(300_000)
		if len(sizes)%5 == 0 {
			size = 1<<20 - 2 + rng.Int64N(6<<20)
		}
		sizes = append(sizes, size)
		n += size
	}
	w.add("crowd", sizes...)
}

// A cache of a tenth of the data, on whose disk everything comes and goes while
// it is read in every way: no read fails, no byte is wrong.
func TestCacheOfATenthOfTheData(t *testing.T) {
	for _, mode := range []struct {
		name  string
		disk  string
		env   []string
		flags []string
	}{
		{"ordinary", "ext4", nil, nil},
		{"immutable", "ext4", nil, []string{"--read-only", "--immutable"}},
		{"tmpfs", "tmpfs", nil, nil},
		{"one processor", "ext4", []string{"GOMAXPROCS=1"}, nil},
	} {
		t.Run(mode.name, func(t *testing.T) {
			rng := newRandom(t)
			w := newWorld(t)
			disk := newDisk(t, mode.disk, 40)
			w.cache = disk.cache
			w.crowd(rng, 280<<20)
			d := w.mountWith(mode.env, mode.flags...)
			for range rounds(t, 1) {
				j := w.job(rng)
				j.Reads = 120
				told := j.start(t).wait(d)
				told.sound(t, "crowded")
				forget(w, nil)
				// The last files, over and over, become whole and are evicted while they
				// are opened.
				few := w.files[:8]
				j = job{Root: w.at, Files: few, Readers: 16, Kinds: []string{reopened, sequential, random}, Seed: rng.Uint64(), Reads: 60}
				told = j.start(t).wait(d)
				told.sound(t, "few files")
				s := d.status()
				t.Logf("%d opens, %d reads; evicted %d, disk %s %q, passthrough %d of %d opens", told.Opens, told.Reads, s.Cache.SSD.Evicted,
					s.Cache.SSD.State, s.Cache.SSD.LastError, s.FileSystem.Opens.Passthrough, s.FileSystem.Opens.Passthrough+s.FileSystem.Opens.Cached)
				// Without open and close everything read counts as open for some seconds.
				if s.Cache.SSD.Evicted == 0 && mode.name != "immutable" {
					t.Error("nothing was evicted")
				}
				if t.Failed() {
					t.FailNow()
				}
			}
			d.stop()
		})
	}
}

// The disk of the cache fills up under it, and gets room again.
func TestFullDiskOfTheCache(t *testing.T) {
	for _, mode := range []struct {
		name, disk string
		options    []string
	}{
		{"ext4", "ext4", nil},
		{"tmpfs", "tmpfs", nil},
		{"few inodes", "ext4", []string{"-N", "72"}},
	} {
		t.Run(mode.name, func(t *testing.T) {
			t.Parallel()
			rng := newRandom(t)
			w := newWorld(t)
			disk := newDisk(t, mode.disk, 60, mode.options...)
			w.cache = disk.cache
			w.crowd(rng, 120<<20)
			d := w.mount()
			for range rounds(t, 1) {
				j := w.job(rng)
				r := j.start(t)
				time.Sleep(time.Duration(rng.IntN(500)) * time.Millisecond)
				empty := disk.fill()
				time.Sleep(time.Second)
				empty()
				time.Sleep(200 * time.Millisecond)
				empty = disk.fill()
				time.Sleep(time.Duration(rng.IntN(500)) * time.Millisecond)
				r.tell()
				told := r.wait(d)
				told.sound(t, "full disk")
				t.Logf("%d reads; disk %s %q", told.Reads, d.status().Cache.SSD.State, d.status().Cache.SSD.LastError)
				forget(w, w.files)
				d.verify("everything, with a full disk", w.files, sequential)
				if rng.IntN(2) == 0 {
					d.kill()
					empty() // without room a start is refused
					d = w.mount()
					empty = disk.fill()
					d.verify("everything, after a restart", w.files, random)
				}
				empty()
				d.eventually("the disk is used again", func() bool { return d.status().Cache.SSD.State == "ok" })
				d.fetch(w.files[:5])
				forget(w, w.files)
				d.verify("what was kept", w.files[:5], whole, sequential)
				if t.Failed() {
					t.FailNow()
				}
			}
			d.stop()
		})
	}
}

// The disk of the cache becomes read-only under it, as after an error.
func TestReadOnlyDiskOfTheCache(t *testing.T) {
	rng := newRandom(t)
	for range rounds(t, 1) {
		w := newWorld(t)
		disk := newDisk(t, "ext4", 60)
		w.cache = disk.cache
		w.crowd(rng, 90<<20)
		d := w.mount()
		r := w.job(rng).start(t)
		time.Sleep(time.Duration(300+rng.IntN(1000)) * time.Millisecond)
		disk.abort()
		time.Sleep(time.Second)
		r.tell()
		r.wait(d).sound(t, "read-only disk")
		forget(w, w.files)
		d.verify("everything, from a read-only disk", w.files, sequential, whole)
		// What was read is written behind the readers.
		d.eventually("a read-only disk does not count as ok", func() bool { return d.status().Cache.SSD.State != "ok" })
		s := d.status().Cache.SSD
		t.Logf("disk %s: %s", s.State, s.LastError)
		d.kill()
	}
}

// The disk of the cache hangs: whatever would write to it waits. No reader may.
func TestHungDiskOfTheCache(t *testing.T) {
	rng := newRandom(t)
	w := newWorld(t)
	disk := newDisk(t, "ext4", 300)
	w.cache = disk.cache
	w.crowd(rng, 150<<20)
	d := w.mount()
	for range rounds(t, 1) {
		j := w.job(rng)
		j.Reads = 20
		j.start(t).wait(d).sound(t, "before")
		r := w.job(rng).start(t)
		time.Sleep(time.Duration(rng.IntN(300)) * time.Millisecond)
		disk.freeze()
		// What the readers do in this time must not wait for the disk.
		j.Seed = rng.Uint64()
		j.Reads = 40
		j.start(t).wait(d).sound(t, "hung disk")
		forgetMount(w, w.files)
		d.verify("everything, with a hung disk", w.files, sequential)
		r.tell()
		r.wait(d).sound(t, "hung disk")
		if err := disk.thaw(); err != nil {
			t.Fatal(err)
		}
		d.eventually("the disk is used again", func() bool { return d.status().Cache.SSD.State == "ok" })
		forget(w, w.files)
		d.verify("everything, once the disk answers", w.files, random, sequential)
	}
	d.stop()
}

// forgetMount drops what the page cache holds of the files of the mount.
func forgetMount(w *world, files []file) {
	w.t.Helper()
	for _, f := range files {
		dropPages(w.path(f))
	}
}

// Somebody removes the cache directory, or all that is in it, behind the daemon.
func TestCacheDirectoryRemovedBehindTheDaemon(t *testing.T) {
	rng := newRandom(t)
	w := newWorld(t)
	w.crowd(rng, 60<<20)
	d := w.mount()
	for round := range rounds(t, 2) {
		r := w.job(rng).start(t)
		for range 3 {
			time.Sleep(time.Duration(rng.IntN(400)) * time.Millisecond)
			entries, err := os.ReadDir(w.cache)
			if err != nil && !os.IsNotExist(err) {
				t.Fatal(err)
			}
			for _, e := range entries {
				if e.Name() == "objects" || round%2 == 1 {
					_ = os.RemoveAll(filepath.Join(w.cache, e.Name())) // the daemon may make new ones
				}
			}
		}
		time.Sleep(300 * time.Millisecond)
		r.tell()
		r.wait(d).sound(t, "removed behind the daemon")
		forget(w, w.files)
		d.verify("everything", w.files, sequential, whole)
		if rng.IntN(2) == 0 {
			d.kill()
		} else {
			d.stop()
		}
		d = w.mount()
		forget(w, w.files)
		d.verify("everything, after a restart", w.files, sequential, whole)
	}
	d.stop()
}

// A cache directory is removed behind a daemon and given to another one. The
// first must not touch what the second writes.
func TestCacheDirectoryTakenOverByAnother(t *testing.T) {
	rng := newRandom(t)
	w := newWorld(t)
	w.crowd(rng, 80<<20)
	first := w.mount()
	other := *w
	other.at = newMountPoint(t)
	for range rounds(t, 2) {
		r := w.job(rng).start(t)
		time.Sleep(time.Duration(rng.IntN(500)) * time.Millisecond)
		entries, err := os.ReadDir(w.cache)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			_ = os.RemoveAll(filepath.Join(w.cache, e.Name())) // the daemon may make new ones
		}
		// What the first daemon makes in between is not ours to the second.
		var second *daemon
		for {
			second = other.start(other.at, other.cache, nil)
			if second.ready() == nil {
				break
			}
			t.Logf("the second is refused: %s", tail(second.log.String(), 300))
			_ = os.RemoveAll(w.cache)
		}
		j := other.job(rng)
		j.Reads = 20
		j.start(t).wait(second).sound(t, "the second daemon")
		r.tell()
		r.wait(first).sound(t, "the first daemon")
		for range 3 {
			forget(w, w.files)
			forget(&other, w.files)
			first.verify("the first daemon", w.files, sequential, whole)
			second.verify("the second daemon", w.files, sequential, whole)
		}
		second.stop()
		first.kill()
		first = w.mount()
		forget(w, w.files)
		first.verify("the next daemon", w.files, sequential, whole)
	}
	first.stop()
}
