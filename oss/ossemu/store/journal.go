package store

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
)

// maxRecord bounds a record, so that a damaged length is not an allocation. An
// object of 10,000 parts of several extents stays far below it.
const maxRecord = 64 << 20

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// journal is a file of records, each whole or absent.
type journal struct {
	f *os.File
	// size is where the last whole record ends.
	size  int64
	frame []byte
	// broken is set when a torn record could not be removed. Records behind it
	// would be lost, so none is written.
	broken error
}

// createJournal makes a file that holds only the header.
func createJournal(path string) (*journal, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("create journal: %w", err)
	}
	j := &journal{f: f}
	var e encoder
	encodeHeader(&e)
	if err := j.append(e.b); err != nil {
		_ = f.Close()
		return nil, err
	}
	return j, nil
}

// append writes one record. When it returns an error the record is not there.
func (j *journal) append(payload []byte) error {
	if j.broken != nil {
		return j.broken
	}
	j.frame = appendFrame(j.frame[:0], payload)
	if _, err := j.f.WriteAt(j.frame, j.size); err != nil {
		err = fmt.Errorf("append to journal: %w", err)
		if terr := j.f.Truncate(j.size); terr != nil {
			j.broken = errors.Join(err, terr)
		}
		return err
	}
	j.size += int64(len(j.frame))
	return nil
}

func (j *journal) close() error { return j.f.Close() }

// appendFrame frames a payload: its length, its CRC32C, itself.
func appendFrame(b, payload []byte) []byte {
	b = binary.LittleEndian.AppendUint32(b, uint32(len(payload)))
	b = binary.LittleEndian.AppendUint32(b, crc32.Checksum(payload, castagnoli))
	return append(b, payload...)
}

// readRecords calls each for every record of r and returns where the last one
// ends. A death while a record was being written leaves the file shorter than
// the record says: that ends the reading without an error. A record that is
// whole and does not match its checksum is damage, and an error. The payload is
// valid during the call only.
func readRecords(r io.Reader, each func(payload []byte) error) (end int64, err error) {
	br := bufio.NewReaderSize(r, 1<<20)
	var head [8]byte
	var payload []byte
	for {
		if _, err := io.ReadFull(br, head[:]); err != nil {
			return end, tornIsEnd(err)
		}
		n := binary.LittleEndian.Uint32(head[:])
		if n == 0 || n > maxRecord {
			return end, fmt.Errorf("%w: record of %d bytes at %d", errCorrupt, n, end)
		}
		if uint32(cap(payload)) < n {
			payload = make([]byte, max(n, 4096))
		}
		payload = payload[:n]
		if _, err := io.ReadFull(br, payload); err != nil {
			return end, tornIsEnd(err)
		}
		if crc32.Checksum(payload, castagnoli) != binary.LittleEndian.Uint32(head[4:]) {
			return end, fmt.Errorf("%w: checksum of the record at %d", errCorrupt, end)
		}
		if err := each(payload); err != nil {
			return end, err
		}
		end += int64(len(head)) + int64(n)
	}
}

func tornIsEnd(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return nil
	}
	return fmt.Errorf("read journal: %w", err)
}
