package snapfile

import (
	"encoding/binary"
	"math"
)

// place is where a block is, and how long its parts are, checksums included.
type place struct {
	offset int64
	// parts are the lengths of names, fixed and extras; a block of the directory
	// table has one part.
	parts [3]uint32
}

func (p *place) end() int64 {
	return p.offset + int64(p.parts[0]) + int64(p.parts[1]) + int64(p.parts[2])
}

// pageBuffer collects a page of an index: where blocks are, and what separates
// each from the one before: a string that is greater than what that ends with, and
// not greater than what it begins with.
type pageBuffer struct {
	places     []place
	separators nameList
}

func (p *pageBuffer) append(b []byte) []byte {
	at := int64(0)
	for _, x := range p.places {
		b = binary.AppendUvarint(b, uint64(x.offset-at))
		for _, n := range x.parts {
			b = binary.AppendUvarint(b, uint64(n))
		}
		at = x.end()
	}
	return appendNames(b, &p.separators)
}

func (p *pageBuffer) reset() {
	p.places = p.places[:0]
	p.separators.reset()
}

// page is a page of an index, decoded.
type page struct {
	places     []place
	separators nameList
}

func (p *page) size() int { return 24*cap(p.places) + p.separators.size() + 64 }

// decodePage decodes a page of n blocks of a file of so many bytes.
func decodePage(in *input, n int, fileSize int64) (*page, error) {
	p := page{places: make([]place, n)}
	at := uint64(0)
	for i := range p.places {
		x := &p.places[i]
		gap := in.uvarint()
		if gap > math.MaxInt64 || at+gap > uint64(fileSize) {
			return nil, errMalformed
		}
		x.offset = int64(at + gap)
		for j := range x.parts {
			x.parts[j] = uint32(in.length(math.MaxInt32))
		}
		if at = uint64(x.end()); in.bad || at > uint64(fileSize) {
			return nil, errMalformed
		}
	}
	p.separators = in.names(n)
	if err := in.done(); err != nil {
		return nil, err
	}
	return &p, nil
}

// root is the upper level of an index: where its pages are and the separator of
// each from the one before.
type root struct {
	places     []place
	separators []string
}

func (r *root) append(b []byte) []byte {
	b = binary.AppendUvarint(b, uint64(len(r.places)))
	for i, p := range r.places {
		b = binary.AppendUvarint(b, uint64(p.offset))
		b = binary.AppendUvarint(b, uint64(p.parts[0]))
		b = appendText(b, r.separators[i])
	}
	return b
}

// root decodes what root.append appended for an index of so many pages.
func (in *input) root(pages uint64, fileSize int64) root {
	// A page takes three bytes at least.
	if n := in.uvarint(); n != pages || n > uint64(len(in.b))/3 {
		in.fail()
		return root{}
	}
	r := root{places: make([]place, pages), separators: make([]string, pages)}
	for i := range r.places {
		offset := in.length(uint64(fileSize))
		size := in.length(min(maxPage, uint64(fileSize)-offset))
		r.places[i] = place{offset: int64(offset), parts: [3]uint32{uint32(size)}}
		r.separators[i] = in.text(MaxKey)
	}
	return r
}
