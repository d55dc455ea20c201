package disk

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// FileSystem is what the SSD tier asks of the disk. The tests put another in its
// place, which fails, fills up, or forgets what was not synced. Names are relative
// to the cache directory.
type FileSystem interface {
	// Open opens a file for reading and writing. With os.O_CREATE it is a new one, in
	// the place of what is there, and the directory of objects is made if it is
	// missing.
	Open(name string, flag int) (IO, error)
	Remove(name string) error
	// MoveOut renames a file to a path outside, which must not exist, and MoveIn the
	// file at a path outside to name; the directory of objects is made if it is
	// missing.
	MoveOut(name, path string) error
	MoveIn(path, name string) error
	// SyncName makes the name of a file durable.
	SyncName(name string) error
	// List returns the names in a directory; none if it is not a directory.
	List(name string) ([]string, error)
	// Space returns what is free.
	Space() (Space, error)
	// Sync makes everything durable that was written before.
	Sync() error
	Close() error
}

// IO is an open file.
type IO interface {
	ReadAt(p []byte, off int64) (int, error)
	WriteAt(p []byte, off int64) (int, error)
	Truncate(size int64) error
	Sync() error
	Stat() (fs.FileInfo, error)
	Close() error
	// OpenDirect opens the file for writing past the page cache, if it can be.
	OpenDirect() (DirectWriter, error)
	// OSFile returns the file for callers who hand its descriptor to the kernel.
	OSFile() *os.File
}

// Space is the state of a file system. Inodes are 0 where it has no table of
// them.
type Space struct {
	Bytes, FreeBytes   int64
	Inodes, FreeInodes int64
}

// Local is the real one. It goes by the open directory, not by its path: what
// is put in its place is not ours.
type Local struct {
	dir  string
	root *os.File
}

var _ FileSystem = (*Local)(nil)

// OpenLocal opens the file system of a directory.
func OpenLocal(dir string) (*Local, error) {
	root, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	return &Local{dir: dir, root: root}, nil
}

// LocalIO is a file of the real file system.
type LocalIO struct{ *os.File }

var _ IO = LocalIO{}

// OSFile returns the file.
func (f LocalIO) OSFile() *os.File { return f.File }

// Sync makes the content durable, and of the metadata what is needed to find it.
func (f LocalIO) Sync() error {
	for {
		if err := unix.Fdatasync(int(f.Fd())); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// Open does what [FileSystem] says.
func (d *Local) Open(name string, flag int) (IO, error) {
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
			if err := d.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			fd, err = unix.Openat(int(d.root.Fd()), name, unix.O_RDWR|unix.O_CLOEXEC|unix.O_NOFOLLOW|flag, 0o600)
		}
		return err
	})
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: filepath.Join(d.dir, name), Err: err}
	}
	return LocalIO{os.NewFile(uintptr(fd), filepath.Join(d.dir, name))}, nil
}

// withDirectory does what needs the directory of name, which it makes if that is
// missing and create is set. It makes none where the whole cache was removed: what is
// there then may be another's.
func (d *Local) withDirectory(name string, create bool, do func() error) error {
	err := retryEINTR(do)
	parent := filepath.Dir(name)
	if !create || !errors.Is(err, unix.ENOENT) || parent == "." {
		return err
	}
	root := int(d.root.Fd())
	var st unix.Stat_t
	if err := unix.Fstatat(root, FormatName, &st, unix.AT_SYMLINK_NOFOLLOW); errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("the cache directory was removed: %w", err)
	} else if err != nil {
		return err
	}
	for range 8 { // remove may take the directory again before there is something in it
		for _, dir := range []string{ObjectsName, parent} {
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

// Remove does what [FileSystem] says.
func (d *Local) Remove(name string) error {
	err := retryEINTR(func() error { return unix.Unlinkat(int(d.root.Fd()), name, 0) })
	if errors.Is(err, unix.EISDIR) {
		err = unix.Unlinkat(int(d.root.Fd()), name, unix.AT_REMOVEDIR)
	}
	if err != nil {
		return &fs.PathError{Op: "remove", Path: filepath.Join(d.dir, name), Err: err}
	}
	if parent := filepath.Dir(name); parent != "." && parent != ObjectsName {
		if space, err := d.Space(); err == nil && fewInodes(space.Inodes, space.FreeInodes) {
			// Its directory takes an inode as well. One that is not empty stays.
			_ = unix.Unlinkat(int(d.root.Fd()), parent, unix.AT_REMOVEDIR)
		}
	}
	return nil
}

// fewInodes tells whether directories that hold nothing are a waste.
func fewInodes(inodes, free int64) bool { return inodes != 0 && free < 16*objectDirs }

// MoveOut does what [FileSystem] says.
func (d *Local) MoveOut(name, path string) error {
	return unix.Renameat2(int(d.root.Fd()), name, unix.AT_FDCWD, path, unix.RENAME_NOREPLACE)
}

// MoveIn does what [FileSystem] says.
func (d *Local) MoveIn(path, name string) error {
	err := d.withDirectory(name, true, func() error { return unix.Renameat(unix.AT_FDCWD, path, int(d.root.Fd()), name) })
	if err != nil {
		return &os.LinkError{Op: "rename", Old: path, New: filepath.Join(d.dir, name), Err: err}
	}
	return nil
}

// SyncName does what [FileSystem] says.
func (d *Local) SyncName(name string) error {
	f, err := d.openDirectory(filepath.Dir(name))
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

func (d *Local) openDirectory(name string) (*os.File, error) {
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

// List does what [FileSystem] says.
func (d *Local) List(name string) ([]string, error) {
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

// Space does what [FileSystem] says.
func (d *Local) Space() (Space, error) {
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(d.root.Fd()), &st); err != nil {
		return Space{}, err
	}
	return Space{
		Bytes:      int64(st.Blocks) * st.Bsize,
		FreeBytes:  int64(st.Bavail) * st.Bsize,
		Inodes:     int64(st.Files),
		FreeInodes: int64(st.Ffree),
	}, nil
}

// Sync does what [FileSystem] says.
func (d *Local) Sync() error {
	for {
		if err := unix.Syncfs(int(d.root.Fd())); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// Close does what [FileSystem] says.
func (d *Local) Close() error { return d.root.Close() }
