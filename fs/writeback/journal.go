package writeback

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"sync"
)

// The journal begins with its magic and version, and a checksum of the two.
const (
	journalMagic   = "pailfswb"
	journalVersion = 1
	headerSize     = 16
	// frameSize is what a record has before its body: length and checksum.
	frameSize = 8
	// maxRecord bounds the body of a record, in bytes.
	maxRecord = 256 << 20
	// idleBuffer is the largest buffer that is kept for the next records, in bytes.
	idleBuffer = 1 << 20
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func journalHeader() []byte {
	h := append(make([]byte, 0, headerSize), journalMagic...)
	h = binary.LittleEndian.AppendUint32(h, journalVersion)
	return binary.LittleEndian.AppendUint32(h, crc32.Checksum(h, castagnoli))
}

// checkHeader refuses what is not a journal that we know.
func checkHeader(h []byte) error {
	if len(h) < headerSize || string(h[:8]) != journalMagic {
		return errors.New("it is not a journal of pailfs")
	}
	if v := binary.LittleEndian.Uint32(h[8:]); v != journalVersion {
		return fmt.Errorf("its format has version %d, and this pailfs knows %d: use the pailfs that wrote it", v, journalVersion)
	}
	if binary.LittleEndian.Uint32(h[12:]) != crc32.Checksum(h[:12], castagnoli) {
		return errors.New("its header is damaged")
	}
	return nil
}

// frame appends r as it stands in the journal.
func frame(b []byte, r record) []byte {
	at := len(b)
	b = appendBody(append(b, make([]byte, frameSize)...), r)
	body := b[at+frameSize:]
	binary.LittleEndian.PutUint32(b[at:], uint32(len(body)))
	binary.LittleEndian.PutUint32(b[at+4:], crc32.Checksum(body, castagnoli))
	return b
}

// nextFrame returns the body of the record that b begins with, and what follows.
// ok is false where no whole record is: the end, or a torn or damaged tail.
func nextFrame(b []byte) (body, rest []byte, ok bool) {
	if len(b) < frameSize {
		return nil, b, false
	}
	n := binary.LittleEndian.Uint32(b)
	if n == 0 || n > maxRecord || int64(n) > int64(len(b)-frameSize) {
		return nil, b, false
	}
	body = b[frameSize : frameSize+int(n)]
	if crc32.Checksum(body, castagnoli) != binary.LittleEndian.Uint32(b[4:]) {
		return nil, b, false
	}
	return body, b[frameSize+int(n):], true
}

// journal appends records to a file. Positions are bytes appended since the
// journal was opened, and go on through compactions.
//
// Lock order: syncing, writing, mu.
type journal struct {
	disk disk
	dir  string

	// syncing is held while the file is brought to the disk, writing while it is
	// written or replaced.
	syncing sync.Mutex
	writing sync.Mutex
	file    *os.File
	// idle is a buffer for what is appended next; writing guards it.
	idle []byte

	mu struct {
		sync.Mutex
		buffer []byte
		// appended ≥ written ≥ synced are positions.
		appended, written, synced int64
		// size is the length of the file, allocated the offset up to which it has blocks,
		// spare the same of the file that will take its place. low says that there was no
		// room for more; see reserve.go.
		size, allocated, spare int64
		low                    bool
		// err is why nothing can be written any more.
		err error
	}
}

// append adds r to what will be written and returns the position after it. The
// caller holds the lock under which it applies r.
func (j *journal) append(r record) int64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	before := len(j.mu.buffer)
	j.mu.buffer = frame(j.mu.buffer, r)
	j.mu.appended += int64(len(j.mu.buffer) - before)
	return j.mu.appended
}

// write returns when everything up to pos was written to the file.
func (j *journal) write(pos int64) error {
	j.mu.Lock()
	done, err := j.mu.written >= pos, j.mu.err
	j.mu.Unlock()
	if done || err != nil {
		return err
	}
	j.writing.Lock()
	defer j.writing.Unlock()
	return j.writeAll()
}

// writeAll writes what was appended. The caller holds j.writing.
func (j *journal) writeAll() error {
	j.mu.Lock()
	buffer, at, err := j.mu.buffer, j.mu.size, j.mu.err
	if err != nil || len(buffer) == 0 {
		j.mu.Unlock()
		return err
	}
	j.mu.buffer, j.idle = j.idle, nil
	j.mu.Unlock()
	// A partial write is repeated from its beginning: the place is the same.
	_, err = j.file.WriteAt(buffer, at)
	j.mu.Lock()
	defer j.mu.Unlock()
	if err != nil {
		j.mu.buffer = append(buffer, j.mu.buffer...)
		return fmt.Errorf("write journal: %w", err)
	}
	j.mu.size += int64(len(buffer))
	j.mu.written += int64(len(buffer))
	if cap(buffer) <= idleBuffer {
		j.idle = buffer[:0]
	}
	return nil
}

// sync returns when everything up to pos is on the disk. Those who wait share one
// flush.
func (j *journal) sync(pos int64) error {
	j.syncing.Lock()
	defer j.syncing.Unlock()
	j.mu.Lock()
	done, err := j.mu.synced >= pos, j.mu.err
	j.mu.Unlock()
	if done || err != nil {
		return err
	}
	if err := j.write(pos); err != nil {
		return err
	}
	j.mu.Lock()
	upTo := j.mu.written
	j.mu.Unlock()
	if err := j.disk.sync(j.file); err != nil {
		// What the disk has is not known any more, and cannot be found out.
		err = fmt.Errorf("sync journal: %w", err)
		j.mu.Lock()
		j.mu.err = err
		j.mu.Unlock()
		return err
	}
	j.mu.Lock()
	j.mu.synced = max(j.mu.synced, upTo)
	j.mu.Unlock()
	return nil
}

// synced returns the position up to which everything is on the disk.
func (j *journal) synced() int64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.mu.synced
}

// failure returns why nothing can be written any more, if so.
func (j *journal) failure() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.mu.err
}

// end returns the position after the last record.
func (j *journal) end() int64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.mu.appended
}

func (j *journal) size() int64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.mu.size
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
