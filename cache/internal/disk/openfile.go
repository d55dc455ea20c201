package disk

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

// File is an open object file, shared by those who use it. It is closed with
// the last of them; eviction merely unlinks it.
type File struct {
	IO
	refs     atomic.Int32
	Inode    Inode
	directly directFile
	// Given says that the file is the cache's no more: Take gave it to somebody who
	// changes it.
	Given atomic.Bool
}

// Acquire adds a reference; the caller must know that there is one already.
func (f *File) Acquire() { f.refs.Add(1) }

// Release drops a reference. With the last one the file is closed.
func (f *File) Release() {
	if f.refs.Add(-1) == 0 {
		// Nothing depends on it: what must last was synced by then.
		_ = f.Close()
		if w := f.directly.writer; w != nil {
			_ = w.Close()
		}
	}
}

// OpenFile opens the file of an object and checks that it is as long as the
// object. One that it creates is made so, unless one write will do it.
func OpenFile(files FileSystem, name string, size int64, create, sparse bool) (*File, error) {
	flag := 0
	if create {
		flag = os.O_CREATE
	}
	opened, err := files.Open(name, flag)
	if err != nil {
		return nil, err
	}
	f := &File{IO: opened}
	f.refs.Store(1)
	if create && sparse {
		err = f.Truncate(size)
	}
	var info fs.FileInfo
	if err == nil {
		info, err = f.Stat()
	}
	if err == nil && !create && info.Size() != size {
		err = fmt.Errorf("%w: %d bytes instead of %d", ErrDamaged, info.Size(), size)
	}
	if err != nil {
		f.Release()
		return nil, err
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		f.Inode.number = st.Ino
	}
	if file := f.OSFile(); file != nil {
		f.Inode.born = bornAt(file)
	}
	return f, nil
}

// Inode tells a file from others that were or will be in its place: the number of one
// that was removed is used again at once, but not with the time at which it was made, in
// nanoseconds since 1970; 0 where the file system does not know it.
type Inode struct {
	number uint64
	born   int64
}

// InodeOf returns what tells a file from others, whose number is known.
func InodeOf(file *os.File, number uint64) Inode { return Inode{number, bornAt(file)} }

// bornAt returns when a file was made.
func bornAt(file *os.File) int64 {
	var st unix.Statx_t
	if err := unix.Statx(int(file.Fd()), "", unix.AT_EMPTY_PATH, unix.STATX_BTIME, &st); err != nil || st.Mask&unix.STATX_BTIME == 0 {
		return 0
	}
	return st.Btime.Sec*1e9 + int64(st.Btime.Nsec)
}

// ErrDamaged means that an object file is not as it was left.
var ErrDamaged = errors.New("cache file is damaged")

// DirectWriter writes to a file past the page cache: whole pages, from memory that
// begins with one.
type DirectWriter interface {
	io.WriterAt
	io.Closer
}

// OpenDirect opens the file a second time, for direct writes.
func (f LocalIO) OpenDirect() (DirectWriter, error) {
	fd, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", f.Fd()), unix.O_WRONLY|unix.O_DIRECT|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), f.Name()), nil
}

// directFile is what a File has for direct writes, opened with the first.
type directFile struct {
	once   sync.Once
	writer DirectWriter
	err    error // why there is no writer
}

// Direct returns what f is written with past the page cache.
func (f *File) Direct() (DirectWriter, error) {
	f.directly.once.Do(func() { f.directly.writer, f.directly.err = f.OpenDirect() })
	return f.directly.writer, f.directly.err
}
