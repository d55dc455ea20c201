package cache

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/pailfs/pailfs/cache/internal/content"
	"github.com/pailfs/pailfs/oss"
)

// Records are what the index stores. FORMAT.md describes them byte by byte. Each
// ends with a CRC-32C of its key and of itself, so that a record in another's
// place is noticed like a damaged one.

// recordVersion is the first byte of every record.
const recordVersion = 1

// errRecord means that a record is damaged or of an unknown version.
var errRecord = errors.New("bad index record")

// objectRecord says what an object file is, and what is known of the whole.
type objectRecord struct {
	key, etag string
	size      int64
	// stored is what the file occupies, for accounting.
	stored   int64
	crc64    uint64
	hasCRC64 bool
	checked  bool
}

// describes tells whether the record is that of obj.
func (r objectRecord) describes(obj oss.Object) bool {
	return r.key == obj.Key && r.etag == obj.ETag && r.size == obj.Size
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
func appendObjectRecord(b []byte, id content.Identity, r objectRecord) []byte {
	var flags byte
	if r.hasCRC64 {
		flags |= flagHasCRC64
	}
	if r.checked {
		flags |= flagChecked
	}
	start := len(b)
	b = append(b, recordVersion, flags)
	b = binary.LittleEndian.AppendUint64(b, uint64(r.size))
	b = binary.LittleEndian.AppendUint64(b, uint64(r.stored))
	b = binary.LittleEndian.AppendUint64(b, r.crc64)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(r.key)))
	b = binary.LittleEndian.AppendUint32(b, uint32(len(r.etag)))
	b = append(b, r.key...)
	b = append(b, r.etag...)
	return appendSeal(b, start, id[:])
}

// parseObjectRecord is the inverse of appendObjectRecord.
func parseObjectRecord(id content.Identity, b []byte) (objectRecord, error) {
	body, err := checkSeal(b, id[:])
	if err != nil {
		return objectRecord{}, err
	}
	if len(b) < objectRecordFixed {
		return objectRecord{}, fmt.Errorf("%d bytes: %w", len(b), errRecord)
	}
	flags := body[1]
	r := objectRecord{
		size:     int64(binary.LittleEndian.Uint64(body[2:])),
		stored:   int64(binary.LittleEndian.Uint64(body[10:])),
		crc64:    binary.LittleEndian.Uint64(body[18:]),
		hasCRC64: flags&flagHasCRC64 != 0,
		checked:  flags&flagChecked != 0,
	}
	keyLen, etagLen := binary.LittleEndian.Uint32(body[26:]), binary.LittleEndian.Uint32(body[30:])
	rest := body[34:]
	if flags&^knownFlags != 0 || r.size < 0 || r.stored < 0 ||
		uint64(keyLen)+uint64(etagLen) != uint64(len(rest)) {
		return objectRecord{}, errRecord
	}
	r.key, r.etag = string(rest[:keyLen]), string(rest[keyLen:])
	return r, nil
}

// segmentRecord says which blocks of a segment are in the object file, and their
// checksums.
type segmentRecord struct {
	blocks content.BlockSet
	// crc32 has an entry for every block, those that are present or not.
	crc32 [content.SegmentBlocks]uint32
}

// segmentRecordFixed is the length of a record of no blocks.
const segmentRecordFixed = 1 + content.SegmentBlocks/8 + 4

// segmentKey is the key of a segment's record.
func segmentKey(id content.Identity, segment int) []byte {
	return binary.BigEndian.AppendUint32(append(make([]byte, 0, len(id)+4), id[:]...), uint32(segment))
}

// appendSegmentRecord appends the record with that key to b.
func appendSegmentRecord(b, key []byte, r *segmentRecord) []byte {
	start := len(b)
	b = append(b, recordVersion)
	for _, w := range r.blocks {
		b = binary.LittleEndian.AppendUint64(b, w)
	}
	for i, crc := range r.crc32 {
		if r.blocks.Has(i) {
			b = binary.LittleEndian.AppendUint32(b, crc)
		}
	}
	return appendSeal(b, start, key)
}

// parseSegmentRecord is the inverse of appendSegmentRecord.
func parseSegmentRecord(key, b []byte) (*segmentRecord, error) {
	body, err := checkSeal(b, key)
	if err != nil {
		return nil, err
	}
	if len(b) < segmentRecordFixed {
		return nil, fmt.Errorf("%d bytes: %w", len(b), errRecord)
	}
	r := new(segmentRecord)
	body = body[1:]
	for w := range r.blocks {
		r.blocks[w] = binary.LittleEndian.Uint64(body)
		body = body[8:]
	}
	if len(body) != 4*r.blocks.Count() {
		return nil, errRecord
	}
	for i := range r.crc32 {
		if r.blocks.Has(i) {
			r.crc32[i] = binary.LittleEndian.Uint32(body)
			body = body[4:]
		}
	}
	return r, nil
}

// useRecordLen is the length of a use record: version, flags, time, seal.
const useRecordLen = 1 + 1 + 8 + 4

// useRecord says when an object was used last, and whether it was released since.
type useRecord struct {
	used     int64 // Unix seconds
	released bool
}

// appendUseRecord appends the record of the object called id to b.
func appendUseRecord(b []byte, id content.Identity, r useRecord) []byte {
	start := len(b)
	var flags byte
	if r.released {
		flags = 1
	}
	b = append(b, recordVersion, flags)
	b = binary.LittleEndian.AppendUint64(b, uint64(r.used))
	return appendSeal(b, start, id[:])
}

// parseUseRecord is the inverse of appendUseRecord.
func parseUseRecord(id content.Identity, b []byte) (useRecord, error) {
	body, err := checkSeal(b, id[:])
	if err != nil {
		return useRecord{}, err
	}
	if len(b) != useRecordLen || body[1] > 1 {
		return useRecord{}, errRecord
	}
	return useRecord{used: int64(binary.LittleEndian.Uint64(body[2:])), released: body[1] == 1}, nil
}

// appendSeal ends the record that begins at start in b.
func appendSeal(b []byte, start int, key []byte) []byte {
	return binary.LittleEndian.AppendUint32(b, seal(key, b[start:]))
}

// checkSeal returns the record without its seal, or errRecord.
func checkSeal(b, key []byte) (body []byte, err error) {
	if len(b) < 5 {
		return nil, fmt.Errorf("%d bytes: %w", len(b), errRecord)
	}
	if b[0] != recordVersion {
		return nil, fmt.Errorf("version %d: %w", b[0], errRecord)
	}
	body = b[:len(b)-4]
	if seal(key, body) != binary.LittleEndian.Uint32(b[len(b)-4:]) {
		return nil, fmt.Errorf("checksum: %w", errRecord)
	}
	return body, nil
}

// seal is the CRC-32C of a key followed by a record.
func seal(key, body []byte) uint32 {
	return content.UpdateCRC32C(content.CRC32C(key), body)
}
