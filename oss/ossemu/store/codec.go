package store

import (
	"encoding/binary"
	"fmt"
)

// encoder appends fields to a record.
type encoder struct{ b []byte }

func (e *encoder) uint(v uint64)  { e.b = binary.AppendUvarint(e.b, v) }
func (e *encoder) byte(v byte)    { e.b = append(e.b, v) }
func (e *encoder) fixed(v uint64) { e.b = binary.LittleEndian.AppendUint64(e.b, v) }
func (e *encoder) string(v string) {
	e.uint(uint64(len(v)))
	e.b = append(e.b, v...)
}

func (e *encoder) pairs(v []Pair) {
	e.uint(uint64(len(v)))
	for _, p := range v {
		e.string(p.Name)
		e.string(p.Value)
	}
}

// decoder takes fields from a record. After the first that does not fit, err is
// set and every further field is zero.
type decoder struct {
	b   []byte
	err error
}

func (d *decoder) fail(what string) {
	if d.err == nil {
		d.err = fmt.Errorf("%w: short or oversized %s", errCorrupt, what)
	}
	d.b = nil
}

func (d *decoder) uint() uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 {
		d.fail("number")
		return 0
	}
	d.b = d.b[n:]
	return v
}

// length is a number that must not be negative as an int64.
func (d *decoder) length() int64 {
	v := d.uint()
	if int64(v) < 0 {
		d.fail("length")
		return 0
	}
	return int64(v)
}

func (d *decoder) byte() byte {
	if len(d.b) < 1 {
		d.fail("byte")
		return 0
	}
	v := d.b[0]
	d.b = d.b[1:]
	return v
}

func (d *decoder) fixed() uint64 {
	if len(d.b) < 8 {
		d.fail("word")
		return 0
	}
	v := binary.LittleEndian.Uint64(d.b)
	d.b = d.b[8:]
	return v
}

func (d *decoder) bytes() []byte {
	n := d.uint()
	if n > uint64(len(d.b)) {
		d.fail("string")
		return nil
	}
	v := d.b[:n]
	d.b = d.b[n:]
	return v
}

func (d *decoder) string() string { return string(d.bytes()) }

// count is the number of things that follow, each of at least size bytes.
func (d *decoder) count(size int) int {
	n := d.uint()
	if n > uint64(len(d.b)/size) {
		d.fail("count")
		return 0
	}
	return int(n)
}

func (d *decoder) pairs() []Pair {
	n := d.count(2)
	if n == 0 {
		return nil
	}
	v := make([]Pair, n)
	for i := range v {
		v[i] = Pair{d.string(), d.string()}
	}
	return v
}
