package cache

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// fileSystem is what the SSD tier asks of the disk. The tests put another in its
// place, which fails, fills up, or forgets what was not synced. Names are relative
// to the cache directory.
type fileSystem interface {
	// open opens a file for reading and writing; it makes directories that are
	// missing if flag has os.O_CREATE.
	open(name string, flag int) (diskIO, error)
	remove(name string) error
	// moveOut renames a file to a path outside, which must not exist, and moveIn the
	// file at a path outside to name; directories that are missing are made.
	moveOut(name, path string) error
	moveIn(path, name string) error
	// syncName makes the name of a file durable.
	syncName(name string) error
	// list returns the names in a directory; none if there is no such directory.
	list(name string) ([]string, error)
	// space returns what is free.
	space() (diskSpace, error)
	// sync makes everything durable that was written before.
	sync() error
	close() error
}

// diskIO is an open file.
type diskIO interface {
	ReadAt(p []byte, off int64) (int, error)
	WriteAt(p []byte, off int64) (int, error)
	Truncate(size int64) error
	Sync() error
	Stat() (fs.FileInfo, error)
	Close() error
	// osFile returns the file for callers who hand its descriptor to the kernel.
	osFile() *os.File
}

// diskSpace is the state of a file system. Inodes are 0 where it has no table of
// them.
type diskSpace struct {
	bytes, freeBytes   int64
	inodes, freeInodes int64
}

// osFileSystem is the real one.
type osFileSystem struct {
	dir string
	// root is the open directory, for what concerns its whole file system.
	root *os.File
}

var _ fileSystem = (*osFileSystem)(nil)

func openFileSystem(dir string) (*osFileSystem, error) {
	root, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	return &osFileSystem{dir: dir, root: root}, nil
}

// osIO is a file of the real file system.
type osIO struct{ *os.File }

var _ diskIO = osIO{}

func (f osIO) osFile() *os.File { return f.File }

// Sync makes the content durable, and of the metadata what is needed to find it.
func (f osIO) Sync() error {
	for {
		if err := unix.Fdatasync(int(f.Fd())); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

func (d *osFileSystem) open(name string, flag int) (diskIO, error) {
	path := filepath.Join(d.dir, name)
	f, err := os.OpenFile(path, os.O_RDWR|flag, 0o600)
	if errors.Is(err, fs.ErrNotExist) && flag&os.O_CREATE != 0 {
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return nil, err
		}
		f, err = os.OpenFile(path, os.O_RDWR|flag, 0o600)
	}
	if err != nil {
		return nil, err
	}
	return osIO{f}, nil
}

func (d *osFileSystem) remove(name string) error {
	return os.Remove(filepath.Join(d.dir, name))
}

func (d *osFileSystem) moveOut(name, path string) error {
	return unix.Renameat2(unix.AT_FDCWD, filepath.Join(d.dir, name), unix.AT_FDCWD, path, unix.RENAME_NOREPLACE)
}

func (d *osFileSystem) moveIn(path, name string) error {
	to := filepath.Join(d.dir, name)
	err := os.Rename(path, to)
	if errors.Is(err, fs.ErrNotExist) {
		if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
			return err
		}
		err = os.Rename(path, to)
	}
	return err
}

func (d *osFileSystem) syncName(name string) error {
	return syncDirectory(filepath.Join(d.dir, filepath.Dir(name)))
}

func (d *osFileSystem) list(name string) ([]string, error) {
	f, err := os.Open(filepath.Join(d.dir, name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return f.Readdirnames(-1)
}

func (d *osFileSystem) space() (diskSpace, error) {
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(d.root.Fd()), &st); err != nil {
		return diskSpace{}, err
	}
	return diskSpace{
		bytes:      int64(st.Blocks) * st.Bsize,
		freeBytes:  int64(st.Bavail) * st.Bsize,
		inodes:     int64(st.Files),
		freeInodes: int64(st.Ffree),
	}, nil
}

func (d *osFileSystem) sync() error {
	for {
		if err := unix.Syncfs(int(d.root.Fd())); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

func (d *osFileSystem) close() error { return d.root.Close() }
