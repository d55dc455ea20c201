package audit

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/syslog"
	"os"

	"github.com/coreos/go-systemd/v22/journal"
	"golang.org/x/sys/unix"
)

// The sinks that are no file.
const (
	Syslog   = "syslog"
	Journald = "journald"
)

// tag is the name under which syslog and the journal have the lines.
const tag = "pailfs-audit"

// sink is where lines go.
type sink interface {
	// write takes whole lines from the front, and returns how many bytes of them it has taken;
	// what is left is given to it again. It may block.
	write(lines []byte) (int, error)
	// lost reports whether what is written now is kept for nobody, as in a file that was
	// deleted.
	lost() bool
	// reopen begins anew after a rotation. After an error the sink is as it was.
	reopen() error
	close() error
}

// openSink opens what to names: a file by its absolute path, Syslog or Journald.
func openSink(to string) (sink, error) {
	switch to {
	case Syslog:
		w, err := syslog.New(syslog.LOG_AUTHPRIV|syslog.LOG_INFO, tag)
		if err != nil {
			return nil, fmt.Errorf("no syslog takes the audit: %w: start a syslog daemon, or name a file", err)
		}
		return perLine{send: w.Info, end: w.Close}, nil
	case Journald:
		if !journal.Enabled() {
			return nil, errors.New("no journal takes the audit: there is no /run/systemd/journal/socket that answers: start systemd-journald, or name a file")
		}
		return perLine{send: sendJournal, end: func() error { return nil }}, nil
	}
	return openFile(to)
}

// sendJournal sends one line to the journal. What is too large for a datagram goes as a file, as
// the library does.
func sendJournal(line string) error {
	return journal.Send(line, journal.PriInfo, map[string]string{"SYSLOG_IDENTIFIER": tag})
}

// perLine is a sink that takes a line at a time.
type perLine struct {
	send func(line string) error
	end  func() error
}

func (p perLine) write(lines []byte) (taken int, err error) {
	for line := range bytes.Lines(lines) {
		if err := p.send(string(bytes.TrimSuffix(line, []byte("\n")))); err != nil {
			return taken, err
		}
		taken += len(line)
	}
	return taken, nil
}

func (perLine) lost() bool     { return false }
func (perLine) reopen() error  { return nil }
func (p perLine) close() error { return p.end() }

// file is a sink that appends to a file, which nobody else writes meanwhile.
type file struct {
	path string
	file *os.File
}

func openFile(path string) (*file, error) {
	f, err := openPrivate(path)
	if err != nil {
		return nil, err
	}
	return &file{path: path, file: f}, nil
}

// openPrivate opens a file for appending that belongs to us and that nobody else may read or
// write, and keeps others of us from writing to it.
func openPrivate(path string) (*os.File, error) {
	// A pipe without a reader must not hold us up.
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_RDWR|unix.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the audit: %w: choose a path in a directory that exists and can be written", err)
	}
	if err := checkPrivate(f); err != nil {
		_ = f.Close() // nothing was written
		return nil, fmt.Errorf("%s cannot take the audit: %w", path, err)
	}
	return f, nil
}

func checkPrivate(f *os.File) error {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return err
	}
	var on unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &on); err != nil {
		return err
	}
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		return errors.New("it is no regular file: choose another path")
	case on.Type == unix.FUSE_SUPER_MAGIC:
		return errors.New("it lies on a FUSE mount, which may be the one that is audited: choose a local disk")
	case int(st.Uid) != os.Geteuid():
		return fmt.Errorf("it belongs to user %d, who can change it: choose another path", st.Uid)
	case st.Mode&0o077 != 0:
		return fmt.Errorf("others may use it (mode %04o): run chmod 600 on it", st.Mode&0o7777)
	case unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil:
		return errors.New("another daemon writes its audit there: give each mount a file of its own")
	}
	return endLine(f, st.Size)
}

// endLine ends a line that a crash has left without an end.
func endLine(f *os.File, size int64) error {
	if size == 0 {
		return nil
	}
	last := make([]byte, 1)
	if _, err := f.ReadAt(last, size-1); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if last[0] == '\n' {
		return nil
	}
	_, err := f.Write([]byte("\n"))
	return err
}

// write appends lines. A line of which the disk took a part is taken back, so that what is
// written next, here or in the next file, begins with it.
func (f *file) write(lines []byte) (int, error) {
	n, err := f.file.Write(lines)
	if err == nil {
		return n, nil
	}
	whole := bytes.LastIndexByte(lines[:n], '\n') + 1
	if whole < n {
		size, seekErr := f.file.Seek(0, io.SeekEnd)
		if seekErr != nil || f.file.Truncate(size-int64(n-whole)) != nil {
			return n, err // the rest of the line goes on where it was
		}
	}
	return whole, err
}

// lost reports whether the file was deleted.
func (f *file) lost() bool {
	var st unix.Stat_t
	return unix.Fstat(int(f.file.Fd()), &st) == nil && st.Nlink == 0
}

func (f *file) reopen() error {
	fresh, err := openPrivate(f.path)
	if err != nil {
		if f.same() {
			return nil // it was not moved: it is locked by us
		}
		return err
	}
	before := f.file
	f.file = fresh
	return before.Close()
}

// same reports whether the path still names the file that is open.
func (f *file) same() bool {
	open, err := f.file.Stat()
	if err != nil {
		return false
	}
	there, err := os.Stat(f.path)
	return err == nil && os.SameFile(open, there)
}

func (f *file) close() error { return f.file.Close() }
