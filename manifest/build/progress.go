package build

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"sync"
	"time"

	"github.com/klauspost/compress/s2"

	"github.com/pailfs/pailfs/manifest"
)

// batch is a piece of finished work: records, and what they are all of.
type batch struct {
	covers  cover
	records []manifest.Record
}

// cover says what a batch is all of. Which fields mean something is the source's
// affair.
type cover struct {
	// unit is a part of the source that is finished by itself, such as a file.
	unit string
	// keys is a stretch of keys.
	keys span
	// from and to are a stretch of lines or rows: from, and less than to.
	from, to uint64
	// sum is a checksum of what was asked for.
	sum uint64
}

// progress is the log of a build's finished work. It is only appended to, a batch
// at a time; a build that was killed reads it again up to the first batch that was
// not wholly written.
type progress struct {
	file *os.File

	mu struct {
		sync.Mutex
		end int64
		err error
	}
}

// The kinds of frames in the log.
const (
	frameBatch byte = 1 + iota
	frameEnded
)

const (
	// frameHead is a length and a CRC-32C of what follows, 4 bytes each.
	frameHead = 8
	// maxFrame is more than a batch needs: a page of the longest keys with much
	// metadata is below 16 MiB.
	maxFrame = 256 << 20
)

// castagnoli is the table of CRC-32C, which processors have an instruction for.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// openProgress opens the log at path, making it if there is none, and passes every
// finished batch to replay, in the order in which they were written. ended is
// when the source had been read completely, zero if it has not been.
func openProgress(path string, replay func(batch) error) (p *progress, ended time.Time, err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, time.Time{}, fmt.Errorf("open the log of the build: %w", err)
	}
	p = &progress{file: f}
	if ended, err = p.replay(replay); err != nil {
		return nil, time.Time{}, errors.Join(fmt.Errorf("read the log of the build %s: %w", path, err), f.Close())
	}
	return p, ended, nil
}

// replay reads the log and cuts off what was not wholly written.
func (p *progress) replay(pass func(batch) error) (ended time.Time, err error) {
	in := bufio.NewReaderSize(p.file, 1<<20)
	end := int64(0)
	for {
		payload, err := readFrame(in)
		if err != nil && !errors.Is(err, errTorn) {
			return time.Time{}, err
		}
		if err != nil {
			break
		}
		switch payload[0] {
		case frameBatch:
			b, err := decodeBatch(payload[1:])
			if err != nil {
				return time.Time{}, err
			}
			if err := pass(b); err != nil {
				return time.Time{}, err
			}
		case frameEnded:
			d := decoder{rest: string(payload[1:])}
			ended = time.Unix(0, d.varint()).UTC()
		default:
			return time.Time{}, fmt.Errorf("frame of kind %d: another version of pailfs wrote it; give --restart to begin anew", payload[0])
		}
		end += int64(frameHead + len(payload))
	}
	if err := p.file.Truncate(end); err != nil {
		return time.Time{}, err
	}
	p.mu.end = end
	return ended, nil
}

// errTorn marks the place where the log ends.
var errTorn = errors.New("the log ends here")

// readFrame returns the next frame, or errTorn if it is not there as a whole.
func readFrame(in io.Reader) ([]byte, error) {
	var head [frameHead]byte
	if _, err := io.ReadFull(in, head[:]); err != nil {
		return nil, tornOr(err)
	}
	size := binary.LittleEndian.Uint32(head[:4])
	if size == 0 || size > maxFrame {
		return nil, errTorn
	}
	payload := make([]byte, size)
	if _, err := io.ReadFull(in, payload); err != nil {
		return nil, tornOr(err)
	}
	if crc32.Checksum(payload, castagnoli) != binary.LittleEndian.Uint32(head[4:]) {
		return nil, errTorn
	}
	return payload, nil
}

func tornOr(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errTorn
	}
	return err
}

// add appends a batch. It may be called from many goroutines.
func (p *progress) add(b *batch) error {
	raw := appendRecords(make([]byte, 0, 128*len(b.records)+64), b.records)
	payload := make([]byte, frameHead+1, frameHead+1+128+s2.MaxEncodedLen(len(raw)))
	payload[frameHead] = frameBatch
	for _, s := range []string{b.covers.unit, b.covers.keys.After, b.covers.keys.Through} {
		payload = appendString(payload, s)
	}
	for _, n := range []uint64{b.covers.from, b.covers.to, b.covers.sum} {
		payload = binary.AppendUvarint(payload, n)
	}
	at := len(payload)
	payload = payload[:cap(payload)]
	payload = payload[:at+len(s2.Encode(payload[at:], raw))]
	return p.write(payload)
}

// end notes when the source had been read completely.
func (p *progress) end(at time.Time) error {
	payload := append(make([]byte, frameHead), frameEnded)
	return p.write(binary.AppendVarint(payload, at.UnixNano()))
}

// write completes the head of a frame and appends it.
func (p *progress) write(frame []byte) error {
	payload := frame[frameHead:]
	binary.LittleEndian.PutUint32(frame, uint32(len(payload)))
	binary.LittleEndian.PutUint32(frame[4:], crc32.Checksum(payload, castagnoli))
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.err != nil {
		return p.mu.err
	}
	n, err := p.file.WriteAt(frame, p.mu.end)
	if err != nil {
		// What follows a torn frame would never be read.
		p.mu.err = fmt.Errorf("write the log of the build: %w: make room, then run the same command again", err)
		return p.mu.err
	}
	p.mu.end += int64(n)
	return nil
}

// decodeBatch reads what add wrote.
func decodeBatch(payload []byte) (batch, error) {
	d := decoder{rest: string(payload)}
	var b batch
	for _, s := range []*string{&b.covers.unit, &b.covers.keys.After, &b.covers.keys.Through} {
		*s = d.string()
	}
	for _, n := range []*uint64{&b.covers.from, &b.covers.to, &b.covers.sum} {
		*n = d.uvarint()
	}
	if d.failed {
		return batch{}, errRecord
	}
	raw, err := s2.Decode(nil, payload[len(payload)-len(d.rest):])
	if err != nil {
		return batch{}, fmt.Errorf("decompress records: %w", err)
	}
	b.records, err = decodeRecords(string(raw))
	return b, err
}

// close closes the file, which stays.
func (p *progress) close() error { return p.file.Close() }
