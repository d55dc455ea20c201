package cache

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pailfs/pailfs/cache/internal/content"
	"github.com/pailfs/pailfs/cache/internal/disk"
	"github.com/pailfs/pailfs/cache/internal/index"
	"github.com/pailfs/pailfs/oss"
)

// In version 1 an object file lay one directory deeper.
func TestCacheOfVersion1IsConverted(t *testing.T) {
	s, dir := newFakeStore(), t.TempDir()
	objects := []oss.Object{s.put("a", 3<<20), s.put("b", 70_000), s.put("c", 1)}
	warm(t, s, dir, objects...)
	for _, obj := range objects {
		file := objectFile(dir, obj)
		name := filepath.Base(file)
		old := filepath.Join(filepath.Dir(file), name[2:4])
		if err := os.Mkdir(old, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(file, filepath.Join(old, name)); err != nil {
			t.Fatal(err)
		}
	}
	format := filepath.Join(dir, disk.FormatName)
	if err := os.WriteFile(format, []byte(disk.FormatMagic+"version 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := openCache(t, s, Config{Dir: dir})
	for _, obj := range objects {
		h := openObject(t, c, obj)
		checkRead(t, s, h, 0, int(obj.Size))
	}
	if n := s.requests(); n != 0 {
		t.Errorf("%d requests for what the cache of version 1 had", n)
	}
	if now, err := os.ReadFile(format); err != nil || string(now) != disk.FormatMagic+"version 2\n" {
		t.Errorf("the format is %q, %v", now, err)
	}
	left, err := filepath.Glob(filepath.Join(dir, disk.ObjectsName, "*", "??"))
	if err != nil || len(left) > 0 {
		t.Errorf("left over: %v, %v", left, err)
	}
}

// A cache that was removed while a daemon had it may leave object files behind.
func TestRemainsOfARemovedCacheAreTakenOver(t *testing.T) {
	s, dir := newFakeStore(), t.TempDir()
	obj := s.put("a", 70_000)
	warm(t, s, dir, obj)
	for _, name := range []string{disk.FormatName, index.Name, "lock"} {
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	c := openCache(t, s, Config{Dir: dir})
	waitUntil(t, "the file that nobody knows is gone", func() bool {
		_, err := os.Lstat(objectFile(dir, obj))
		return os.IsNotExist(err)
	})
	h := openObject(t, c, obj)
	checkRead(t, s, h, 0, int(obj.Size))
}

// The daemon makes nothing new in a directory that is no cache any more: it may be
// another's by now.
func TestNothingIsMadeInADirectoryThatWasEmptied(t *testing.T) {
	s, dir := newFakeStore(), t.TempDir()
	c := openCache(t, s, Config{Dir: dir})
	names, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if err := os.RemoveAll(filepath.Join(dir, name.Name())); err != nil {
			t.Fatal(err)
		}
	}
	h := openObject(t, c, s.put("a", 3<<20))
	checkRead(t, s, h, 0, 3<<20)
	waitUntil(t, "the disk is not used", func() bool { return c.Stats().SSD.State != "ok" })
	c.ssd.health.Probed(c.ssd.probe())
	c.ssd.health.Probed(c.ssd.probe())
	if state := c.Stats().SSD.State; state == "ok" {
		t.Errorf("the disk is %s", state)
	}
	if names, err := os.ReadDir(dir); err != nil || len(names) > 0 {
		t.Errorf("%v, %v", names, err)
	}
}

// If the objects alone are removed, those that come later are kept again.
func TestObjectsThatAreRemovedComeBack(t *testing.T) {
	s, dir := newFakeStore(), t.TempDir()
	c := openCache(t, s, Config{Dir: dir})
	if err := os.RemoveAll(filepath.Join(dir, disk.ObjectsName)); err != nil {
		t.Fatal(err)
	}
	obj := s.put("a", 3<<20)
	waitUntil(t, "it is on SSD", func() bool {
		h := openObject(t, c, obj)
		checkRead(t, s, h, 0, 3<<20)
		if err := h.Close(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Millisecond)
		return c.Residency(obj).Whole
	})
}

// What takes the room may be the files of a cache whose index is lost.
func TestDiskFullOfFilesThatNobodyKnowsIsSwept(t *testing.T) {
	s, dir := newFakeStore(), t.TempDir()
	var objects []oss.Object
	for _, key := range []string{"a", "b", "c"} {
		objects = append(objects, s.put(key, 3<<20))
	}
	warm(t, s, dir, objects...)
	if err := os.Remove(filepath.Join(dir, index.Name)); err != nil {
		t.Fatal(err)
	}
	left := func() (n int64) {
		for _, obj := range objects {
			if _, err := os.Lstat(objectFile(dir, obj)); err == nil {
				n++
			}
		}
		return n
	}
	c, err := open(Config{Dir: dir, Memory: minMemory, MinFreeBytes: 1, MinFreeInodes: 1}, s, s, nil, testLog(t), func(dir string) (disk.FileSystem, error) {
		disk, err := disk.OpenLocal(dir)
		return &fullDisk{disk, left}, err
	})
	if err != nil {
		t.Fatal(err)
	}
	closeCache(t, c)
	if n := left(); n != 0 {
		t.Errorf("%d files are left", n)
	}
}

// fullDisk has no room while there are files.
type fullDisk struct {
	*disk.Local
	files func() int64
}

func (d *fullDisk) Space() (disk.Space, error) {
	free := int64(1 << 30)
	if d.files() > 0 {
		free = 2
	}
	return disk.Space{Bytes: 1 << 30, FreeBytes: free, Inodes: 1 << 20, FreeInodes: 1 << 20}, nil
}

// A daemon whose directory was emptied and given to another changes none of the
// files that the other makes, also if they are of the same objects.
func TestFilesOfAnotherDaemonAreNotChanged(t *testing.T) {
	s, dir := newFakeStore(), t.TempDir()
	obj := s.put("a", 3<<20)
	first := openCache(t, s, Config{Dir: dir})
	names, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if err := os.RemoveAll(filepath.Join(dir, name.Name())); err != nil {
			t.Fatal(err)
		}
	}
	second := openCache(t, s, Config{Dir: dir})
	h := openObject(t, second, obj)
	checkRead(t, s, h, 0, 3<<20)
	waitUntil(t, "the second has it", func() bool { return second.Residency(obj).Whole })
	file, ok := h.WholeFile()
	if !ok {
		t.Fatal("the second does not hand its file out")
	}
	checkRead(t, s, openObject(t, first, obj), 0, 3<<20)
	waitUntil(t, "the first has it too, or nothing", func() bool { return settled(first) })
	got := make([]byte, obj.Size)
	if _, err := file.ReadAt(got, 0); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, s.content(obj)) {
		t.Error("the file that the second has open was changed")
	}
}

// Where inodes are few an object's directory goes with its last file; if not, the
// directories of what came and went take all of them in the end.
func TestDirectoriesDoNotTakeTheLastInodes(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=64m,nr_inodes=40"); err != nil {
		t.Fatal(err)
	}
	drive, err := disk.OpenLocal(dir)
	if err != nil {
		_ = unix.Unmount(dir, unix.MNT_DETACH)
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := drive.Close(); err != nil {
			t.Error(err)
		}
		_ = unix.Unmount(dir, unix.MNT_DETACH)
	})
	if err := os.WriteFile(filepath.Join(dir, disk.FormatName), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for i := range 200 {
		var id content.Identity
		id[0], id[1] = byte(i), byte(i>>8)
		f, err := drive.Open(disk.FileName(id), os.O_CREATE)
		if err != nil {
			t.Fatalf("object %d: %v", i, err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		if err := drive.Remove(disk.FileName(id)); err != nil {
			t.Fatal(err)
		}
	}
	if names, err := drive.List(disk.ObjectsName); err != nil || len(names) != 0 {
		t.Errorf("empty directories are left: %q, %v", names, err)
	}
}
