package keysort

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"slices"
)

// buffer holds entries in memory.
type buffer struct {
	// data holds the items and values one after another, each with its length.
	data    []byte
	entries []entry
	dirs    []dir
	byName  map[string]uint32
	last    uint32
	// dirBytes is what dirs and byName take.
	dirBytes int
}

type entry struct {
	// head is what the item has after what all items of the directory begin with: its
	// first eight bytes, the first the most significant. It is set when sorting.
	head uint64
	// dir is the directory's number, and its rank after sorting.
	dir uint32
	at  uint32
}

type dir struct {
	name string
	// first is an item of it, and shared how many leading bytes all have in common
	// with it, which is known when sorting.
	first  uint32
	shared int
}

// entryBytes is what an entry takes beside its data, and dirBytes a directory
// beside its name, roughly.
const (
	entryBytes = 16
	dirBytes   = 120
	// maxData bounds data, into which entries point with 32 bits.
	maxData = 1 << 31
)

func newBuffer() *buffer { return &buffer{byName: make(map[string]uint32)} }

// reset empties the buffer and keeps its memory.
func (b *buffer) reset() {
	b.data, b.entries = b.data[:0], b.entries[:0]
	b.dirs, b.dirBytes, b.last = nil, 0, 0
	b.byName = make(map[string]uint32)
}

// bytes returns what the buffer takes in memory.
func (b *buffer) bytes() int {
	return len(b.data) + entryBytes*len(b.entries) + b.dirBytes
}

func (b *buffer) add(name, item string, value []byte) {
	at := uint32(len(b.data))
	b.data = binary.AppendUvarint(b.data, uint64(len(item)))
	b.data = append(b.data, item...)
	b.data = binary.AppendUvarint(b.data, uint64(len(value)))
	b.data = append(b.data, value...)
	if len(b.dirs) == 0 || b.dirs[b.last].name != name {
		number, known := b.byName[name]
		if !known {
			number = uint32(len(b.dirs))
			name = string([]byte(name)) // it is part of a longer key
			b.dirs = append(b.dirs, dir{name: name, first: at, shared: len(item)})
			b.byName[name] = number
			b.dirBytes += len(name) + dirBytes
		}
		b.last = number
	}
	b.entries = append(b.entries, entry{dir: b.last, at: at})
}

// item returns the item of the entry at at.
func (b *buffer) item(at uint32) []byte {
	n, size := binary.Uvarint(b.data[at:])
	begin := int(at) + size
	return b.data[begin : begin+int(n)]
}

// value returns its value.
func (b *buffer) value(at uint32) []byte {
	n, size := binary.Uvarint(b.data[at:])
	begin := int(at) + size + int(n)
	n, size = binary.Uvarint(b.data[begin:])
	begin += size
	return b.data[begin : begin+int(n)]
}

// sort puts the entries in order, the last one that was added first among equals.
// Nothing can be added after that.
func (b *buffer) sort() {
	order := make([]uint32, len(b.dirs))
	for i := range order {
		order[i] = uint32(i)
	}
	slices.SortFunc(order, func(x, y uint32) int { return cmp.Compare(b.dirs[x].name, b.dirs[y].name) })
	rank := make([]uint32, len(order))
	ranked := make([]dir, len(order))
	for i, number := range order {
		rank[number], ranked[i] = uint32(i), b.dirs[number]
	}
	b.dirs, b.byName = ranked, nil
	for i := range b.entries {
		e := &b.entries[i]
		e.dir = rank[e.dir]
		d := &b.dirs[e.dir]
		d.shared = common(b.item(d.first)[:d.shared], b.item(e.at))
	}
	for i := range b.entries {
		e := &b.entries[i]
		e.head = head(b.item(e.at)[b.dirs[e.dir].shared:])
	}
	slices.SortFunc(b.entries, func(x, y entry) int {
		if x.dir != y.dir {
			return cmp.Compare(x.dir, y.dir)
		}
		if x.head != y.head {
			return cmp.Compare(x.head, y.head)
		}
		if c := bytes.Compare(b.item(x.at), b.item(y.at)); c != 0 {
			return c
		}
		return cmp.Compare(y.at, x.at)
	})
}

// common returns how many leading bytes x and y have in common.
func common(x, y []byte) int {
	n := 0
	for n < len(x) && n < len(y) && x[n] == y[n] {
		n++
	}
	return n
}

// head returns the first eight bytes of s as a number that is ordered as they are.
func head(s []byte) uint64 {
	if len(s) >= 8 {
		return binary.BigEndian.Uint64(s)
	}
	var all [8]byte
	copy(all[:], s)
	return binary.BigEndian.Uint64(all[:])
}

// bufferCursor reads a sorted buffer.
type bufferCursor struct {
	b *buffer
	i int
}

func (c *bufferCursor) next(e *Entry) (bool, error) {
	if c.i == len(c.b.entries) {
		return false, nil
	}
	x := c.b.entries[c.i]
	c.i++
	// Directories are few: this copy is as long as their name.
	name := c.b.dirs[x.dir].name
	if string(e.Dir) != name {
		e.Dir = append(e.Dir[:0], name...)
	}
	e.Item, e.Value = c.b.item(x.at), c.b.value(x.at)
	return true, nil
}
