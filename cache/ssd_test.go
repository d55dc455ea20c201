package cache

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pailfs/pailfs/cache/internal/content"
	"github.com/pailfs/pailfs/cache/internal/disk"
	"github.com/pailfs/pailfs/cache/internal/index"
	"github.com/pailfs/pailfs/oss"
)

// warm reads objects through a cache on dir, which is closed then.
func warm(t *testing.T, s *fakeStore, dir string, objects ...oss.Object) {
	t.Helper()
	c := openCache(t, s, Config{Dir: dir})
	for _, obj := range objects {
		h := openObject(t, c, obj)
		for off := int64(0); off < obj.Size; off += 1 << 20 {
			checkRead(t, s, h, off, 1<<20)
		}
		waitUntil(t, obj.Key+" is on SSD", func() bool { return c.Residency(obj).Whole })
		if err := h.Close(); err != nil {
			t.Fatal(err)
		}
	}
	closeCache(t, c)
	s.resetRequests()
}

func objectFile(dir string, obj oss.Object) string {
	return filepath.Join(dir, disk.FileName(content.Identify("", obj)))
}

func TestWholeObjectsNeedNoRequestAfterARestart(t *testing.T) {
	s, dir := newFakeStore(), t.TempDir()
	var objects []oss.Object
	for i, size := range []int{1, 115_000, content.SmallObject, 3 << 20, 20<<20 + 77} {
		objects = append(objects, s.put(fmt.Sprint("object", i), size))
	}
	warm(t, s, dir, objects...)

	c := openCache(t, s, Config{Dir: dir})
	for _, obj := range objects {
		if r := c.Residency(obj); !r.Whole || r.SSD != obj.Size {
			t.Errorf("%s: %+v", obj.Key, r)
		}
		h := openObject(t, c, obj)
		for off := int64(0); off < obj.Size; off += 1 << 20 {
			checkRead(t, s, h, off, 1<<20)
		}
	}
	if n := s.requests(); n != 0 {
		t.Errorf("%d requests, want none", n)
	}
}

func TestWholeFileIsTheContent(t *testing.T) {
	s, dir := newFakeStore(), t.TempDir()
	obj := s.put("object", 20<<20)
	warm(t, s, dir, obj)

	c := openCache(t, s, Config{Dir: dir})
	h := openObject(t, c, obj)
	if _, ok := h.WholeFile(); ok {
		t.Error("a file was handed out before it was checked")
	}
	waitUntil(t, "the file was checked", func() bool { _, ok := h.WholeFile(); return ok })
	f, _ := h.WholeFile()
	content, err := os.ReadFile(fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
	if err != nil || !bytes.Equal(content, s.content(obj)) {
		t.Errorf("it is not the content: %v", err)
	}
	if n := s.requests(); n != 0 {
		t.Errorf("%d requests", n)
	}
}

func TestWholeFileAppearsWhenTheObjectIsWhole(t *testing.T) {
	s := newFakeStore()
	c := openCache(t, s, Config{Dir: t.TempDir()})
	obj := s.put("object", 20<<20)
	h := openObject(t, c, obj)
	checkRead(t, s, h, 0, 1<<20)
	if _, ok := h.WholeFile(); ok {
		t.Error("a part was handed out as the whole")
	}
	for off := int64(0); off < obj.Size; off += 1 << 20 {
		checkRead(t, s, h, off, 1<<20)
	}
	waitUntil(t, "the file is whole", func() bool { _, ok := h.WholeFile(); return ok })
}

// damage changes a cache file and returns what reading the object must survive.
func TestDamagedFilesAreNoticedAndFetchedAgain(t *testing.T) {
	const size = 3<<20 + 1000
	for name, damage := range map[string]func(t *testing.T, dir string, a, b oss.Object){
		"a bit flipped": func(t *testing.T, dir string, a, _ oss.Object) {
			f, err := os.OpenFile(objectFile(dir, a), os.O_RDWR, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			var p [1]byte
			if _, err := f.ReadAt(p[:], 1<<20); err != nil {
				t.Fatal(err)
			}
			p[0] ^= 1
			if _, err := f.WriteAt(p[:], 1<<20); err != nil {
				t.Fatal(err)
			}
		},
		"a hole punched": func(t *testing.T, dir string, a, _ oss.Object) {
			f, err := os.OpenFile(objectFile(dir, a), os.O_RDWR, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if _, err := f.WriteAt(make([]byte, 100_000), 2<<20); err != nil {
				t.Fatal(err)
			}
		},
		"truncated": func(t *testing.T, dir string, a, _ oss.Object) {
			if err := os.Truncate(objectFile(dir, a), size/2); err != nil {
				t.Fatal(err)
			}
		},
		"extended": func(t *testing.T, dir string, a, _ oss.Object) {
			if err := os.Truncate(objectFile(dir, a), 2*size); err != nil {
				t.Fatal(err)
			}
		},
		"removed": func(t *testing.T, dir string, a, _ oss.Object) {
			if err := os.Remove(objectFile(dir, a)); err != nil {
				t.Fatal(err)
			}
		},
		"swapped with another": func(t *testing.T, dir string, a, b oss.Object) {
			for _, step := range [][2]string{{objectFile(dir, a), dir + "/x"}, {objectFile(dir, b), objectFile(dir, a)}, {dir + "/x", objectFile(dir, b)}} {
				if err := os.Rename(step[0], step[1]); err != nil {
					t.Fatal(err)
				}
			}
		},
		"replaced by a directory": func(t *testing.T, dir string, a, _ oss.Object) {
			if err := os.Remove(objectFile(dir, a)); err != nil {
				t.Fatal(err)
			}
			if err := os.Mkdir(objectFile(dir, a), 0o700); err != nil {
				t.Fatal(err)
			}
		},
		"the index removed": func(t *testing.T, dir string, _, _ oss.Object) {
			if err := os.Remove(filepath.Join(dir, index.Name)); err != nil {
				t.Fatal(err)
			}
		},
		"the index overwritten": func(t *testing.T, dir string, _, _ oss.Object) {
			if err := os.WriteFile(filepath.Join(dir, index.Name), randomBytes(9, 100_000), 0o600); err != nil {
				t.Fatal(err)
			}
		},
		"the index truncated": func(t *testing.T, dir string, _, _ oss.Object) {
			if err := os.Truncate(filepath.Join(dir, index.Name), 9000); err != nil {
				t.Fatal(err)
			}
		},
		"the index emptied": func(t *testing.T, dir string, _, _ oss.Object) {
			if err := os.Truncate(filepath.Join(dir, index.Name), 0); err != nil {
				t.Fatal(err)
			}
		},
		"the objects removed": func(t *testing.T, dir string, _, _ oss.Object) {
			if err := os.RemoveAll(filepath.Join(dir, disk.ObjectsName)); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, dir := newFakeStore(), t.TempDir()
			a, b := s.put("a", size), s.put("b", size)
			warm(t, s, dir, a, b)
			damage(t, dir, a, b)

			c := openCache(t, s, Config{Dir: dir})
			for _, obj := range []oss.Object{a, b} {
				h := openObject(t, c, obj)
				if _, ok := h.WholeFile(); ok {
					t.Error("a file was handed out before it was checked")
				}
				waitUntil(t, "it is whole again", func() bool {
					for off := int64(0); off < obj.Size; off += 100_000 {
						checkRead(t, s, h, off, 100_000)
					}
					_, ok := h.WholeFile()
					return ok || name == "replaced by a directory"
				})
			}
			if n := s.requests(); n == 0 {
				t.Error("nothing was fetched again: the damage did none")
			}
		})
	}
}

func TestFileThatIsReplacedWhileItIsNotOpenIsNotTrusted(t *testing.T) {
	for what, replace := range map[string]func(t *testing.T, name string, size int64){
		"by another": func(t *testing.T, name string, size int64) {
			if err := os.WriteFile(name+".new", make([]byte, size), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(name+".new", name); err != nil {
				t.Fatal(err)
			}
		},
		"by one of the same number": func(t *testing.T, name string, size int64) {
			number := inodeOf(t, name)
			if err := os.Remove(name); err != nil {
				t.Fatal(err)
			}
			for i := range 20 {
				if err := os.WriteFile(name, make([]byte, size), 0o600); err != nil {
					t.Fatal(err)
				}
				// Where numbers are not used again, a file of another one has to do.
				if inodeOf(t, name) == number || i == 19 {
					return
				}
				// The next one must not get this number again.
				if err := os.Rename(name, filepath.Join(t.TempDir(), "other")); err != nil {
					t.Fatal(err)
				}
			}
		},
	} {
		t.Run(what, func(t *testing.T) {
			s, dir := newFakeStore(), t.TempDir()
			c := openCache(t, s, Config{Dir: dir})
			obj := s.put("object", 3<<20)
			pin := openObject(t, c, obj)
			if err := c.Fetch(context.Background(), obj); err != nil {
				t.Fatal(err)
			}
			if _, ok := pin.WholeFile(); !ok {
				t.Fatal("not whole")
			}
			if err := pin.Close(); err != nil {
				t.Fatal(err)
			}
			flush(t, c)
			replace(t, objectFile(dir, obj), obj.Size)
			h := openObject(t, c, obj)
			if _, ok := h.WholeFile(); ok {
				t.Error("another file was handed out")
			}
			checkRead(t, s, h, 0, 3<<20)
		})
	}
}

func TestPartOfAnObjectSurvivesARestart(t *testing.T) {
	s, dir := newFakeStore(), t.TempDir()
	obj := s.put("object", 40<<20)
	c := openCache(t, s, Config{Dir: dir})
	h := openObject(t, c, obj)
	for _, off := range []int64{1 << 20, 9<<20 + 5, 39 << 20} {
		checkRead(t, s, h, off, 200_000)
	}
	_ = h.Close()
	closeCache(t, c)
	s.resetRequests()

	c = openCache(t, s, Config{Dir: dir})
	h = openObject(t, c, obj)
	for _, off := range []int64{1 << 20, 9<<20 + 5, 39 << 20} {
		checkRead(t, s, h, off, 200_000)
	}
	if n := s.requests(); n != 0 {
		t.Errorf("%d requests for what was there", n)
	}
	// The rest completes the object, which is then compared as a whole although
	// this process has seen only a part arrive.
	for off := int64(0); off < obj.Size; off += 1 << 20 {
		checkRead(t, s, h, off, 1<<20)
	}
	waitUntil(t, "the file is whole", func() bool { _, ok := h.WholeFile(); return ok })
}

func TestObjectThatIsWrongInTwoLivesIsNoticed(t *testing.T) {
	s, dir := newFakeStore(), t.TempDir()
	obj := s.put("object", 10<<20)
	s.corrupt("object", 5<<20)
	c := openCache(t, s, Config{Dir: dir})
	h := openObject(t, c, obj)
	checkRead(t, s, h, 5<<20-100, 1000) // as it is sent
	_ = h.Close()
	closeCache(t, c)
	s.corrupt("object", 5<<20)

	c = openCache(t, s, Config{Dir: dir})
	h = openObject(t, c, obj)
	var failed error
	for off := int64(0); off < obj.Size && failed == nil; off += 1 << 20 {
		_, failed = h.ReadAt(context.Background(), make([]byte, 1<<20), off)
	}
	if !errors.Is(failed, oss.ErrCorrupted) {
		t.Errorf("got %v", failed)
	}
	waitUntil(t, "nothing is kept", func() bool { return c.Residency(obj).SSD == 0 })
	h = openObject(t, c, obj)
	for off := int64(0); off < obj.Size; off += 1 << 20 {
		checkRead(t, s, h, off, 1<<20)
	}
}

func TestOtherBucketSeesNothing(t *testing.T) {
	s, dir := newFakeStore(), t.TempDir()
	obj := s.put("object", 100_000)
	warm(t, s, dir, obj)
	c := openCache(t, s, Config{Dir: dir, Bucket: "another"})
	if r := c.Residency(obj); r != (Residency{}) {
		t.Errorf("%+v", r)
	}
}

func TestSecondCacheInADirectoryIsRefused(t *testing.T) {
	s, dir := newFakeStore(), t.TempDir()
	openCache(t, s, Config{Dir: dir})
	_, err := Open(Config{Dir: dir, Memory: minMemory}, s, s, nil, nil)
	if !errors.Is(err, ErrDirInUse) || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), fmt.Sprint(os.Getpid())) {
		t.Errorf("got %v", err)
	}
}

func TestWhatOthersKeepBesideTheCacheIsNoStranger(t *testing.T) {
	s := newFakeStore()
	dir := t.TempDir()
	if err := errors.Join(os.Chmod(dir, 0o700), os.Mkdir(dir+"/staging", 0o700), os.WriteFile(dir+"/last-end.json", nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	c, err := Open(Config{Dir: dir, Memory: minMemory}, s, s, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(dir + "/last-end.json"); err != nil {
		t.Error(err)
	}
}

func TestDirectoriesThatAreNotOursAreRefused(t *testing.T) {
	s := newFakeStore()
	for name, c := range map[string]struct {
		make func(dir string) error
		want error
	}{
		"holds something else": {func(dir string) error { return os.WriteFile(dir+"/thesis.tex", nil, 0o600) }, ErrDirForeign},
		"holds a directory":    {func(dir string) error { return os.Mkdir(dir+"/photographs", 0o700) }, ErrDirForeign},
		"holds other objects":  {func(dir string) error { return os.MkdirAll(dir+"/objects/pack", 0o700) }, ErrDirForeign},
		"holds objects of a repository": {func(dir string) error {
			return errors.Join(os.MkdirAll(dir+"/objects/ab", 0o700),
				os.WriteFile(dir+"/objects/ab/cd0123456789abcdef0123456789abcdef0123", nil, 0o600))
		}, ErrDirForeign},
		"other format file": {func(dir string) error { return os.WriteFile(dir+"/format", []byte("tar\n"), 0o600) }, ErrDirForeign},
		"later version": {func(dir string) error {
			return os.WriteFile(dir+"/format", []byte(disk.FormatMagic+"version 3\n"), 0o600)
		}, ErrDirVersion},
		"is another user's": {func(dir string) error { return os.Chown(dir, 12345, -1) }, ErrDirOwner},
		"is missing":        {func(dir string) error { return os.Remove(dir) }, fs.ErrNotExist},
		"is a file": {func(dir string) error {
			return errors.Join(os.Remove(dir), os.WriteFile(dir, nil, 0o600))
		}, unix.ENOTDIR},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "cache")
			if err := errors.Join(os.Mkdir(dir, 0o755), c.make(dir)); err != nil {
				t.Fatal(err)
			}
			before := listAll(t, filepath.Dir(dir))
			_, err := Open(Config{Dir: dir, Memory: minMemory}, s, s, nil, nil)
			if !errors.Is(err, c.want) || !strings.Contains(err.Error(), dir) || strings.Contains(err.Error(), "\n") {
				t.Errorf("got %v, want %v", err, c.want)
			}
			if after := listAll(t, filepath.Dir(dir)); after != before {
				t.Errorf("something was changed: %s, was %s", after, before)
			}
		})
	}
}

func listAll(t *testing.T, dir string) string {
	var all []string
	err := filepath.Walk(dir, func(path string, info fs.FileInfo, err error) error {
		if err == nil {
			all = append(all, fmt.Sprint(path, info.Mode()))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(all, "\n")
}

func TestNewFileSystemIsAccepted(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "lost+found"), 0o700); err != nil {
		t.Fatal(err)
	}
	openCache(t, newFakeStore(), Config{Dir: dir})
}

func TestFileSystemWithoutRoomIsRefused(t *testing.T) {
	dir := t.TempDir()
	space := &disk.Space{Bytes: 1 << 30, FreeBytes: 100 << 20, Inodes: 1000, FreeInodes: 900}
	_, err := open(Config{Dir: dir, Memory: minMemory, MinFreeBytes: 99 << 20}, newFakeStore(), newFakeStore(), nil, nil,
		func(dir string) (disk.FileSystem, error) {
			f, err := newFaultFS(dir)
			f.mu.free = space
			return f, err
		})
	if !errors.Is(err, ErrNoSpace) {
		t.Errorf("got %v", err)
	}
	openCache(t, newFakeStore(), Config{Dir: dir}) // and everything was given back
}

func TestConfigurationThatMakesNoSenseIsRefused(t *testing.T) {
	for _, cfg := range []Config{
		{Memory: 1 << 20},
		{Memory: -1},
		{Dir: "/tmp", Size: -1},
		{Dir: "/tmp", Size: 1 << 20},
		{Dir: "/tmp", MinFreeBytes: -1},
		{Dir: "/tmp", MinFreeInodes: -1},
		{Size: 1 << 30},
	} {
		if c, err := Open(cfg, nil, nil, nil, nil); err == nil {
			t.Errorf("%+v was accepted", cfg)
			_ = c.Close()
		}
	}
}

func TestFilesAreTheOwnersAlone(t *testing.T) {
	for _, mask := range []int{0, 0o077} {
		func() {
			defer unix.Umask(unix.Umask(mask))
			s, dir := newFakeStore(), t.TempDir()
			warm(t, s, dir, s.put("object", 100_000))
			err := filepath.Walk(dir, func(path string, info fs.FileInfo, err error) error {
				want := fs.FileMode(0o600)
				if info.IsDir() {
					want = 0o700
				}
				if got := info.Mode().Perm(); got != want {
					t.Errorf("umask %#o: %s has mode %#o, want %#o", mask, path, got, want)
				}
				return err
			})
			if err != nil {
				t.Error(err)
			}
		}()
	}
}

func TestFilesThatACrashLeftAreRemoved(t *testing.T) {
	s, dir := newFakeStore(), t.TempDir()
	known, unknown := s.put("known", 200_000), s.put("unknown", 5<<20)
	c := openCache(t, s, Config{Dir: dir})
	for _, obj := range []oss.Object{known, unknown} {
		if obj == unknown {
			flush(t, c)
			c.ssd.indexer.storing.Lock() // the index learns nothing of the second
		}
		h, err := c.Open(obj)
		if err != nil {
			t.Fatal(err)
		}
		checkRead(t, s, h, 0, 200_000)
		// What was read is queued a moment after the reader has it.
		waitUntil(t, "it is on SSD", func() bool { return c.Residency(obj).SSD > 0 && settled(c) })
		_ = h.Close()
	}
	go func(tier *ssdTier, closing <-chan struct{}) {
		<-closing
		tier.indexer.storing.Unlock()
	}(c.ssd, c.ctx.Done())
	c.ssd.health.IndexFailed(index.ErrUnusable) // nor does it when the cache ends
	c.crash(t)
	if _, err := os.Stat(objectFile(dir, unknown)); err != nil {
		t.Fatal(err)
	}

	c = openCache(t, s, Config{Dir: dir})
	waitUntil(t, "the unknown file is gone", func() bool {
		_, err := os.Stat(objectFile(dir, unknown))
		return errors.Is(err, fs.ErrNotExist)
	})
	s.resetRequests()
	checkRead(t, s, openObject(t, c, known), 0, 200_000)
	if n := s.requests(); n != 0 {
		t.Errorf("%d requests for what the index knew", n)
	}
}

func TestFullDiskCostsSpeedOnly(t *testing.T) {
	testFaultyDisk(t, unix.ENOSPC)
}

func TestFailingDiskCostsSpeedOnly(t *testing.T) {
	testFaultyDisk(t, unix.EIO)
}

func TestReadOnlyDiskCostsSpeedOnly(t *testing.T) {
	testFaultyDisk(t, unix.EROFS)
}

func testFaultyDisk(t *testing.T, fault error) {
	s, dir := newFakeStore(), t.TempDir()
	before := s.put("before", 3<<20)
	warm(t, s, dir, before)
	c, disk := openFaulty(t, s, Config{Dir: dir})
	fail := func(string) error { return fault }
	disk.set(func() {
		disk.mu.writeErr, disk.mu.syncErr = fail, fail
		disk.mu.short = 1000
		if errors.Is(fault, unix.EROFS) {
			disk.mu.openErr = func(name string) error {
				if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
					return fault
				}
				return nil
			}
		}
	})
	for i := range 20 {
		h := openObject(t, c, s.put(fmt.Sprint("during", i), 150_000+i))
		checkRead(t, s, h, 0, 200_000)
	}
	waitUntil(t, "the state is degraded", func() bool { return c.Stats().SSD.State == "degraded" })
	waitUntil(t, "the queue is empty", func() bool { return settled(c) })
	st := c.Stats().SSD
	if !strings.Contains(st.LastError, fault.Error()) || st.LastErrorTime.IsZero() || st.DroppedWrites == 0 || st.DroppedBytes == 0 {
		t.Errorf("status does not say so: %+v", st)
	}
	if err := c.Fetch(context.Background(), s.put("fetched", 100_000)); !errors.Is(err, ErrUnavailable) {
		t.Errorf("Fetch gave %v", err)
	}
	// What was there is still read from there.
	s.resetRequests()
	checkRead(t, s, openObject(t, c, before), 0, 3<<20)
	if n := s.requests(); n != 0 {
		t.Errorf("%d requests for what is on SSD", n)
	}

	disk.set(func() { disk.mu.writeErr, disk.mu.syncErr, disk.mu.openErr = nil, nil, nil })
	waitUntil(t, "the state is ok", func() bool { return c.Stats().SSD.State == "ok" })
	after := s.put("after", 150_000)
	checkRead(t, s, openObject(t, c, after), 0, 150_000)
	waitUntil(t, "it is written again", func() bool { return c.Residency(after).Whole })
}

// What stays in memory reaches an SSD that refused it again and again, in time.
func TestWhatWasRefusedIsOfferedAgain(t *testing.T) {
	s := newFakeStore()
	c, drive := openFaulty(t, s, Config{Dir: t.TempDir()})
	// A shortage is not the disk's fault: its state stays ok.
	drive.set(func() {
		drive.mu.openErr = func(name string) error {
			if strings.HasPrefix(name, disk.ObjectsName) {
				return unix.EMFILE
			}
			return nil
		}
	})
	obj := s.put("object", 150_000)
	h := openObject(t, c, obj)
	read := func() {
		checkRead(t, s, h, 0, 150_000)
		waitUntil(t, "the queue is empty", func() bool { return settled(c) })
	}
	for range 1 + maxOffers {
		read()
	}
	if n := c.Stats().SSD.DroppedWrites; n != 1+maxOffers {
		t.Fatalf("%d writes were dropped", n)
	}
	drive.set(func() { drive.mu.openErr = nil })
	read()
	if r := c.Residency(obj); r.SSD != 0 || r.Memory == 0 {
		t.Fatalf("offered without a pause: %+v", r)
	}
	o := c.objects.find(content.Identify(c.bucket, obj))
	defer o.release()
	o.mu.Lock()
	for _, e := range o.segment(0).extents {
		e.offered = e.offered.Add(-offerAgain)
	}
	o.mu.Unlock()
	read()
	waitUntil(t, "it is written", func() bool { return c.Residency(obj).Whole })
}

func TestDiskThatCannotBeReadCostsSpeedOnly(t *testing.T) {
	s, dir := newFakeStore(), t.TempDir()
	var objects []oss.Object
	for i := range 8 {
		objects = append(objects, s.put(fmt.Sprint("object", i), 300_000))
	}
	warm(t, s, dir, objects...)
	c, disk := openFaulty(t, s, Config{Dir: dir})
	disk.set(func() { disk.mu.readErr = func(string) error { return unix.EIO } })
	for _, obj := range objects {
		checkRead(t, s, openObject(t, c, obj), 0, 300_000)
	}
	if st := c.Stats().SSD; st.State != "down" || st.Damaged == 0 {
		t.Errorf("%+v", st)
	}
	disk.set(func() { disk.mu.readErr = nil })
	waitUntil(t, "the state is ok", func() bool { return c.Stats().SSD.State == "ok" })
	s.resetRequests()
	checkRead(t, s, openObject(t, c, objects[7]), 0, 300_000)
	if n := s.requests(); n != 0 {
		t.Errorf("%d requests for what is on SSD", n)
	}
}

func TestHungDiskIsLeftAlone(t *testing.T) {
	s, dir := newFakeStore(), t.TempDir()
	obj, other := s.put("object", 300_000), s.put("other", 300_000)
	warm(t, s, dir, obj, other)
	c, drive := openFaulty(t, s, Config{Dir: dir})
	begun, release := make(chan struct{}, 10), make(chan struct{})
	drive.set(func() {
		drive.mu.readErr = func(string) error { begun <- struct{}{}; <-release; return unix.EIO }
	})
	hung := make(chan error, 1)
	go func() {
		h, err := c.Open(obj)
		if err == nil {
			err = compareRead(s, h, 0, 300_000)
			_ = h.Close()
		}
		hung <- err
	}()
	<-begun
	// Half a minute later.
	c.ssd.health.Backdate(disk.HungAfter + time.Second)
	waitUntil(t, "the state is down", func() bool { return c.Stats().SSD.State == "down" })
	checkRead(t, s, openObject(t, c, other), 0, 300_000)
	close(release)
	if err := <-hung; err != nil {
		t.Error(err)
	}
}

func TestSyncThatFailsLosesOnlyWhatWasNotSynced(t *testing.T) {
	s, dir := newFakeStore(), t.TempDir()
	c, disk := openFaulty(t, s, Config{Dir: dir})
	disk.set(func() { disk.mu.syncErr = func(string) error { return unix.EIO } })
	obj := s.put("object", 3<<20)
	h := openObject(t, c, obj)
	checkRead(t, s, h, 0, 3<<20)
	waitUntil(t, "the blocks are forgotten", func() bool {
		return c.Stats().SSD.State == "degraded" && c.Residency(obj).SSD == 0
	})
	checkRead(t, s, h, 0, 3<<20)
	disk.set(func() { disk.mu.syncErr = nil })
}

// What is being brought to the index is lost by a crash at that moment.
func TestWhatIsBeingIndexedCountsAsUnindexed(t *testing.T) {
	s := newFakeStore()
	c, disk := openFaulty(t, s, Config{Dir: t.TempDir()})
	begun, release := make(chan struct{}, 10), make(chan struct{})
	disk.set(func() {
		disk.mu.syncErr = func(string) error { begun <- struct{}{}; <-release; return nil }
	})
	obj := s.put("object", 300_000)
	checkRead(t, s, openObject(t, c, obj), 0, 300_000)
	<-begun
	waitUntil(t, "all is written", func() bool { return settled(c) })
	if n := c.Stats().SSD.Unindexed; n != 1 {
		t.Errorf("%d objects are unindexed while one is synced", n)
	}
	close(release)
	waitUntil(t, "all is indexed", func() bool { return c.Stats().SSD.Unindexed == 0 })
}

// What waits to be written when the content is found wrong must not get into the
// file that is made of what is fetched then.
func TestContentThatWasThrownAwayIsNotWritten(t *testing.T) {
	s := newFakeStore()
	obj := s.put("a", 3<<20)
	c := openCache(t, s, Config{Dir: t.TempDir()})
	h := openObject(t, c, obj)
	checkRead(t, s, h, 0, 3<<20)
	o := h.object
	waitUntil(t, "nothing waits", func() bool { return settled(c) })

	o.mu.Lock()
	var waiting *extent
	if seg := o.segment(0); len(seg.extents) > 0 {
		waiting = seg.extents[0]
	} else {
		o.mu.Unlock()
		t.Fatal("nothing is in memory")
	}
	waiting.acquire()
	o.mu.disk.writing++
	o.setHolds(waiting, waiting.holds|heldWriting)
	waste := o.forget()
	o.mu.Unlock()
	c.discard(o, waste, oss.ErrCorrupted)

	again := openObject(t, c, obj)
	c.ssd.load(o)
	waiting.buf.bytes[0] ^= 1 // as it was when it was found wrong
	if err := c.ssd.writer.write(writeJob{extent: waiting}); !errors.Is(err, errBusy) {
		t.Errorf("written: %v", err)
	}
	if r := c.Residency(obj); r.SSD != 0 {
		t.Errorf("SSD has %d bytes of it", r.SSD)
	}
	c.ssd.writer.written(writeJob{extent: waiting}, errBusy)
	waitUntil(t, "it is whole again", func() bool {
		checkRead(t, s, again, 0, 3<<20)
		return c.Residency(obj).Whole
	})
}
