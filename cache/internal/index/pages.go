package index

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"io/fs"
	"os"
)

// The parts of bbolt's file that are looked at before bbolt is.
const (
	boltMagic      = 0xED0CDAED
	boltVersion    = 2
	boltHeader     = 16 // of a page: id 8, flags 2, count 2, overflow 4
	boltMeta       = 64 // after the header of the first two pages
	boltElement    = 16 // of a branch or leaf page
	boltBucket     = 16 // root 8, sequence 8
	boltNoFreelist = ^uint64(0)

	boltBranch   = 0x01
	boltLeaf     = 0x02
	boltFreelist = 0x10

	boltBucketFlag = 0x01 // of a leaf element

	boltLeastPage = 1 << 10
	boltMostPage  = 1 << 24
	// boltDepth is more than any tree has whose branches have two children.
	boltDepth = 64
)

// checkIndexPages returns an error that wraps ErrUnusable if the pages of the index at
// path are not the trees that bbolt takes them for. bbolt checks its two meta pages
// only: of a branch that leads back to itself it makes an endless recursion, which
// nothing can recover from. Every page is looked at once. A file that is missing or
// empty is a new index.
func checkIndexPages(path string) error {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if info.Size() == 0 {
		return nil
	}
	c := &pageChecker{file: f, size: info.Size()}
	if err := c.check(); err != nil {
		return fmt.Errorf("check the pages of the index: %w", err)
	}
	return nil
}

// pageChecker walks through the pages of a bbolt file.
type pageChecker struct {
	file     io.ReaderAt
	size     int64
	pageSize int64
	// pages is how many there are; seen has those that something leads to, or that
	// are free: each is one or the other, once.
	pages uint64
	seen  []uint64
}

// pageDamage is an error that says what is wrong with a page.
func pageDamage(page uint64, format string, args ...any) error {
	return fmt.Errorf("%w: page %d %s", ErrUnusable, page, fmt.Sprintf(format, args...))
}

func (c *pageChecker) check() error {
	meta, err := c.meta()
	if err != nil {
		return err
	}
	root := binary.NativeEndian.Uint64(meta[16:])
	freelist := binary.NativeEndian.Uint64(meta[32:])
	c.pages = binary.NativeEndian.Uint64(meta[40:])
	if c.pages < 4 || c.pages > uint64(c.size/c.pageSize) {
		return fmt.Errorf("%w: %d pages of %d bytes in a file of %d", ErrUnusable, c.pages, c.pageSize, c.size)
	}
	c.seen = make([]uint64, c.pages/64+1)
	c.seen[0] = 3 // the meta pages
	if err := c.tree(root, 0); err != nil {
		return err
	}
	if freelist == boltNoFreelist {
		return nil
	}
	return c.freelist(freelist)
}

// meta finds the valid meta page with the highest transaction, as bbolt does.
func (c *pageChecker) meta() (newest []byte, err error) {
	at := func(off int64) ([]byte, error) {
		p := make([]byte, boltHeader+boltMeta)
		if _, err := c.file.ReadAt(p, off); err != nil {
			if errors.Is(err, io.EOF) {
				return nil, nil
			}
			return nil, err
		}
		p = p[boltHeader:]
		h := fnv.New64a()
		_, _ = h.Write(p[:boltMeta-8]) // never fails
		size := int64(binary.NativeEndian.Uint32(p[8:]))
		if binary.NativeEndian.Uint32(p) != boltMagic || binary.NativeEndian.Uint32(p[4:]) != boltVersion ||
			binary.NativeEndian.Uint64(p[boltMeta-8:]) != h.Sum64() ||
			size < boltLeastPage || size > boltMostPage || size&(size-1) != 0 {
			return nil, nil
		}
		return p, nil
	}
	first, err := at(0)
	if err != nil {
		return nil, err
	}
	var second []byte
	for size := int64(boltLeastPage); size <= boltMostPage && size < c.size; size *= 2 {
		p, err := at(size)
		if err != nil {
			return nil, err
		}
		if p != nil && int64(binary.NativeEndian.Uint32(p[8:])) == size {
			second = p
			break
		}
	}
	switch {
	case first == nil && second == nil:
		return nil, fmt.Errorf("%w: no meta page is valid", ErrUnusable)
	case first == nil, second != nil && binary.NativeEndian.Uint64(second[48:]) > binary.NativeEndian.Uint64(first[48:]):
		newest = second
	default:
		newest = first
	}
	c.pageSize = int64(binary.NativeEndian.Uint32(newest[8:]))
	return newest, nil
}

// load reads a page with those that it overflows into, to each of which nothing
// else may lead.
func (c *pageChecker) load(id uint64) ([]byte, error) {
	if id < 2 || id >= c.pages {
		return nil, pageDamage(id, "is not one of %d", c.pages)
	}
	header := make([]byte, boltHeader)
	if _, err := c.file.ReadAt(header, int64(id)*c.pageSize); err != nil {
		return nil, err
	}
	if self := binary.NativeEndian.Uint64(header); self != id {
		return nil, pageDamage(id, "says that it is %d", self)
	}
	more := uint64(binary.NativeEndian.Uint32(header[12:]))
	if more >= c.pages-id {
		return nil, pageDamage(id, "overflows into %d more of %d", more, c.pages)
	}
	for p := id; p <= id+more; p++ {
		if err := c.use(p); err != nil {
			return nil, err
		}
	}
	page := make([]byte, (int64(more)+1)*c.pageSize)
	if _, err := c.file.ReadAt(page, int64(id)*c.pageSize); err != nil {
		return nil, err
	}
	return page, nil
}

// use notes that something leads to a page, or that it is free.
func (c *pageChecker) use(id uint64) error {
	word, bit := id/64, uint64(1)<<(id%64)
	if c.seen[word]&bit != 0 {
		return pageDamage(id, "is used twice")
	}
	c.seen[word] |= bit
	return nil
}

// tree checks the page and all below it.
func (c *pageChecker) tree(id uint64, depth int) error {
	if depth > boltDepth {
		return pageDamage(id, "lies too deep")
	}
	page, err := c.load(id)
	if err != nil {
		return err
	}
	return c.elements(id, page, depth)
}

// elements checks what a branch or leaf page holds. page may also be the page
// within a small bucket's value.
func (c *pageChecker) elements(id uint64, page []byte, depth int) error {
	flags := binary.NativeEndian.Uint16(page[8:])
	count := int(binary.NativeEndian.Uint16(page[10:]))
	if flags != boltBranch && flags != boltLeaf {
		return pageDamage(id, "has flags %#x where a branch or a leaf should be", flags)
	}
	if boltHeader+count*boltElement > len(page) || flags == boltBranch && count == 0 {
		return pageDamage(id, "has %d elements in %d bytes", count, len(page))
	}
	for i := range count {
		at := boltHeader + i*boltElement
		e := page[at : at+boltElement]
		if flags == boltBranch {
			pos, key := uint64(binary.NativeEndian.Uint32(e)), uint64(binary.NativeEndian.Uint32(e[4:]))
			if uint64(at)+pos+key > uint64(len(page)) {
				return pageDamage(id, "has a key beyond its end")
			}
			if err := c.tree(binary.NativeEndian.Uint64(e[8:]), depth+1); err != nil {
				return err
			}
			continue
		}
		pos, key := uint64(binary.NativeEndian.Uint32(e[4:])), uint64(binary.NativeEndian.Uint32(e[8:]))
		value := uint64(binary.NativeEndian.Uint32(e[12:]))
		start, end := uint64(at)+pos+key, uint64(at)+pos+key+value
		if end > uint64(len(page)) {
			return pageDamage(id, "has a value beyond its end")
		}
		if binary.NativeEndian.Uint32(e)&boltBucketFlag == 0 {
			continue
		}
		if err := c.bucket(id, page[start:end], depth+1); err != nil {
			return err
		}
	}
	return nil
}

// bucket checks a bucket within the leaf page id.
func (c *pageChecker) bucket(id uint64, value []byte, depth int) error {
	if len(value) < boltBucket || depth > boltDepth {
		return pageDamage(id, "has a bucket of %d bytes, %d deep", len(value), depth)
	}
	if root := binary.NativeEndian.Uint64(value); root != 0 {
		return c.tree(root, depth)
	}
	inline := value[boltBucket:]
	if len(inline) < boltHeader || binary.NativeEndian.Uint16(inline[8:]) != boltLeaf {
		return pageDamage(id, "has a bucket without its page")
	}
	return c.elements(id, inline, depth)
}

// freelist checks the list of free pages: bbolt writes to those.
func (c *pageChecker) freelist(id uint64) error {
	page, err := c.load(id)
	if err != nil {
		return err
	}
	if flags := binary.NativeEndian.Uint16(page[8:]); flags != boltFreelist {
		return pageDamage(id, "has flags %#x where the free pages should be", flags)
	}
	count, free := uint64(binary.NativeEndian.Uint16(page[10:])), page[boltHeader:]
	if count == 0xFFFF {
		count, free = binary.NativeEndian.Uint64(free), free[8:]
	}
	if count > uint64(len(free)/8) {
		return pageDamage(id, "lists %d free pages in %d bytes", count, len(page))
	}
	for ; count > 0; count-- {
		p := binary.NativeEndian.Uint64(free)
		free = free[8:]
		if p < 2 || p >= c.pages {
			return pageDamage(id, "lists free page %d of %d", p, c.pages)
		}
		if err := c.use(p); err != nil {
			return err
		}
	}
	return nil
}
