package index

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/pailfs/pailfs/cache/internal/content"
	"github.com/pailfs/pailfs/oss"
)

// Records are what the index stores. cache/FORMAT.md describes them byte by byte. Each
// ends with a CRC-32C of its key and of itself, so that a record in another's
// place is noticed like a damaged one.

// recordVersion is the first byte of every record.
const recordVersion = 1

// ErrRecord means that a record is damaged or of an unknown version.
var ErrRecord = errors.New("bad index record")

// Object says what an object file is, and what is known of the whole.
type Object struct {
	Key, ETag string
	Size      int64
	// Stored is what the file occupies, for accounting.
	Stored   int64
	CRC64    uint64
	HasCRC64 bool
	Checked  bool
}

// Describes tells whether the record is that of obj.
func (r Object) Describes(obj oss.Object) bool {
	return r.Key == obj.Key && r.ETag == obj.ETag && r.Size == obj.Size
}

// The flags of an object record.
const (
	flagHasCRC64 = 1 << iota
	flagChecked
	knownFlags = flagHasCRC64 | flagChecked
)

// objectRecordFixed is the length of a record with an empty key and etag.
const objectRecordFixed = 1 + 1 + 8 + 8 + 8 + 4 + 4 + 4

// appendObjectRecord appends the record of the object called id to b.
func appendObjectRecord(b []byte, id content.Identity, r Object) []byte {
	var flags byte
	if r.HasCRC64 {
		flags |= flagHasCRC64
	}
	if r.Checked {
		flags |= flagChecked
	}
	start := len(b)
	b = append(b, recordVersion, flags)
	b = binary.LittleEndian.AppendUint64(b, uint64(r.Size))
	b = binary.LittleEndian.AppendUint64(b, uint64(r.Stored))
	b = binary.LittleEndian.AppendUint64(b, r.CRC64)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(r.Key)))
	b = binary.LittleEndian.AppendUint32(b, uint32(len(r.ETag)))
	b = append(b, r.Key...)
	b = append(b, r.ETag...)
	return appendSeal(b, start, id[:])
}

// parseObjectRecord is the inverse of appendObjectRecord.
func parseObjectRecord(id content.Identity, b []byte) (Object, error) {
	body, err := checkSeal(b, id[:])
	if err != nil {
		return Object{}, err
	}
	if len(b) < objectRecordFixed {
		return Object{}, fmt.Errorf("%d bytes: %w", len(b), ErrRecord)
	}
	flags := body[1]
	r := Object{
		Size:     int64(binary.LittleEndian.Uint64(body[2:])),
		Stored:   int64(binary.LittleEndian.Uint64(body[10:])),
		CRC64:    binary.LittleEndian.Uint64(body[18:]),
		HasCRC64: flags&flagHasCRC64 != 0,
		Checked:  flags&flagChecked != 0,
	}
	keyLen, etagLen := binary.LittleEndian.Uint32(body[26:]), binary.LittleEndian.Uint32(body[30:])
	rest := body[34:]
	if flags&^knownFlags != 0 || r.Size < 0 || r.Stored < 0 ||
		uint64(keyLen)+uint64(etagLen) != uint64(len(rest)) {
		return Object{}, ErrRecord
	}
	r.Key, r.ETag = string(rest[:keyLen]), string(rest[keyLen:])
	return r, nil
}

// Segment says which blocks of a segment are in the object file, and their
// checksums.
type Segment struct {
	Blocks content.BlockSet
	// CRC32 has an entry for every block, those that are present or not.
	CRC32 [content.SegmentBlocks]uint32
}

// segmentRecordFixed is the length of a record of no blocks.
const segmentRecordFixed = 1 + content.SegmentBlocks/8 + 4

// segmentKey is the key of a segment's record.
func segmentKey(id content.Identity, segment int) []byte {
	return binary.BigEndian.AppendUint32(append(make([]byte, 0, len(id)+4), id[:]...), uint32(segment))
}

// appendSegmentRecord appends the record with that key to b.
func appendSegmentRecord(b, key []byte, r *Segment) []byte {
	start := len(b)
	b = append(b, recordVersion)
	for _, w := range r.Blocks {
		b = binary.LittleEndian.AppendUint64(b, w)
	}
	for i, crc := range r.CRC32 {
		if r.Blocks.Has(i) {
			b = binary.LittleEndian.AppendUint32(b, crc)
		}
	}
	return appendSeal(b, start, key)
}

// parseSegmentRecord is the inverse of appendSegmentRecord.
func parseSegmentRecord(key, b []byte) (*Segment, error) {
	body, err := checkSeal(b, key)
	if err != nil {
		return nil, err
	}
	if len(b) < segmentRecordFixed {
		return nil, fmt.Errorf("%d bytes: %w", len(b), ErrRecord)
	}
	r := new(Segment)
	body = body[1:]
	for w := range r.Blocks {
		r.Blocks[w] = binary.LittleEndian.Uint64(body)
		body = body[8:]
	}
	if len(body) != 4*r.Blocks.Count() {
		return nil, ErrRecord
	}
	for i := range r.CRC32 {
		if r.Blocks.Has(i) {
			r.CRC32[i] = binary.LittleEndian.Uint32(body)
			body = body[4:]
		}
	}
	return r, nil
}

// useRecordLen is the length of a use record: version, flags, time, seal.
const useRecordLen = 1 + 1 + 8 + 4

// appendUseRecord appends the record of the object called id to b.
func appendUseRecord(b []byte, id content.Identity, r content.Use) []byte {
	start := len(b)
	var flags byte
	if r.Released {
		flags = 1
	}
	b = append(b, recordVersion, flags)
	b = binary.LittleEndian.AppendUint64(b, uint64(r.Last))
	return appendSeal(b, start, id[:])
}

// parseUseRecord is the inverse of appendUseRecord.
func parseUseRecord(id content.Identity, b []byte) (content.Use, error) {
	body, err := checkSeal(b, id[:])
	if err != nil {
		return content.Use{}, err
	}
	if len(b) != useRecordLen || body[1] > 1 {
		return content.Use{}, ErrRecord
	}
	return content.Use{Last: int64(binary.LittleEndian.Uint64(body[2:])), Released: body[1] == 1}, nil
}

// appendSeal ends the record that begins at start in b.
func appendSeal(b []byte, start int, key []byte) []byte {
	return binary.LittleEndian.AppendUint32(b, seal(key, b[start:]))
}

// checkSeal returns the record without its seal, or ErrRecord.
func checkSeal(b, key []byte) (body []byte, err error) {
	if len(b) < 5 {
		return nil, fmt.Errorf("%d bytes: %w", len(b), ErrRecord)
	}
	if b[0] != recordVersion {
		return nil, fmt.Errorf("version %d: %w", b[0], ErrRecord)
	}
	body = b[:len(b)-4]
	if seal(key, body) != binary.LittleEndian.Uint32(b[len(b)-4:]) {
		return nil, fmt.Errorf("checksum: %w", ErrRecord)
	}
	return body, nil
}

// seal is the CRC-32C of a key followed by a record.
func seal(key, body []byte) uint32 {
	return content.UpdateCRC32C(content.CRC32C(key), body)
}
