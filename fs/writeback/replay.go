package writeback

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
)

// errReplaced means that a journal file took the place of another, but that this may
// not be on the disk.
var errReplaced = errors.New("the journal was replaced, perhaps not on the disk")

// makeJournal writes a journal file whole or not at all, or fails with errReplaced.
func makeJournal(d disk, dir string, content []byte) error {
	fresh := filepath.Join(dir, journalNew)
	// Room may be allocated there.
	file, err := os.OpenFile(fresh, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	_, err = file.WriteAt(content, 0)
	if info, failed := file.Stat(); err == nil && (failed != nil || info.Size() > int64(len(content))) {
		// What a failed attempt has left.
		err = file.Truncate(int64(len(content)))
	}
	if err == nil {
		err = d.sync(file)
	}
	if err := errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("write journal: %w", err)
	}
	if err := os.Rename(fresh, filepath.Join(dir, journalName)); err != nil {
		return err
	}
	if err := d.syncDir(dir); err != nil {
		return fmt.Errorf("%w: %w", errReplaced, err)
	}
	return nil
}

// setAside keeps what follows the last good record, and cuts it off: a record that
// was being written when the machine stopped, or damage.
func setAside(d disk, dir string, file *os.File, good, rest int64) (kept string, err error) {
	kept = filepath.Join(dir, restPrefix+strconv.FormatInt(now(), 10))
	aside, err := os.OpenFile(kept, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return "", err
	}
	_, err = io.Copy(aside, io.NewSectionReader(file, good, min(rest, 64<<20)))
	if err := errors.Join(err, aside.Close()); err != nil {
		return "", err
	}
	if err := file.Truncate(good); err != nil {
		return "", err
	}
	return kept, d.sync(file)
}

// replay reads the records of a journal file. It returns how many bytes of it are
// good, and how many follow that are not.
func replay(file io.ReaderAt, size int64, each func(r record, body int64) error) (good, rest int64, err error) {
	header := make([]byte, headerSize)
	n, err := file.ReadAt(header, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return 0, size, fmt.Errorf("read journal: %w", err)
	}
	if err := checkHeader(header[:n]); err != nil {
		return 0, size, fmt.Errorf("%s: %w", journalName, err)
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
		r, err := decodeBody(body)
		if err != nil {
			// Its checksum is right: somebody else's record.
			return good, size - good, fmt.Errorf("%s at %d: %w: use the pailfs that wrote it", journalName, good, err)
		}
		if err := each(r, good+frameSize); err != nil {
			return good, size - good, err
		}
		good += frameSize + int64(len(body))
	}
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
	if n == 0 || n > maxRecord || n > size-off-frameSize {
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
