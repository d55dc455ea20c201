package snapfile

import (
	"bytes"
	"encoding/binary"
	"sync/atomic"
)

// Find fills out with the row of d that has the item, if there is one. What out
// points to must not be changed.
//
// Of names at random few are in a block that is met again before it would have to
// be dropped. So a block that was not met lately is looked through as it lies in the
// file, and nothing of it is kept; the second time it is decoded.
func (f *File) Find(d *Dir, item string, out *Row) (found bool, err error) {
	if d.Inside.Rows == 0 {
		return false, nil
	}
	block, err := f.search(kindRowPage, d.First/blockRows, (d.End()-1)/blockRows, item)
	if err != nil {
		return false, err
	}
	if f.cache.get(kindNames, block) == nil && f.met.first(block) {
		if found, ok := f.glance(d, block, item, out); ok {
			return found, nil
		}
		// The usual way knows more kinds of blocks, and says what is damaged.
	}
	r := Reader{f: f, Whole: true}
	row, found, err := r.searchBlock(d, d.First, block, item)
	if err != nil || !found {
		return false, err
	}
	return true, r.Row(out, row)
}

// glance is Find in one block, without decoding more than the row. ok is false if
// that cannot be done, for whatever reason.
func (f *File) glance(d *Dir, block uint64, item string, out *Row) (found, ok bool) {
	where, err := f.place(kindRowPage, block)
	if err != nil || where.parts[0] < crcSize || where.parts[1] < crcSize || where.parts[0] > 2*maxNames || where.parts[1] > maxFixed || where.end() > f.size || f.closed.Load() {
		return false, false
	}
	buffer := f.buffers.Get().(*[]byte)
	defer f.buffers.Put(buffer)
	length := int(where.parts[0]) + int(where.parts[1])
	if cap(*buffer) < length {
		*buffer = make([]byte, length)
	}
	data := (*buffer)[:length]
	if f.source.read(data, where.offset) != nil {
		return false, false
	}
	f.read.Add(2)
	names, sealed := f.sealed(kindNames, block, data[:where.parts[0]])
	numbers, alsoSealed := f.sealed(kindFixed, block, data[where.parts[0]:])
	if !sealed || !alsoSealed {
		return false, false
	}
	n := inBlock(f.footer.info.Rows, block)
	low, high := max(d.First, block*blockRows), min(d.End(), (block+1)*blockRows)
	err = f.unpack.unpack(names, maxNames, func(in *input) error {
		var class byte
		var classes []byte
		switch in.byte() {
		case 0:
			class = in.byte()
		case 1:
			classes = in.bytes(uint64(n))
		default:
			in.fail()
		}
		var before, own [blockRows]uint32
		items := foldedList{before: before[:n], own: own[:n]}
		items.suffixes = in.suffixes(items.before, items.own)
		// A directory has no numbers, and those of the rows after it are counted
		// without it.
		if err := in.done(); err != nil || class > classAll || bytes.IndexByte(items.suffixes, '/') >= 0 {
			return errMalformed
		}
		i, there := items.find(int(low%blockRows), int(low%blockRows+high-low), item)
		if !there {
			return nil
		}
		if classes != nil {
			class = classes[i]
		}
		// What few rows have is in a part that is not read here.
		if class > classAll || class&classForm == byte(TextETag) || class&classAttr != 0 {
			return errMalformed
		}
		var b fixedBlock
		if err := b.decode(&input{b: numbers}, n, class, classes); err != nil {
			return err
		}
		*out = Row{Item: []byte(item)}
		b.row(out, i, class)
		if out.Size < 0 {
			return errMalformed
		}
		found = true
		return nil
	})
	return found, err == nil
}

// sealed returns the payload of a part, and whether its checksum is right.
func (f *File) sealed(k kind, number uint64, part []byte) ([]byte, bool) {
	payload := part[:len(part)-crcSize]
	return payload, checksum(f.id, k, number, payload) == binary.LittleEndian.Uint32(part[len(payload):])
}

// foldedList is a list of strings as it is held: how many bytes each has in common
// with the one before, how many follow, and those of all.
type foldedList struct {
	before, own []uint32
	suffixes    []byte
}

// find looks for s among the strings from low up to, not including, high, of which
// there is one and which must be in order. It decodes none of them: what a string
// has in common with the one before mostly tells that it cannot be s.
func (l *foldedList) find(low, high int, s string) (at int, found bool) {
	var space [256]byte
	first := space[:0]
	from := 0
	for i := range low + 1 {
		to := from + int(l.own[i])
		first = append(first[:l.before[i]], l.suffixes[from:to]...)
		from = to
	}
	// The string at hand is less than s, and same is what they have in common.
	same := 0
	for same < len(first) && same < len(s) && first[same] == s[same] {
		same++
	}
	if same == len(s) || same < len(first) && first[same] > s[same] {
		return low, same == len(s) && same == len(first)
	}
	for i := low + 1; i < high; i++ {
		suffix := l.suffixes[from : from+int(l.own[i])]
		from += len(suffix)
		switch b := int(l.before[i]); {
		case b > same:
			continue // it differs from s where the one before does
		case b < same:
			return 0, false // it differs earlier, and is greater than the one before
		}
		k := 0
		for k < len(suffix) && same < len(s) && suffix[k] == s[same] {
			k++
			same++
		}
		if same == len(s) || k < len(suffix) && suffix[k] > s[same] {
			return i, same == len(s) && k == len(suffix)
		}
	}
	return 0, false
}

// metTable remembers numbers of blocks, as many as there may be decoded ones, until
// others take their places.
type metTable []atomic.Uint64

// blockMemory is about what a decoded block takes.
const blockMemory = 16 << 10

func newMetTable(cacheBytes int64) metTable {
	return make(metTable, max(64, cacheBytes/blockMemory))
}

// first reports whether block is not remembered, and remembers it.
func (t metTable) first(block uint64) bool {
	at := &t[block%uint64(len(t))]
	return at.Load() != block+1 && at.Swap(block+1) != block+1
}
