package cache

import (
	"bytes"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pailfs/pailfs/cache/internal/disk"
	"github.com/pailfs/pailfs/oss"
)

// Large extents go past the page cache, and every reader of the file meets what
// was written, also if it had looked at the file before.
func TestLargeExtentsAreWrittenPastThePageCache(t *testing.T) {
	s, dir := newFakeStore(), t.TempDir()
	probe, err := unix.Open(dir, unix.O_TMPFILE|unix.O_RDWR|unix.O_DIRECT, 0o600)
	direct := err == nil // else the file system has no direct writes, and all must work without
	if direct {
		_ = unix.Close(probe)
	}
	obj := s.put("a", 20<<20+777)
	c := openCache(t, s, Config{Dir: dir})
	h := openObject(t, c, obj)
	checkRead(t, s, h, 1<<20, 1) // there is a file, with a hole
	waitUntil(t, "there is a file", func() bool { _, err := os.Stat(objectFile(dir, obj)); return err == nil })
	if _, err := os.ReadFile(objectFile(dir, obj)); err != nil { // zeros in the page cache
		t.Fatal(err)
	}
	waitUntil(t, "it is on SSD", func() bool {
		for off := int64(0); off < obj.Size; off += 1 << 20 {
			checkRead(t, s, h, off, 1<<20)
		}
		return c.Residency(obj).Whole
	})
	got, err := os.ReadFile(objectFile(dir, obj))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, s.content(obj)) {
		t.Error("the file is not the object")
	}
	if n := c.metrics.directBytes.Load(); direct != (n > 0) {
		t.Errorf("%d bytes were written directly; the file system has direct writes: %v", n, direct)
	}
}

// Where direct writes are refused, the others do.
func TestFileSystemWithoutDirectWrites(t *testing.T) {
	s, dir := newFakeStore(), t.TempDir()
	c, err := open(Config{Dir: dir, Memory: minMemory, MinFreeBytes: 1, MinFreeInodes: 1}, s, s, nil, testLog(t), func(dir string) (disk.FileSystem, error) {
		disk, err := disk.OpenLocal(dir)
		return &indirectFS{disk}, err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer closeCache(t, c)
	obj := s.put("a", 9<<20)
	waitUntil(t, "it is on SSD", func() bool {
		h := openObject(t, c, obj)
		for off := int64(0); off < obj.Size; off += 1 << 20 {
			checkRead(t, s, h, off, 1<<20)
		}
		if err := h.Close(); err != nil {
			t.Fatal(err)
		}
		return c.Residency(obj).Whole
	})
	if got, err := os.ReadFile(objectFile(dir, oss.Object{Key: obj.Key, ETag: obj.ETag, Size: obj.Size})); err != nil || !bytes.Equal(got, s.content(obj)) {
		t.Errorf("the file is not the object: %v", err)
	}
	if n := c.metrics.directBytes.Load(); n != 0 || !c.ssd.writer.noDirect.Load() {
		t.Errorf("%d bytes were written directly", n)
	}
}

// indirectFS takes no direct writes.
type indirectFS struct{ *disk.Local }

func (f *indirectFS) Open(name string, flag int) (disk.IO, error) {
	io, err := f.Local.Open(name, flag)
	if err != nil {
		return nil, err
	}
	return indirectFile{io}, nil
}

type indirectFile struct{ disk.IO }

func (indirectFile) OpenDirect() (disk.DirectWriter, error) { return nil, unix.EINVAL }
