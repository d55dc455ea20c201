package journal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

const (
	// Name is that of the journal in its directory.
	Name = "journal.log"
	// RestPrefix begins the names of files that [SetAside] keeps.
	RestPrefix = "journal.rest-"
	// nextName is that of the file which will take its place.
	nextName = "journal.new"
)

// ErrReplaced means that a journal file took the place of another, but that this may
// not be on the disk.
var ErrReplaced = errors.New("the journal was replaced, perhaps not on the disk")

// Create makes content, which begins with [Header], the journal of dir, whole or not at
// all, or fails with [ErrReplaced].
func Create(d Disk, dir string, content []byte) error {
	file, err := create(d, dir, content)
	if err != nil {
		return err
	}
	return file.Close()
}

// create is Create that leaves the new journal open, for reading and writing.
func create(d Disk, dir string, content []byte) (*os.File, error) {
	fresh := filepath.Join(dir, nextName)
	// Room may be allocated there.
	file, err := os.OpenFile(fresh, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	_, err = file.WriteAt(content, 0)
	if info, failed := file.Stat(); err == nil && (failed != nil || info.Size() > int64(len(content))) {
		// What a failed attempt has left.
		err = file.Truncate(int64(len(content)))
	}
	if err == nil {
		err = d.Sync(file)
	}
	if err != nil {
		err = fmt.Errorf("write journal: %w", err)
	} else if err = os.Rename(fresh, filepath.Join(dir, Name)); err == nil {
		if err = d.SyncDir(dir); err != nil {
			err = fmt.Errorf("%w: %w", ErrReplaced, err)
		}
	}
	if err != nil {
		file.Close() //nolint:errcheck // the error before counts
		return nil, err
	}
	return file, nil
}

// SetAside keeps what follows the last good record, and cuts it off: a record that
// was being written when the machine stopped, or damage. kept is the file that has it, all of
// it, on the disk before anything is cut off. Where that fails the journal is what it was.
func SetAside(d Disk, dir string, file *os.File, good, rest int64) (kept string, err error) {
	kept = filepath.Join(dir, RestPrefix+strconv.FormatInt(time.Now().UnixNano(), 10))
	aside, err := os.OpenFile(kept, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return "", fmt.Errorf("keep what follows the last good record: %w", err)
	}
	n, err := io.Copy(aside, io.NewSectionReader(file, good, rest))
	if err == nil && n < rest {
		err = io.ErrUnexpectedEOF
	}
	if err == nil {
		err = d.Sync(aside)
	}
	err = errors.Join(err, aside.Close())
	if err == nil {
		err = d.SyncDir(dir)
	}
	if err != nil {
		os.Remove(kept)
		return "", fmt.Errorf("keep what follows the last good record, %d bytes at %d of %q, beside it (it needs as much room again): %w", rest, good, filepath.Join(dir, Name), err)
	}
	// What is written there from now on is not what the mark speaks of.
	forgetMark(dir)
	if err := file.Truncate(good); err != nil {
		return "", err
	}
	return kept, d.Sync(file)
}

// RemoveSpare removes what an earlier run has left of a journal that was to take the place
// of this one, and the room that it has allocated for it.
func RemoveSpare(dir string) { os.Remove(filepath.Join(dir, nextName)) }

// Replay reads the records of a journal file and gives the body of each to apply, with the
// offset at which [ReadBody] finds it again; the body is valid until apply returns, and its
// error ends the replay. Replay returns how many bytes of the file are good, and how many
// follow that are not: a record that was being written, or damage.
func Replay(file io.ReaderAt, size int64, apply func(body []byte, at int64) error) (good, rest int64, err error) {
	header := make([]byte, headerSize)
	n, err := file.ReadAt(header, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return 0, size, fmt.Errorf("read journal: %w", err)
	}
	if err := checkHeader(header[:n]); err != nil {
		return 0, size, fmt.Errorf("%s: %w", Name, err)
	}
	good = headerSize
	window := make([]byte, 0, 1<<20)
	for {
		body, ok, err := readFrame(file, good, size, &window)
		if err != nil {
			return good, size - good, err
		}
		if !ok {
			return good, size - good, nil
		}
		if err := apply(body, good); err != nil {
			return good, size - good, err
		}
		good += frameSize + int64(len(body))
	}
}

// ReadBody returns the body of the record at an offset that [Replay] told, and not ok if
// there is none.
func ReadBody(file *os.File, at int64) (body []byte, ok bool, err error) {
	info, err := file.Stat()
	if err != nil {
		return nil, false, err
	}
	var window []byte
	return readFrame(file, at, info.Size(), &window)
}

// readFrame reads the record at off. The body is valid until the next call.
func readFrame(file io.ReaderAt, off, size int64, window *[]byte) (body []byte, ok bool, err error) {
	if size-off < frameSize {
		return nil, false, nil
	}
	var head [frameSize]byte
	if _, err := file.ReadAt(head[:], off); err != nil {
		return nil, false, fmt.Errorf("read journal: %w", err)
	}
	n := int64(binary.LittleEndian.Uint32(head[:]))
	if n == 0 || n > MaxBody || n > size-off-frameSize {
		return nil, false, nil
	}
	b := *window
	if int64(cap(b)) < n+frameSize {
		b = make([]byte, n+frameSize)
		*window = b
	}
	b = b[:n+frameSize]
	if _, err := file.ReadAt(b, off); err != nil {
		return nil, false, fmt.Errorf("read journal: %w", err)
	}
	body, _, ok = nextFrame(b)
	return body, ok, nil
}
