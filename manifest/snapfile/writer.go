package snapfile

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/cespare/xxhash/v2"
)

// Writer writes a file, front to back. After an error it cannot be used.
type Writer struct {
	w    io.Writer
	file uint64
	at   int64
	info Info

	packer *packer
	raw    []byte
	out    []byte
	column []uint64

	rows  rowBuffer
	index levels
	// separator is that of the block that rows begin.
	separator []byte

	dirs     dirBuffer
	dirIndex levels

	// The current directory, and the last row in it, if any.
	prefix   []byte
	last     []byte
	anyRow   bool
	inside   Totals
	finished bool
}

// levels is an index that is being written.
type levels struct {
	kind   kind
	page   pageBuffer
	blocks uint64
	root   root
}

// NewWriter returns a writer to w. What info says of numbers is worked out and may
// be zero.
func NewWriter(w io.Writer, info Info) (*Writer, error) {
	switch {
	case info.Root != "" && !strings.HasSuffix(info.Root, "/"):
		return nil, fmt.Errorf("root %q of a manifest does not end with a slash", info.Root)
	case len(info.Root) > MaxKey:
		return nil, fmt.Errorf("root %.40q... of a manifest has %d bytes, more than %d", info.Root, len(info.Root), MaxKey)
	case len(info.Properties) > maxProperties:
		return nil, fmt.Errorf("a manifest with %d properties, more than %d", len(info.Properties), maxProperties)
	}
	for name, value := range info.Properties {
		if len(name) > maxText || len(value) > maxText {
			return nil, fmt.Errorf("property %.40q of a manifest has more than %d bytes", name, maxText)
		}
	}
	if len(info.BuiltBy) > maxText || len(info.Source) > maxText {
		return nil, fmt.Errorf("builder or source of a manifest has more than %d bytes", maxText)
	}
	p, err := newPacker()
	if err != nil {
		return nil, err
	}
	out := &Writer{w: w, info: info, packer: p, index: levels{kind: kindRowPage}, dirIndex: levels{kind: kindDirPage}}
	out.info.Objects, out.info.Directories, out.info.Rows, out.info.Bytes = 0, 0, 0, 0
	out.info.Attrs, out.info.Problems, out.info.Examples = 0, 0, nil
	// The file's number tells parts of different files apart; what was written is a
	// function of what was given.
	out.file = xxhash.Sum64(info.append(nil))
	header := make([]byte, 0, headerSize)
	header = append(header, headerMagic...)
	header = binary.LittleEndian.AppendUint16(header, Version)
	header = binary.LittleEndian.AppendUint16(header, 0)
	header = binary.LittleEndian.AppendUint32(header, blockRows)
	header = binary.LittleEndian.AppendUint64(header, out.file)
	header = binary.LittleEndian.AppendUint32(header, 0)
	header = binary.LittleEndian.AppendUint32(header, checksumOf(header))
	if err := out.write(header); err != nil {
		return nil, err
	}
	// The root is always there.
	return out, out.begin("")
}

// Directory begins the directory prefix, which is relative to the root and ends
// with a slash. It must be greater than the one before, bytewise, and its parent
// must hold it.
func (w *Writer) Directory(prefix string) error {
	switch {
	case prefix == "" || !strings.HasSuffix(prefix, "/"):
		return fmt.Errorf("write manifest: %q is not the prefix of a directory", prefix)
	case string(w.prefix) >= prefix:
		return fmt.Errorf("write manifest: directory %q after %q", prefix, w.prefix)
	case len(w.info.Root)+len(prefix) > MaxKey:
		return fmt.Errorf("write manifest: directory %.40q... has %d bytes, more than %d", prefix, len(w.info.Root)+len(prefix), MaxKey)
	}
	if err := w.end(); err != nil {
		return err
	}
	return w.begin(prefix)
}

func (w *Writer) begin(prefix string) error {
	if len(w.dirs.in) == 0 {
		// What separates a block from the one before is as short as it can be.
		w.dirIndex.page.separators.add(separate(w.prefix, []byte(prefix)))
	}
	w.dirs.prefixes.add([]byte(prefix))
	w.prefix = append(w.prefix[:0], prefix...)
	w.last, w.anyRow, w.inside = w.last[:0], false, Totals{}
	w.info.Directories++
	return nil
}

// end ends the current directory.
func (w *Writer) end() error {
	w.dirs.in = append(w.dirs.in, w.inside)
	if len(w.dirs.in) == blockRows {
		return w.flushDirectories()
	}
	return nil
}

// separate returns the shortest string that is greater than before and not
// greater than first.
func separate(before, first []byte) []byte {
	return first[:min(shared(before, first)+1, len(first))]
}

// Row adds a row to the current directory, whose items must ascend. problem says
// that the row is counted among those that are not shown under their own name. w
// keeps nothing of r.
func (w *Writer) Row(r *Row, problem bool) error {
	if err := w.check(r); err != nil {
		return fmt.Errorf("write manifest: directory %q: %w", w.prefix, err)
	}
	if w.rows.len() == 0 {
		w.separator = w.separator[:0]
		if w.anyRow {
			w.separator = append(w.separator, separate(w.last, r.Item)...)
		}
	}
	w.rows.add(r)
	w.last, w.anyRow = append(w.last[:0], r.Item...), true
	w.inside.Rows++
	w.info.Rows++
	if r.Directory() {
		w.inside.Subdirectories++
	} else {
		w.info.Objects++
		w.info.Bytes += uint64(r.Size)
		if !r.Marker() {
			w.inside.Files++
		}
		w.inside.Bytes += uint64(r.Size)
		if r.Attr != nil {
			w.info.Attrs++
		}
	}
	if problem {
		w.inside.Problems++
		w.info.Problems++
	}
	if w.rows.len() == blockRows {
		return w.flushRows()
	}
	return nil
}

// Problem counts a row of the current directory among those that are not shown
// under their own name, though that was not known when it was added.
func (w *Writer) Problem() {
	w.inside.Problems++
	w.info.Problems++
}

// check reports why r cannot be held.
func (w *Writer) check(r *Row) error {
	slash := bytes.IndexByte(r.Item, '/')
	switch {
	case slash >= 0 && slash != len(r.Item)-1:
		return fmt.Errorf("%q is not one item", r.Item)
	case w.anyRow && bytes.Compare(w.last, r.Item) >= 0:
		return fmt.Errorf("item %q after %q", r.Item, w.last)
	case len(w.info.Root)+len(w.prefix)+len(r.Item) > MaxKey:
		return fmt.Errorf("item %.40q... makes a key of more than %d bytes", r.Item, MaxKey)
	case r.Size < 0 || w.info.Bytes+uint64(r.Size) > math.MaxInt64:
		return fmt.Errorf("item %q of %d bytes", r.Item, r.Size)
	case len(r.ETag.Text) > MaxText:
		return fmt.Errorf("item %q has an ETag of %d bytes, more than %d", r.Item, len(r.ETag.Text), MaxText)
	}
	if r.Attr != nil {
		if n := len(AppendAttr(nil, r.Attr)); n > MaxAttr {
			return fmt.Errorf("item %q has attributes of %d bytes, more than %d", r.Item, n, MaxAttr)
		}
	}
	return nil
}

// plainName is how many bytes a name may take, without what it shares with the one
// before, where names are not compressed: unpacking them is half the time of a lookup
// at random.
const plainName = 10

// flushRows writes the block of rows.
func (w *Writer) flushRows() error {
	p := place{offset: w.at}
	w.raw = w.rows.appendNames(w.raw[:0])
	w.out = w.packer.pack(w.out[:0], w.raw, plainName*w.rows.len())
	n, err := w.part(kindNames, w.index.blocks, w.out)
	if err != nil {
		return err
	}
	p.parts[0] = n
	w.out = w.rows.appendFixed(w.out[:0], w.column)
	if p.parts[1], err = w.part(kindFixed, w.index.blocks, w.out); err != nil {
		return err
	}
	if len(w.rows.extras) > 0 {
		w.out = w.packer.pack(w.out[:0], w.rows.extras, 0)
		if p.parts[2], err = w.part(kindExtras, w.index.blocks, w.out); err != nil {
			return err
		}
	}
	w.rows.reset()
	w.index.page.separators.add(w.separator)
	return w.addPlace(&w.index, p)
}

// flushDirectories writes the block of the directory table.
func (w *Writer) flushDirectories() error {
	p := place{offset: w.at}
	w.raw = w.dirs.append(w.raw[:0], w.column)
	w.out = w.packer.pack(w.out[:0], w.raw, 0)
	n, err := w.part(kindDirs, w.dirIndex.blocks, w.out)
	if err != nil {
		return err
	}
	p.parts[0] = n
	for _, t := range w.dirs.in {
		w.dirs.before = w.dirs.before.Add(t)
	}
	w.dirs.prefixes.reset()
	w.dirs.in = w.dirs.in[:0]
	return w.addPlace(&w.dirIndex, p)
}

// addPlace adds a block to an index.
func (w *Writer) addPlace(l *levels, p place) error {
	l.page.places = append(l.page.places, p)
	l.blocks++
	if len(l.page.places) == pageBlocks {
		return w.flushPage(l)
	}
	return nil
}

// flushPage writes the page of an index.
func (w *Writer) flushPage(l *levels) error {
	p := place{offset: w.at}
	w.out = l.page.append(w.out[:0])
	n, err := w.part(l.kind, uint64(len(l.root.places)), w.out)
	if err != nil {
		return err
	}
	p.parts[0] = n
	l.root.places = append(l.root.places, p)
	l.root.separators = append(l.root.separators, string(l.page.separators.at(0)))
	l.page.reset()
	return nil
}

// part writes a part and its checksum and returns how long they are.
func (w *Writer) part(k kind, number uint64, payload []byte) (uint32, error) {
	sum := checksum(w.file, k, number, payload)
	if err := w.write(payload); err != nil {
		return 0, err
	}
	return uint32(len(payload) + crcSize), w.write(binary.LittleEndian.AppendUint32(nil, sum))
}

func (w *Writer) write(b []byte) error {
	n, err := w.w.Write(b)
	w.at += int64(n)
	if err != nil {
		return fmt.Errorf("write manifest: %w", err)
	}
	return nil
}

// Finish writes what is left and the end of the file. examples are some of the
// rows that were problems.
func (w *Writer) Finish(examples []Example) (Info, error) {
	if w.finished {
		return Info{}, errors.New("write manifest: it is finished")
	}
	w.finished = true
	if len(examples) > maxExamples {
		return Info{}, fmt.Errorf("write manifest: %d examples, more than %d", len(examples), maxExamples)
	}
	w.info.Examples = examples
	if err := w.end(); err != nil {
		return Info{}, err
	}
	if len(w.dirs.in) > 0 {
		if err := w.flushDirectories(); err != nil {
			return Info{}, err
		}
	}
	if w.rows.len() > 0 {
		if err := w.flushRows(); err != nil {
			return Info{}, err
		}
	}
	for _, l := range []*levels{&w.index, &w.dirIndex} {
		if len(l.page.places) > 0 {
			if err := w.flushPage(l); err != nil {
				return Info{}, err
			}
		}
	}
	f := footer{info: w.info, rows: w.index.root, dirs: w.dirIndex.root}
	payload := f.append(nil)
	trailer := make([]byte, 0, trailerSize)
	trailer = binary.LittleEndian.AppendUint64(trailer, uint64(w.at)+uint64(len(payload))+trailerSize)
	trailer = binary.LittleEndian.AppendUint64(trailer, uint64(w.at))
	trailer = binary.LittleEndian.AppendUint32(trailer, uint32(len(payload)))
	trailer = binary.LittleEndian.AppendUint32(trailer, checksum(w.file, kindFooter, 0, payload))
	trailer = binary.LittleEndian.AppendUint64(trailer, w.file)
	trailer = append(trailer, trailerMagic...)
	trailer = binary.LittleEndian.AppendUint32(trailer, checksumOf(trailer))
	if err := w.write(payload); err != nil {
		return Info{}, err
	}
	return w.info, w.write(trailer)
}
