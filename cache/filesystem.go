package cache

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// fileSystem is what the SSD tier asks of the disk. The tests put another in its
// place, which fails, fills up, or forgets what was not synced. Names are relative
// to the cache directory.
type fileSystem interface {
	// open opens a file for reading and writing. With os.O_CREATE it is a new one, in
	// the place of what is there, and the directory of objects is made if it is
	// missing.
	open(name string, flag int) (diskIO, error)
	remove(name string) error
	// moveOut renames a file to a path outside, which must not exist, and moveIn the
	// file at a path outside to name; the directory of objects is made if it is
	// missing.
	moveOut(name, path string) error
	moveIn(path, name string) error
	// syncName makes the name of a file durable.
	syncName(name string) error
	// list returns the names in a directory; none if it is not a directory.
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
	// openDirect opens the file for writing past the page cache, if it can be.
	openDirect() (directWriter, error)
	// osFile returns the file for callers who hand its descriptor to the kernel.
	osFile() *os.File
}

// diskSpace is the state of a file system. Inodes are 0 where it has no table of
// them.
type diskSpace struct {
	bytes, freeBytes   int64
	inodes, freeInodes int64
}

// osFileSystem is the real one. It goes by the open directory, not by its path: what
// is put in its place is not ours.
type osFileSystem struct {
	dir  string
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
	if flag&os.O_CREATE != 0 {
		// A new file in every case: one that is there may be another daemon's, if the
		// directory was given to it, and what that has open must not change.
		flag |= os.O_EXCL
	}
	var fd int
	err := d.withDirectory(name, flag&os.O_CREATE != 0, func() (err error) {
		// O_NOFOLLOW: we make no links.
		fd, err = unix.Openat(int(d.root.Fd()), name, unix.O_RDWR|unix.O_CLOEXEC|unix.O_NOFOLLOW|flag, 0o600)
		if errors.Is(err, unix.EEXIST) {
			if err := d.remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			fd, err = unix.Openat(int(d.root.Fd()), name, unix.O_RDWR|unix.O_CLOEXEC|unix.O_NOFOLLOW|flag, 0o600)
		}
		return err
	})
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: filepath.Join(d.dir, name), Err: err}
	}
	return osIO{os.NewFile(uintptr(fd), filepath.Join(d.dir, name))}, nil
}

// withDirectory does what needs the directory of name, which it makes if that is
// missing and create is set. It makes none where the whole cache was removed: what is
// there then may be another's.
func (d *osFileSystem) withDirectory(name string, create bool, do func() error) error {
	err := retryEINTR(do)
	parent := filepath.Dir(name)
	if !create || !errors.Is(err, unix.ENOENT) || parent == "." {
		return err
	}
	root := int(d.root.Fd())
	var st unix.Stat_t
	if err := unix.Fstatat(root, formatName, &st, unix.AT_SYMLINK_NOFOLLOW); errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("the cache directory was removed: %w", err)
	} else if err != nil {
		return err
	}
	for range 8 { // remove may take the directory again before there is something in it
		for _, dir := range []string{objectsName, parent} {
			if err := unix.Mkdirat(root, dir, 0o700); err != nil && !errors.Is(err, unix.EEXIST) {
				return err
			}
		}
		if err = retryEINTR(do); !errors.Is(err, unix.ENOENT) {
			break
		}
	}
	return err
}

func retryEINTR(do func() error) error {
	for {
		if err := do(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

func (d *osFileSystem) remove(name string) error {
	err := retryEINTR(func() error { return unix.Unlinkat(int(d.root.Fd()), name, 0) })
	if errors.Is(err, unix.EISDIR) {
		err = unix.Unlinkat(int(d.root.Fd()), name, unix.AT_REMOVEDIR)
	}
	if err != nil {
		return &fs.PathError{Op: "remove", Path: filepath.Join(d.dir, name), Err: err}
	}
	if parent := filepath.Dir(name); parent != "." && parent != objectsName {
		if space, err := d.space(); err == nil && fewInodes(space.inodes, space.freeInodes) {
			// Its directory takes an inode as well. One that is not empty stays.
			_ = unix.Unlinkat(int(d.root.Fd()), parent, unix.AT_REMOVEDIR)
		}
	}
	return nil
}

// fewInodes tells whether directories that hold nothing are a waste.
func fewInodes(inodes, free int64) bool { return inodes != 0 && free < 16*objectDirs }

func (d *osFileSystem) moveOut(name, path string) error {
	return unix.Renameat2(int(d.root.Fd()), name, unix.AT_FDCWD, path, unix.RENAME_NOREPLACE)
}

func (d *osFileSystem) moveIn(path, name string) error {
	err := d.withDirectory(name, true, func() error { return unix.Renameat(unix.AT_FDCWD, path, int(d.root.Fd()), name) })
	if err != nil {
		return &os.LinkError{Op: "rename", Old: path, New: filepath.Join(d.dir, name), Err: err}
	}
	return nil
}

func (d *osFileSystem) syncName(name string) error {
	f, err := d.openDirectory(filepath.Dir(name))
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

func (d *osFileSystem) openDirectory(name string) (*os.File, error) {
	var fd int
	err := retryEINTR(func() (err error) {
		fd, err = unix.Openat(int(d.root.Fd()), name, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
		return err
	})
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: filepath.Join(d.dir, name), Err: err}
	}
	return os.NewFile(uintptr(fd), filepath.Join(d.dir, name)), nil
}

func (d *osFileSystem) list(name string) ([]string, error) {
	f, err := d.openDirectory(name)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
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
