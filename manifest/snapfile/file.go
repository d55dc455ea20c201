package snapfile

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"sync"
	"sync/atomic"
)

// File answers from a manifest. It is safe for concurrent use.
type File struct {
	name   string
	source source
	size   int64
	id     uint64
	footer *footer
	cache  *blockCache
	met    metTable
	unpack *unpacker
	// buffers holds *[]byte for what is not kept.
	buffers sync.Pool
	closed  atomic.Bool
	read    atomic.Int64

	damage struct {
		count atomic.Int64
		once  sync.Once
		first atomic.Pointer[DamageError]
	}
}

// Open opens the file at path. It must be closed. cacheBytes bounds
// what is kept of decoded blocks.
func Open(path string, cacheBytes int64) (*File, error) {
	m, size, err := openFile(path)
	if err != nil {
		return nil, fmt.Errorf("open manifest: %w", err)
	}
	f, err := open(path, m, size, cacheBytes)
	if err != nil {
		return nil, errors.Join(err, m.close())
	}
	return f, nil
}

// OpenAt opens the file of size bytes that r reads. name is for messages. It must
// be closed, which does not close r.
func OpenAt(name string, r io.ReaderAt, size, cacheBytes int64) (*File, error) {
	return open(name, readerSource{r}, size, cacheBytes)
}

func open(name string, s source, size, cacheBytes int64) (*File, error) {
	f := &File{name: name, source: s, size: size, cache: newBlockCache(cacheBytes), met: newMetTable(cacheBytes)}
	f.buffers.New = func() any { return new([]byte) }
	if size < headerSize+trailerSize {
		return nil, f.damaged(0, fmt.Sprintf("%d bytes are no manifest: the file is cut short, or another's", size), nil)
	}
	var header [headerSize]byte
	if err := s.read(header[:], 0); err != nil {
		return nil, f.damaged(0, "the header cannot be read", err)
	}
	switch version := binary.LittleEndian.Uint16(header[8:]); {
	case string(header[:8]) != headerMagic:
		return nil, f.damaged(0, "it does not begin as manifests do", nil)
	case binary.LittleEndian.Uint32(header[28:]) != checksumOf(header[:28]):
		return nil, f.damaged(0, "the header does not match its checksum", nil)
	case version != Version:
		return nil, fmt.Errorf("open manifest %s: byte 8 says version %d, and this program reads version %d: %w; use a newer pailfs, or build the manifest again with this one",
			name, version, Version, ErrVersion)
	case binary.LittleEndian.Uint32(header[12:]) != blockRows || binary.LittleEndian.Uint16(header[10:]) != 0 || binary.LittleEndian.Uint32(header[24:]) != 0:
		return nil, f.damaged(8, "the header is not one of version 1", nil)
	}
	f.id = binary.LittleEndian.Uint64(header[16:])
	at := size - trailerSize
	var trailer [trailerSize]byte
	if err := s.read(trailer[:], at); err != nil {
		return nil, f.damaged(at, "the trailer cannot be read", err)
	}
	footerAt, footerSize := binary.LittleEndian.Uint64(trailer[8:]), binary.LittleEndian.Uint32(trailer[16:])
	switch {
	case string(trailer[32:36]) != trailerMagic || binary.LittleEndian.Uint32(trailer[36:]) != checksumOf(trailer[:36]):
		return nil, f.damaged(at, "it does not end as manifests do: the file is cut short", nil)
	case binary.LittleEndian.Uint64(trailer[24:]) != f.id:
		return nil, f.damaged(at, "its end is another manifest's", nil)
	case binary.LittleEndian.Uint64(trailer[0:]) != uint64(size):
		return nil, f.damaged(at, fmt.Sprintf("it has %d bytes and should have %d", size, binary.LittleEndian.Uint64(trailer[0:])), nil)
	case footerAt < headerSize || footerAt > uint64(at) || uint64(footerSize) != uint64(at)-footerAt:
		return nil, f.damaged(at, "the trailer points nowhere", nil)
	}
	payload := make([]byte, footerSize)
	if err := s.read(payload, int64(footerAt)); err != nil {
		return nil, f.damaged(int64(footerAt), "the footer cannot be read", err)
	}
	if checksum(f.id, kindFooter, 0, payload) != binary.LittleEndian.Uint32(trailer[20:]) {
		return nil, f.damaged(int64(footerAt), "the footer does not match its checksum", nil)
	}
	var err error
	if f.footer, err = decodeFooter(payload, int64(footerAt)); err != nil {
		return nil, f.damaged(int64(footerAt), "the footer says what cannot be", err)
	}
	if f.unpack, err = newUnpacker(); err != nil {
		return nil, err
	}
	return f, nil
}

// Close lets the file go. What is cached is still answered, all else fails with
// [fs.ErrClosed].
func (f *File) Close() error {
	if f.closed.Swap(true) {
		return nil
	}
	return f.source.close()
}

// Name returns the name the file was opened by.
func (f *File) Name() string { return f.name }

// Info returns what the file says of itself. It must not be changed.
func (f *File) Info() *Info { return &f.footer.info }

// Size returns the size of the file in bytes.
func (f *File) Size() int64 { return f.size }

// Damage returns how often something damaged was met since the file was opened,
// and the first of it.
func (f *File) Damage() (int64, *DamageError) { return f.damage.count.Load(), f.damage.first.Load() }

// Held returns how many bytes of decoded parts are held, and how many parts were
// read so far.
func (f *File) Held() (bytes, read int64) { return f.cache.bytes.Load(), f.read.Load() }

func (f *File) damaged(offset int64, what string, err error) error {
	d := &DamageError{File: f.name, Offset: offset, What: what, Err: err}
	f.damage.count.Add(1)
	f.damage.first.CompareAndSwap(nil, d)
	return d
}

// load reads the part k of so many bytes at offset, checks it, and decodes it.
func (f *File) load(k kind, number uint64, offset int64, length uint32, decode func(payload []byte) error) error {
	b, err := f.fetch(k, number, offset, length)
	if err != nil {
		return err
	}
	return f.accept(k, number, offset, b, decode)
}

// fetch reads so many bytes at offset, where the part k is.
func (f *File) fetch(k kind, number uint64, offset int64, length uint32) ([]byte, error) {
	if f.closed.Load() {
		return nil, fmt.Errorf("read manifest %s: %w", f.name, fs.ErrClosed)
	}
	if length < crcSize || offset+int64(length) > f.size {
		return nil, f.damaged(offset, fmt.Sprintf("%s %d of %d bytes cannot be", k, number, length), nil)
	}
	b := make([]byte, length)
	if err := f.source.read(b, offset); err != nil {
		if errors.Is(err, fs.ErrClosed) {
			return nil, fmt.Errorf("read manifest %s: %w", f.name, err)
		}
		return nil, f.damaged(offset, fmt.Sprintf("%s %d cannot be read", k, number), err)
	}
	return b, nil
}

// accept checks and decodes the part k, which b is, of offset.
func (f *File) accept(k kind, number uint64, offset int64, b []byte, decode func(payload []byte) error) error {
	f.read.Add(1)
	if len(b) < crcSize {
		return f.damaged(offset, fmt.Sprintf("%s %d of %d bytes cannot be", k, number, len(b)), nil)
	}
	payload := b[:len(b)-crcSize]
	if checksum(f.id, k, number, payload) != binary.LittleEndian.Uint32(b[len(payload):]) {
		return f.damaged(offset, fmt.Sprintf("%s %d does not match its checksum", k, number), nil)
	}
	if err := decode(payload); err != nil {
		return f.damaged(offset, fmt.Sprintf("%s %d says what cannot be", k, number), err)
	}
	return nil
}

// index returns the index of rows or of directories.
func (f *File) index(k kind) *root {
	if k == kindRowPage {
		return &f.footer.rows
	}
	return &f.footer.dirs
}

// inBlock returns how many of n rows are in block number.
func inBlock(n, number uint64) int { return int(min(blockRows, n-number*blockRows)) }

// page returns a page of an index.
func (f *File) page(k kind, number uint64) (*page, error) {
	if p, ok := f.cache.get(k, number).(*page); ok {
		return p, nil
	}
	n := f.footer.info.Rows
	if k == kindDirPage {
		n = f.footer.info.Directories
	}
	where := f.index(k).places[number]
	var p *page
	err := f.load(k, number, where.offset, where.parts[0], func(payload []byte) (err error) {
		p, err = decodePage(&input{b: payload}, int(min(pageBlocks, blocksOf(n)-number*pageBlocks)), f.size)
		return err
	})
	if err != nil {
		return nil, err
	}
	f.cache.put(k, number, p.size(), p)
	return p, nil
}

// place returns where a block is.
func (f *File) place(k kind, block uint64) (place, error) {
	p, err := f.page(k, block/pageBlocks)
	if err != nil {
		return place{}, err
	}
	return p.places[block%pageBlocks], nil
}

// search returns the last block from low to high whose separator is not greater
// than s, or low.
func (f *File) search(k kind, low, high uint64, s string) (uint64, error) {
	if low == high {
		return low, nil
	}
	// The last page after that of low that begins no later.
	index := f.index(k)
	first, last := low/pageBlocks, high/pageBlocks
	for first < last {
		middle := (first + last + 1) / 2
		if index.separators[middle] <= s {
			first = middle
		} else {
			last = middle - 1
		}
	}
	p, err := f.page(k, first)
	if err != nil {
		return 0, err
	}
	begin, end := uint64(0), uint64(len(p.places)-1)
	if first == low/pageBlocks {
		begin = low % pageBlocks
	}
	if first == high/pageBlocks {
		end = high % pageBlocks
	}
	for begin < end {
		middle := (begin + end + 1) / 2
		if string(p.separators.at(int(middle))) <= s {
			begin = middle
		} else {
			end = middle - 1
		}
	}
	return first*pageBlocks + begin, nil
}

// directories returns a block of the directory table.
func (f *File) directories(number uint64) (*dirBlock, error) {
	if b, ok := f.cache.get(kindDirs, number).(*dirBlock); ok {
		return b, nil
	}
	where, err := f.place(kindDirPage, number)
	if err != nil {
		return nil, err
	}
	var b *dirBlock
	err = f.load(kindDirs, number, where.offset, where.parts[0], func(payload []byte) error {
		return f.unpack.unpack(payload, maxDirs, func(in *input) (err error) {
			b, err = decodeDirectories(in, inBlock(f.footer.info.Directories, number))
			if err == nil && b.before[len(b.before)-1].Rows > f.footer.info.Rows {
				err = errMalformed
			}
			return err
		})
	})
	if err != nil {
		return nil, err
	}
	f.cache.put(kindDirs, number, b.size(), b)
	return b, nil
}

// names returns the names of a block of rows. With whole, its numbers are read with
// them, because they will be asked for next.
func (f *File) names(number uint64, whole bool) (*nameBlock, error) {
	if b, ok := f.cache.get(kindNames, number).(*nameBlock); ok {
		return b, nil
	}
	where, err := f.place(kindRowPage, number)
	if err != nil {
		return nil, err
	}
	// Two parts, one call; what they hold is checked one by one.
	length := where.parts[0]
	if whole = whole && where.parts[1] <= maxFixed; whole {
		length += where.parts[1]
	}
	data, err := f.fetch(kindNames, number, where.offset, length)
	if err != nil && whole {
		whole = false // the names may be there
		data, err = f.fetch(kindNames, number, where.offset, where.parts[0])
	}
	if err != nil {
		return nil, err
	}
	var b *nameBlock
	err = f.accept(kindNames, number, where.offset, data[:where.parts[0]], func(payload []byte) error {
		return f.unpack.unpack(payload, maxNames, func(in *input) (err error) {
			b, err = decodeNames(in, inBlock(f.footer.info.Rows, number))
			return err
		})
	})
	if err != nil {
		return nil, err
	}
	f.cache.put(kindNames, number, b.size(), b)
	if whole {
		// If the numbers are damaged, whoever asks for them learns it.
		_, _ = f.acceptFixed(number, where, data[where.parts[0]:], b)
	}
	return b, nil
}

// acceptFixed decodes and keeps the numbers of a block.
func (f *File) acceptFixed(number uint64, where place, data []byte, names *nameBlock) (*fixedBlock, error) {
	var b *fixedBlock
	err := f.accept(kindFixed, number, where.offset+int64(where.parts[0]), data, func(payload []byte) (err error) {
		if len(payload) > maxFixed {
			return errMalformed
		}
		b, err = decodeFixed(&input{b: payload}, names)
		return err
	})
	if err != nil {
		return nil, err
	}
	f.cache.put(kindFixed, number, b.size(), b)
	return b, nil
}

// fixed returns the numbers of a block of rows whose names are known.
func (f *File) fixed(number uint64, names *nameBlock) (*fixedBlock, error) {
	if b, ok := f.cache.get(kindFixed, number).(*fixedBlock); ok {
		return b, nil
	}
	where, err := f.place(kindRowPage, number)
	if err != nil {
		return nil, err
	}
	data, err := f.fetch(kindFixed, number, where.offset+int64(where.parts[0]), where.parts[1])
	if err != nil {
		return nil, err
	}
	return f.acceptFixed(number, where, data, names)
}

// extras returns what few rows of a block have, some of which have it.
func (f *File) extras(number uint64, names *nameBlock) (*extraBlock, error) {
	if b, ok := f.cache.get(kindExtras, number).(*extraBlock); ok {
		return b, nil
	}
	where, err := f.place(kindRowPage, number)
	if err != nil {
		return nil, err
	}
	var b *extraBlock
	offset := where.offset + int64(where.parts[0]) + int64(where.parts[1])
	err = f.load(kindExtras, number, offset, where.parts[2], func(payload []byte) error {
		return f.unpack.unpack(payload, maxExtras, func(in *input) (err error) {
			b, err = decodeExtras(in, names)
			return err
		})
	})
	if err != nil {
		return nil, err
	}
	f.cache.put(kindExtras, number, b.size(), b)
	return b, nil
}

// Dir is a directory of a file.
type Dir struct {
	// Number is its place in the order of all directories, from 0.
	Number uint64
	// First is the number of its first row, among all rows from 0. Its rows are in a
	// row.
	First uint64
	// Inside counts what is in it, but not in directories below it.
	Inside Totals
}

// End returns the number of the row after its last.
func (d *Dir) End() uint64 { return d.First + d.Inside.Rows }

// find returns the block and the place in it of the first directory whose prefix
// is not less than s. The place may be the end of the block.
func (f *File) find(s string) (*dirBlock, uint64, int, error) {
	number, err := f.search(kindDirPage, 0, blocksOf(f.footer.info.Directories)-1, s)
	if err != nil {
		return nil, 0, 0, err
	}
	b, err := f.directories(number)
	if err != nil {
		return nil, 0, 0, err
	}
	return b, number, b.prefixes.search(0, b.prefixes.len(), s), nil
}

// Directory returns the directory prefix, which is relative to the root: "" or
// ending with a slash.
func (f *File) Directory(prefix string) (Dir, bool, error) {
	b, number, i, err := f.find(prefix)
	if err != nil || i == b.prefixes.len() || string(b.prefixes.at(i)) != prefix {
		return Dir{}, false, err
	}
	return b.dir(number, i), true, nil
}

func (b *dirBlock) dir(number uint64, i int) Dir {
	return Dir{Number: number*blockRows + uint64(i), First: b.before[i].Rows, Inside: b.before[i+1].Sub(b.before[i])}
}

// DirectoryAt returns the directory of that number, and its prefix.
func (f *File) DirectoryAt(number uint64) (Dir, string, error) {
	b, err := f.directories(number / blockRows)
	if err != nil {
		return Dir{}, "", err
	}
	i := int(number % blockRows)
	return b.dir(number/blockRows, i), string(b.prefixes.at(i)), nil
}

// Below counts what is in the directories whose prefixes begin with prefix, which
// is one itself, and how many these are.
func (f *File) Below(prefix string) (t Totals, directories uint64, err error) {
	from, first, err := f.before(prefix)
	if err != nil {
		return t, 0, err
	}
	// What comes after all that begin with it.
	after := prefix
	for len(after) > 0 && after[len(after)-1] == 0xff {
		after = after[:len(after)-1]
	}
	if after == "" {
		after = strings.Repeat("\xff", MaxKey+1)
	} else {
		after = after[:len(after)-1] + string([]byte{after[len(after)-1] + 1})
	}
	to, last, err := f.before(after)
	if err != nil {
		return t, 0, err
	}
	return to.Sub(from), last - first, nil
}

// before counts what is in the directories whose prefix is less than s, and how
// many these are.
func (f *File) before(s string) (Totals, uint64, error) {
	b, number, i, err := f.find(s)
	if err != nil {
		return Totals{}, 0, err
	}
	return b.before[i], number*blockRows + uint64(i), nil
}

// Reader reads rows one after another. It is a value for one goroutine, kept as
// long as a call takes; it remembers the block it read last.
type Reader struct {
	// Whole says that rows will be asked for, not items alone.
	Whole  bool
	f      *File
	number uint64
	names  *nameBlock
	fixed  *fixedBlock
	extras *extraBlock
}

// Reader returns a reader of rows.
func (f *File) Reader() Reader { return Reader{f: f} }

// turn makes the block of row the current one and returns the row's place in it.
func (r *Reader) turn(row uint64) (int, error) {
	if number := row / blockRows; r.names == nil || r.number != number {
		b, err := r.f.names(number, r.Whole)
		if err != nil {
			return 0, err
		}
		r.number, r.names, r.fixed, r.extras = number, b, nil, nil
	}
	return int(row % blockRows), nil
}

// Item returns the item of a row, which must be one, and whether it is a symlink
// object. The item is part of what is cached: it must not be changed, and a
// caller that keeps it copies it.
func (r *Reader) Item(row uint64) (item []byte, symlink bool, err error) {
	i, err := r.turn(row)
	if err != nil {
		return nil, false, err
	}
	return r.names.items.at(i), r.names.classOf(i)&classSymlink != 0, nil
}

// Row fills out with a row, which must be one. Its item and what it points to must
// not be changed; a caller that keeps the item copies it.
func (r *Reader) Row(out *Row, row uint64) error {
	i, err := r.turn(row)
	if err != nil {
		return err
	}
	*out = Row{Item: r.names.items.at(i)}
	if isDirectory(out.Item) {
		return nil
	}
	if err := r.needFixed(); err != nil {
		return err
	}
	class := r.names.classOf(i)
	r.fixed.row(out, i, class)
	if out.Size < 0 {
		return r.f.damaged(0, fmt.Sprintf("row %d has a size of %d bytes", row, out.Size), nil)
	}
	if class&classForm == byte(TextETag) || class&classAttr != 0 {
		if err := r.needExtras(); err != nil {
			return err
		}
		out.ETag.Text, out.Attr = r.extras.texts[i], r.extras.attrs[i]
	}
	return nil
}

// AttrOfSmall returns the size and the attributes of the object of a row if it has any
// and is of most bytes at most; else none. It reads no more than tells so: nothing but the
// names where nothing has attributes, and no attributes where all that have some are larger.
func (r *Reader) AttrOfSmall(row uint64, most int64) (size int64, attr *Attr, err error) {
	i, err := r.turn(row)
	if err != nil || r.names.classOf(i)&classAttr == 0 {
		return 0, nil, err
	}
	if err := r.needFixed(); err != nil {
		return 0, nil, err
	}
	if size = int64(r.fixed.sizes.at(i)); size > most {
		return 0, nil, nil
	}
	if err := r.needExtras(); err != nil {
		return 0, nil, err
	}
	return size, r.extras.attrs[i], nil
}

// needFixed reads the numbers of the current block.
func (r *Reader) needFixed() (err error) {
	if r.fixed == nil {
		r.fixed, err = r.f.fixed(r.number, r.names)
	}
	return err
}

// needExtras reads what few rows of the current block have.
func (r *Reader) needExtras() (err error) {
	if r.extras == nil {
		r.extras, err = r.f.extras(r.number, r.names)
	}
	return err
}

// Search returns the first row of d from row first on whose item is not less than
// item, or d.End(), and whether it is item.
func (r *Reader) Search(d *Dir, first uint64, item string) (row uint64, found bool, err error) {
	if first >= d.End() {
		return d.End(), false, nil
	}
	block, err := r.f.search(kindRowPage, first/blockRows, (d.End()-1)/blockRows, item)
	if err != nil {
		return 0, false, err
	}
	return r.searchBlock(d, first, block, item)
}

// searchBlock is Search in the block that would hold the item.
func (r *Reader) searchBlock(d *Dir, first, block uint64, item string) (row uint64, found bool, err error) {
	low, high := max(first, block*blockRows), min(d.End(), (block+1)*blockRows)
	begin, err := r.turn(low)
	if err != nil {
		return 0, false, err
	}
	i := r.names.items.search(begin, begin+int(high-low), item)
	row = block*blockRows + uint64(i)
	return row, row < high && string(r.names.items.at(i)) == item, nil
}

// Check reads everything, and returns the first damage.
func (f *File) Check(progress func(rows uint64) error) error {
	info := &f.footer.info
	var sum Totals
	var last []byte
	for n := range blocksOf(info.Directories) {
		b, err := f.directories(n)
		if err != nil {
			return err
		}
		for i := range b.prefixes.len() {
			if prefix := b.prefixes.at(i); (n > 0 || i > 0) && bytes.Compare(last, prefix) >= 0 {
				return f.damaged(0, fmt.Sprintf("directory %q comes after %q", prefix, last), nil)
			}
			last = append(last[:0], b.prefixes.at(i)...)
		}
		if b.before[0] != sum {
			return f.damaged(0, fmt.Sprintf("the sums of block %d of the directory table are wrong", n), nil)
		}
		sum = b.before[len(b.before)-1]
	}
	if sum.Rows != info.Rows || sum.Bytes != info.Bytes || sum.Problems != info.Problems || sum.Subdirectories+1 != info.Directories {
		return f.damaged(0, "the directory table and the footer count differently", nil)
	}
	r := f.Reader()
	for number := range info.Directories {
		d, prefix, err := f.DirectoryAt(number)
		if err != nil {
			return err
		}
		if err := f.checkDirectory(&r, &d, prefix, progress); err != nil {
			return err
		}
	}
	return nil
}

// checkDirectory reads the rows of d.
func (f *File) checkDirectory(r *Reader, d *Dir, prefix string, progress func(uint64) error) error {
	var row Row
	var last []byte
	var inside Totals
	for n := d.First; n < d.End(); n++ {
		if n%blockRows == 0 && progress != nil {
			if err := progress(n); err != nil {
				return err
			}
		}
		if err := r.Row(&row, n); err != nil {
			return err
		}
		if n > d.First && bytes.Compare(last, row.Item) >= 0 {
			return f.damaged(0, fmt.Sprintf("in directory %q %q comes after %q", prefix, row.Item, last), nil)
		}
		last = append(last[:0], row.Item...)
		inside.Rows++
		inside.Bytes += uint64(row.Size)
		if row.Directory() {
			inside.Subdirectories++
			if _, ok, err := f.Directory(prefix + string(row.Item)); err != nil {
				return err
			} else if !ok {
				return f.damaged(0, fmt.Sprintf("directory %q is missing from the directory table", prefix+string(row.Item)), nil)
			}
		} else if !row.Marker() {
			inside.Files++
		}
	}
	inside.Problems = d.Inside.Problems
	if inside != d.Inside {
		return f.damaged(0, fmt.Sprintf("directory %q has %+v, and its table says %+v", prefix, inside, d.Inside), nil)
	}
	return nil
}
