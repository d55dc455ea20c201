package snapfile

import (
	"errors"
	"io"
	"io/fs"
	"os"
)

// source is where the bytes of a file come from.
type source interface {
	// read fills b from offset on, which is within the file.
	read(b []byte, offset int64) error
	close() error
}

// readerSource reads by calls of somebody's reader.
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

// fileSource reads a file of its own. A call waits for those before it to end
// before it closes the file.
type fileSource struct {
	readerSource
	f *os.File
}

// openFile opens the file at path and returns its size.
func openFile(path string) (*fileSource, int64, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, 0, err
	}
	st, err := f.Stat()
	if err == nil && !st.Mode().IsRegular() {
		err = &fs.PathError{Op: "open", Path: path, Err: errors.New("not a regular file")}
	}
	if err != nil {
		return nil, 0, errors.Join(err, f.Close())
	}
	return &fileSource{readerSource{f}, f}, st.Size(), nil
}

func (s *fileSource) close() error { return s.f.Close() }
