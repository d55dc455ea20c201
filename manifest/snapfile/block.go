package snapfile

import (
	"bytes"
	"encoding/binary"
)

// The class of a row says what is held of it. That of a directory is 0.
const (
	classForm    = 3 // an ETagForm
	classSymlink = 1 << 2
	classCRC64   = 1 << 3
	classAttr    = 1 << 4
	classAll     = 1<<5 - 1
)

// rowBuffer collects the rows of a block.
type rowBuffer struct {
	items        nameList
	classes      []byte
	sizes, times []uint64
	sums, crcs   []byte
	parts        []uint64
	extras       []byte
}

func (r *rowBuffer) len() int { return r.items.len() }

func (r *rowBuffer) reset() {
	r.items.reset()
	r.classes, r.sizes, r.times = r.classes[:0], r.sizes[:0], r.times[:0]
	r.sums, r.crcs, r.parts, r.extras = r.sums[:0], r.crcs[:0], r.parts[:0], r.extras[:0]
}

// add takes in a row that was found fit to be held.
func (r *rowBuffer) add(row *Row) {
	r.items.add(row.Item)
	if row.Directory() {
		// Nothing is held of a directory, so that its numbers may be what costs
		// least: those of the row before.
		size, when := uint64(0), uint64(0)
		if n := len(r.sizes); n > 0 {
			size, when = r.sizes[n-1], r.times[n-1]
		}
		r.classes, r.sizes, r.times = append(r.classes, 0), append(r.sizes, size), append(r.times, when)
		return
	}
	class := byte(row.ETag.Form)
	r.sizes = append(r.sizes, uint64(row.Size))
	r.times = append(r.times, timeNumber(row.ModTime))
	switch row.ETag.Form {
	case PartsETag:
		r.parts = append(r.parts, row.ETag.Parts)
		fallthrough
	case SumETag:
		r.sums = append(r.sums, row.ETag.Sum[:]...)
	case TextETag:
		r.extras = appendText(r.extras, row.ETag.Text)
	case NoETag:
	}
	if row.Symlink {
		class |= classSymlink
	}
	if row.HasCRC64 {
		class |= classCRC64
		r.crcs = binary.LittleEndian.AppendUint64(r.crcs, row.CRC64)
	}
	if row.Attr != nil {
		class |= classAttr
		r.extras = AppendAttr(r.extras, row.Attr)
	}
	r.classes = append(r.classes, class)
}

// appendNames appends the part that holds the names, before it is packed.
func (r *rowBuffer) appendNames(b []byte) []byte {
	uniform, class, begun := true, byte(0), false
	for i, c := range r.classes {
		if isDirectory(r.items.at(i)) {
			continue
		}
		if !begun {
			class, begun = c, true
		}
		uniform = uniform && c == class
	}
	if uniform {
		b = append(b, 0, class)
	} else {
		b = append(b, 1)
		b = append(b, r.classes...)
	}
	return appendNames(b, &r.items)
}

// appendFixed appends the part that holds the numbers.
func (r *rowBuffer) appendFixed(b []byte, scratch []uint64) []byte {
	b = appendColumn(b, r.sizes, scratch)
	b = appendColumn(b, r.times, scratch)
	if len(r.parts) > 0 {
		b = appendColumn(b, r.parts, scratch)
	}
	b = append(b, r.sums...)
	return append(b, r.crcs...)
}

// nameBlock is the part of a block that holds the names, decoded.
type nameBlock struct {
	items nameList
	// class is that of all rows but directories, if classes is nil.
	class   byte
	classes []byte
	// directories is how many of the rows are directories.
	directories int
}

func (b *nameBlock) size() int { return b.items.size() + cap(b.classes) + 96 }

func (b *nameBlock) directory(i int) bool { return isDirectory(b.items.at(i)) }

// classOf returns the class of row i.
func (b *nameBlock) classOf(i int) byte {
	switch {
	case b.classes != nil:
		return b.classes[i]
	case b.directory(i):
		return 0
	}
	return b.class
}

// decodeNames decodes the names of a block of n rows.
func decodeNames(in *input, n int) (*nameBlock, error) {
	var b nameBlock
	switch in.byte() {
	case 0:
		b.class = in.byte()
	case 1:
		b.classes = bytes.Clone(in.bytes(uint64(n)))
	default:
		in.fail()
	}
	b.items = in.names(n)
	if err := in.done(); err != nil {
		return nil, err
	}
	slashes := bytes.Count(b.items.text, []byte{'/'})
	if slashes == 0 && b.classes == nil {
		// There are no directories, and what is said is said of all.
		if b.class > classAll {
			return nil, errMalformed
		}
		return &b, nil
	}
	for i := range n {
		if b.directory(i) {
			b.directories++
		}
		if c := b.classOf(i); c > classAll || (c != 0 && b.directory(i)) {
			return nil, errMalformed
		}
	}
	// No slash anywhere but at the end: an item is never more than one name.
	if slashes != b.directories {
		return nil, errMalformed
	}
	return &b, nil
}

// fixedBlock is the part of a block that holds the numbers.
type fixedBlock struct {
	sizes, times, parts column
	sums, crcs          []byte
	// ranks are, for each row, how many rows before it have a sum, parts, and a
	// CRC-64. It is nil if all have the first and the last, or lack them, and none
	// the second.
	ranks [][3]uint8
}

func (b *fixedBlock) size() int {
	return cap(b.sizes.packed) + cap(b.times.packed) + cap(b.parts.packed) + b.sizes.size() + b.times.size() + b.parts.size() +
		len(b.sums) + len(b.crcs) + 3*len(b.ranks) + 256
}

// decodeFixed decodes the numbers of the rows of names. It keeps the memory of
// the input.
func decodeFixed(in *input, names *nameBlock) (*fixedBlock, error) {
	n, classes := names.items.len(), names.classes
	if classes == nil && names.directories > 0 {
		var each [blockRows]byte
		for i := range n {
			each[i] = names.classOf(i)
		}
		classes = each[:n]
	}
	var b fixedBlock
	if err := b.decode(in, n, names.class, classes); err != nil {
		return nil, err
	}
	return &b, nil
}

// decode decodes the numbers of n rows, whose classes are those, or all class if it
// is nil. It keeps the memory of the input.
func (b *fixedBlock) decode(in *input, n int, class byte, classes []byte) error {
	var count [3]int
	if classes == nil && class&classForm != byte(PartsETag) {
		if class&classForm == byte(SumETag) {
			count[0] = n
		}
		if class&classCRC64 != 0 {
			count[2] = n
		}
	} else {
		b.ranks = make([][3]uint8, n)
		for i := range n {
			b.ranks[i] = [3]uint8{uint8(count[0]), uint8(count[1]), uint8(count[2])}
			if classes != nil {
				class = classes[i]
			}
			switch ETagForm(class & classForm) {
			case PartsETag:
				count[1]++
				count[0]++
			case SumETag:
				count[0]++
			case NoETag, TextETag:
			}
			if class&classCRC64 != 0 {
				count[2]++
			}
		}
	}
	b.sizes, b.times = in.column(n), in.column(n)
	if count[1] > 0 {
		b.parts = in.column(count[1])
	}
	b.sums = in.bytes(16 * uint64(count[0]))
	b.crcs = in.bytes(8 * uint64(count[2]))
	return in.done()
}

// row fills the fields of r that b holds of row i, whose class is class.
func (b *fixedBlock) row(r *Row, i int, class byte) {
	r.Size = int64(b.sizes.at(i))
	r.ModTime = numberTime(b.times.at(i))
	rank := [3]int{i, 0, i}
	if b.ranks != nil {
		rank = [3]int{int(b.ranks[i][0]), int(b.ranks[i][1]), int(b.ranks[i][2])}
	}
	r.ETag.Form = ETagForm(class & classForm)
	switch r.ETag.Form {
	case PartsETag:
		r.ETag.Parts = b.parts.at(rank[1])
		fallthrough
	case SumETag:
		copy(r.ETag.Sum[:], b.sums[16*rank[0]:])
	case NoETag, TextETag:
	}
	r.Symlink = class&classSymlink != 0
	if r.HasCRC64 = class&classCRC64 != 0; r.HasCRC64 {
		r.CRC64 = binary.LittleEndian.Uint64(b.crcs[8*rank[2]:])
	}
}

// extraBlock is the part of a block that holds what few rows have.
type extraBlock struct {
	texts []string
	attrs []*Attr
	bytes int
}

func (b *extraBlock) size() int { return b.bytes }

// decodeExtras decodes what the rows of names have beyond names and numbers.
func decodeExtras(in *input, names *nameBlock) (*extraBlock, error) {
	n := names.items.len()
	b := extraBlock{texts: make([]string, n), attrs: make([]*Attr, n)}
	b.bytes = 24*n + len(in.b)
	for i := range n {
		class := names.classOf(i)
		if class&classForm == byte(TextETag) {
			b.texts[i] = in.text(MaxText)
		}
		if class&classAttr != 0 {
			if b.attrs[i] = in.attr(); b.attrs[i] != nil {
				b.bytes += 112 + 32*len(b.attrs[i].User)
			}
		}
	}
	if err := in.done(); err != nil {
		return nil, err
	}
	return &b, nil
}
