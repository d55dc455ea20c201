package machine

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// DropCaches writes dirty pages out and empties the kernel's caches of pages,
// names and inodes, for the whole machine. It needs root.
func DropCaches() error {
	unix.Sync()
	if err := os.WriteFile("/proc/sys/vm/drop_caches", []byte("3"), 0o200); err != nil {
		return fmt.Errorf("drop the kernel's caches: %w", err)
	}
	return nil
}

// ReadThrough reads every file below dir, so that the page cache holds them.
// Files that vanish meanwhile are passed over.
func ReadThrough(dir string) error {
	buf := make([]byte, 1<<20)
	return filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.Type().IsRegular() {
			err = readThroughFile(path, buf)
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read through %q: %w", path, err)
		}
		return nil
	})
}

func readThroughFile(path string, buf []byte) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	for {
		if _, err := f.Read(buf); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// PrepareSpace writes size bytes to dir and removes them again, because the
// first use of a block is several times slower than the second on thinly
// provisioned disks. File systems reuse freed blocks where they like, so this
// helps often rather than always.
func PrepareSpace(dir string, size int64) (err error) {
	f, err := os.CreateTemp(dir, "prepare-")
	if err != nil {
		return fmt.Errorf("prepare disk space: %w", err)
	}
	defer func() {
		err = errors.Join(err, f.Close(), os.Remove(f.Name()))
	}()
	// Zeros may never reach the medium.
	block := make([]byte, 4<<20)
	for i := range block {
		block[i] = byte(i%251) + 1
	}
	for written := int64(0); written < size; written += int64(len(block)) {
		if _, err := f.Write(block[:min(int64(len(block)), size-written)]); err != nil {
			return fmt.Errorf("prepare disk space: %w", err)
		}
	}
	if err := f.Sync(); err != nil {
		return fmt.Errorf("prepare disk space: %w", err)
	}
	return nil
}

// PrepareMemory uses size bytes of memory once and gives them back, because the
// first use of memory is several times slower than the second where a host backs
// its guests' memory only when they touch it. The kernel hands out first what was
// given back last.
func PrepareMemory(size int64) error {
	p, err := unix.Mmap(-1, 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return fmt.Errorf("prepare memory: %w", err)
	}
	for i := 0; i < len(p); i += 4096 {
		p[i] = 1
	}
	if err := unix.Munmap(p); err != nil {
		return fmt.Errorf("prepare memory: %w", err)
	}
	return nil
}

// FreeSpace is how many bytes may still be written below dir.
func FreeSpace(dir string) (int64, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return 0, fmt.Errorf("ask free space of %q: %w", dir, err)
	}
	return int64(s.Bavail) * s.Bsize, nil
}
