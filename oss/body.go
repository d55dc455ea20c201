package oss

import (
	"errors"
	"fmt"
	"io"
	"sync"
)

// bodyError is a failure to read the content that was to be sent.
type bodyError struct{ err error }

func (e *bodyError) Error() string { return "read content to send: " + e.err.Error() }

func (e *bodyError) Unwrap() error { return e.err }

// sending is a Body on its way out once. It sums up what passes, and tells when
// the transport is done with it: the transport may go on reading a while after a
// request has failed, and the Body must not be sought before that.
type sending struct {
	body     Body
	left     int64
	crc      uint64
	progress func(left int64)
	sent     int64

	once   sync.Once
	closed chan struct{}
	err    error // why the content could not be read; valid after closed
}

// newSending rewinds body. progress is called as the transport takes bytes,
// with how many are left.
func newSending(body Body, progress func(left int64)) (*sending, error) {
	if _, err := body.Seek(0, io.SeekStart); err != nil {
		return nil, &bodyError{err}
	}
	return &sending{body: body, left: body.Size(), progress: progress, closed: make(chan struct{})}, nil
}

// Len is how the SDK learns the length.
func (s *sending) Len() int { return int(s.left) }

// Read implements io.Reader for the transport.
func (s *sending) Read(p []byte) (int, error) {
	if s.left == 0 {
		return 0, io.EOF
	}
	n, err := s.body.Read(p[:min(int64(len(p)), s.left)])
	s.crc = UpdateCRC64(s.crc, p[:n])
	s.left -= int64(n)
	s.sent += int64(n)
	if n > 0 {
		s.progress(s.left)
	}
	switch {
	case s.left == 0:
		return n, io.EOF
	case errors.Is(err, io.EOF):
		err = fmt.Errorf("%w after %d bytes of %d", io.ErrUnexpectedEOF, s.sent, s.sent+s.left)
		fallthrough
	case err != nil:
		s.err = &bodyError{err}
		return n, s.err
	}
	return n, nil
}

// Close implements io.Closer for the transport.
func (s *sending) Close() error {
	s.once.Do(func() { close(s.closed) })
	return nil
}

// copyBody writes the whole of body to w.
func copyBody(w io.Writer, body Body) error {
	if _, err := body.Seek(0, io.SeekStart); err != nil {
		return &bodyError{err}
	}
	n, err := io.Copy(w, io.LimitReader(body, body.Size()))
	if err == nil && n != body.Size() {
		err = fmt.Errorf("%w after %d bytes of %d", io.ErrUnexpectedEOF, n, body.Size())
	}
	if err != nil {
		return &bodyError{err}
	}
	return nil
}
