package dataset

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
)

// PageSize is the unit of made content. The first eight bytes of every page are
// its stamp: they differ between any two pages of a set.
const PageSize = 4096

// Content makes the bytes of one file. They look random: they neither compress
// nor repeat within Period.
type Content struct {
	id     uint64
	period int64
}

// NewContent returns the content of the file called name in the set made from
// seed. The content repeats after period bytes, a multiple of PageSize; 0 means
// never.
func NewContent(seed uint64, name string, period int64) Content {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name)) // a hash.Hash never fails
	return Content{id: mix(h.Sum64() ^ mix(seed)), period: period}
}

// Fill makes the bytes that begin at offset.
func (c Content) Fill(p []byte, offset int64) {
	var page [PageSize]byte
	for len(p) > 0 {
		inPage := offset % PageSize
		if inPage == 0 && len(p) >= PageSize {
			c.page((*[PageSize]byte)(p), offset)
			p, offset = p[PageSize:], offset+PageSize
			continue
		}
		c.page(&page, offset-inPage)
		n := copy(p, page[inPage:])
		p, offset = p[n:], offset+int64(n)
	}
}

// CheckStamps compares the first eight bytes of every page that begins in p,
// which was read at offset. It touches one cache line in 64, so that it can run
// inside a timed loop: it proves that the right pages came, not every byte.
func (c Content) CheckStamps(p []byte, offset int64) error {
	first := (PageSize - offset%PageSize) % PageSize
	for i := first; i+8 <= int64(len(p)); i += PageSize {
		want := c.word(c.pageState(offset+i), 0)
		if got := binary.LittleEndian.Uint64(p[i:]); got != want {
			return fmt.Errorf("page at offset %d begins with %016x, want %016x", offset+i, got, want)
		}
	}
	return nil
}

// Check compares every byte of p, which was read at offset.
func (c Content) Check(p []byte, offset int64) error {
	var page [PageSize]byte
	for len(p) > 0 {
		inPage := offset % PageSize
		c.page(&page, offset-inPage)
		n := min(len(p), PageSize-int(inPage))
		if string(p[:n]) != string(page[inPage:int(inPage)+n]) {
			return fmt.Errorf("bytes %d to %d are not the file's", offset, offset+int64(n)-1)
		}
		p, offset = p[n:], offset+int64(n)
	}
	return nil
}

func (c Content) page(p *[PageSize]byte, offset int64) {
	state := c.pageState(offset)
	for i := 0; i < PageSize; i += 8 {
		binary.LittleEndian.PutUint64(p[i:i+8], c.word(state, uint64(i)))
	}
}

func (c Content) pageState(offset int64) uint64 {
	if c.period > 0 {
		offset %= c.period
	}
	return mix(c.id + uint64(offset/PageSize))
}

// word is one step of a multiplicative generator. One multiplication a word
// keeps making a GiB under half a second.
func (Content) word(state, i uint64) uint64 {
	z := (state + i) * 0x9e3779b97f4a7c15
	return z ^ z>>32
}

// mix spreads every bit of its argument over the result (the finalizer of
// SplitMix64).
func mix(z uint64) uint64 {
	z += 0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}
