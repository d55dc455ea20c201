package build

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/pailfs/pailfs/manifest"
)

// The records of a batch as the log holds them: one after another, each with the
// part of its key that differs from the one before. DESIGN.md has the layout. The
// log is read by the version that wrote it, or not at all.

// The flags of a record in the log.
const (
	recordSymlink = 1 << iota
	recordCRC64
	recordAttr
	recordTime
)

var errRecord = errors.New("malformed record")

// appendRecords appends the encoded records to b.
func appendRecords(b []byte, records []manifest.Record) []byte {
	b = binary.AppendUvarint(b, uint64(len(records)))
	before := ""
	for i := range records {
		r := &records[i]
		same := 0
		for same < len(before) && same < len(r.Key) && before[same] == r.Key[same] {
			same++
		}
		before = r.Key
		flags := byte(0)
		if r.Symlink {
			flags |= recordSymlink
		}
		if r.HasCRC64 {
			flags |= recordCRC64
		}
		if r.Attr != nil {
			flags |= recordAttr
		}
		if !r.ModTime.IsZero() {
			flags |= recordTime
		}
		b = append(b, flags)
		b = binary.AppendUvarint(b, uint64(same))
		b = appendString(b, r.Key[same:])
		b = appendString(b, r.ETag)
		b = binary.AppendVarint(b, r.Size)
		if flags&recordTime != 0 {
			b = binary.AppendVarint(b, r.ModTime.Unix())
		}
		if r.HasCRC64 {
			b = binary.LittleEndian.AppendUint64(b, r.CRC64)
		}
		if r.Attr != nil {
			b = appendAttr(b, r.Attr)
		}
	}
	return b
}

func appendString(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func appendAttr(b []byte, a *manifest.Attr) []byte {
	b = binary.AppendUvarint(b, uint64(a.Known))
	for _, n := range []uint32{a.Mode, a.UID, a.GID} {
		b = binary.AppendUvarint(b, uint64(n))
	}
	seconds, nanos := int64(0), 0
	if a.Known&manifest.AttrMTime != 0 {
		seconds, nanos = a.MTime.Unix(), a.MTime.Nanosecond()
	}
	b = binary.AppendVarint(b, seconds)
	b = binary.AppendUvarint(b, uint64(nanos))
	b = appendString(b, a.Target)
	b = binary.AppendUvarint(b, uint64(len(a.User)))
	for _, u := range a.User {
		b = appendString(appendString(b, u.Name), u.Value)
	}
	return b
}

// decodeRecords reads what appendRecords wrote.
func decodeRecords(text string) ([]manifest.Record, error) {
	d := decoder{rest: text}
	n := d.length()
	records := make([]manifest.Record, 0, min(n, len(text)))
	var key []byte
	for range n {
		var r manifest.Record
		flags := d.byte()
		same, suffix := d.uvarint(), d.string()
		if same > uint64(len(key)) {
			return nil, errRecord
		}
		key = append(key[:same], suffix...)
		r.Key = string(key)
		r.ETag = d.string()
		r.Size = d.varint()
		r.Symlink = flags&recordSymlink != 0
		if flags&recordTime != 0 {
			r.ModTime = time.Unix(d.varint(), 0).UTC()
		}
		if flags&recordCRC64 != 0 {
			r.CRC64, r.HasCRC64 = d.uint64(), true
		}
		if flags&recordAttr != 0 {
			r.Attr = d.attr()
		}
		if d.failed {
			return nil, errRecord
		}
		records = append(records, r)
	}
	if d.failed || d.rest != "" {
		return nil, fmt.Errorf("%w: %d bytes too many", errRecord, len(d.rest))
	}
	return records, nil
}

// decoder reads values from the front of rest. After the first that is not there
// it has failed and returns zeros.
type decoder struct {
	rest   string
	failed bool
}

func (d *decoder) fail() {
	d.failed, d.rest = true, ""
}

func (d *decoder) byte() byte {
	if d.rest == "" {
		d.fail()
		return 0
	}
	c := d.rest[0]
	d.rest = d.rest[1:]
	return c
}

func (d *decoder) uvarint() uint64 {
	v := uint64(0)
	for shift := 0; shift < 64; shift += 7 {
		c := d.byte()
		v |= uint64(c&0x7f) << shift
		if c < 0x80 {
			return v
		}
	}
	d.fail()
	return 0
}

func (d *decoder) varint() int64 {
	u := d.uvarint()
	v := int64(u >> 1)
	if u&1 != 0 {
		v = ^v
	}
	return v
}

// length reads a number of things that take at least a byte each.
func (d *decoder) length() int {
	n := d.uvarint()
	if n > uint64(len(d.rest)) || n > math.MaxInt32 {
		d.fail()
		return 0
	}
	return int(n)
}

func (d *decoder) string() string {
	n := d.length()
	s := d.rest[:n]
	d.rest = d.rest[n:]
	return s
}

func (d *decoder) uint64() uint64 {
	if len(d.rest) < 8 {
		d.fail()
		return 0
	}
	v := binary.LittleEndian.Uint64([]byte(d.rest[:8]))
	d.rest = d.rest[8:]
	return v
}

func (d *decoder) attr() *manifest.Attr {
	a := &manifest.Attr{Known: manifest.AttrSet(d.uvarint())}
	for _, n := range []*uint32{&a.Mode, &a.UID, &a.GID} {
		*n = uint32(d.uvarint())
	}
	seconds, nanos := d.varint(), d.uvarint()
	if a.Known&manifest.AttrMTime != 0 {
		a.MTime = time.Unix(seconds, int64(nanos)).UTC()
	}
	a.Target = d.string()
	for range d.length() {
		a.User = append(a.User, manifest.UserAttr{Name: d.string(), Value: d.string()})
	}
	return a
}
