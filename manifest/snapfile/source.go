package snapfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"runtime/debug"
	"sync"

	"golang.org/x/sys/unix"
)

// source is where the bytes of a file come from.
type source interface {
	// read fills b from offset on, which is within the file.
	read(b []byte, offset int64) error
	close() error
}

// readerSource reads by calls.
type readerSource struct{ r io.ReaderAt }

func (s readerSource) read(b []byte, offset int64) error {
	n, err := s.r.ReadAt(b, offset)
	if n == len(b) {
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return err
}

func (s readerSource) close() error { return nil }

// mapping reads from memory that is mapped. What is read is copied at once, so
// that nothing that is decoded can change, and nothing outlives the mapping.
type mapping struct {
	// mu is held for reading while b is read.
	mu sync.RWMutex
	b  []byte
}

// openMapping maps the file at path.
func openMapping(path string) (*mapping, int64, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, 0, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, 0, err
	}
	if !st.Mode().IsRegular() {
		return nil, 0, &fs.PathError{Op: "open manifest", Path: path, Err: errors.New("not a regular file")}
	}
	if st.Size() == 0 {
		return &mapping{}, 0, nil
	}
	b, err := unix.Mmap(int(f.Fd()), 0, int(st.Size()), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, 0, &fs.PathError{Op: "map", Path: path, Err: err}
	}
	// What is asked for is scattered.
	if err := unix.Madvise(b, unix.MADV_RANDOM); err != nil {
		return nil, 0, errors.Join(&fs.PathError{Op: "advise about mapping of", Path: path, Err: err}, unix.Munmap(b))
	}
	return &mapping{b: b}, st.Size(), nil
}

func (m *mapping) read(b []byte, offset int64) (err error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if m.b == nil {
		return fs.ErrClosed
	}
	// A file that was cut short, or a disk that fails, is a fault.
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if fault := recover(); fault != nil {
			err = fmt.Errorf("the file cannot be read there: %v", fault)
		}
	}()
	copy(b, m.b[offset:])
	return nil
}

func (m *mapping) close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	b := m.b
	m.b = nil
	if b == nil {
		return nil
	}
	return unix.Munmap(b)
}
