package manifest

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"iter"
	"slices"
	"strconv"
	"strings"

	"github.com/pailfs/pailfs/manifest/snapfile"
	"github.com/pailfs/pailfs/oss"
)

// maxBatch is how many entries one ReadDir returns at most.
const maxBatch = 4096

// ReadDir implements [Tree]. The order is that of the keys, and cursors are those
// of [Live], so that they stay valid in another generation and in a live tree: what
// is in both comes once, and a name never comes twice.
func (s *Snapshot) ReadDir(_ context.Context, dir, after string, limit int) ([]Entry, Validity, error) {
	return s.readDir(dir, after, limit, false)
}

// ReadDirNames is as ReadDir but reads names only: of files and symlinks an
// entry has Name, Kind and Cursor.
func (s *Snapshot) ReadDirNames(_ context.Context, dir, after string, limit int) ([]Entry, Validity, error) {
	return s.readDir(dir, after, limit, true)
}

func (s *Snapshot) readDir(dir, after string, limit int, namesOnly bool) ([]Entry, Validity, error) {
	prefix, shown := prefixOf(s.cfg.Prefix, dir)
	if !shown {
		return nil, Validity{}, fs.ErrNotExist
	}
	p, ok := parseCursor(after)
	if !ok || limit <= 0 {
		return nil, Validity{}, fmt.Errorf("read directory %q after %q, %d entries: %w", dir, after, limit, fs.ErrInvalid)
	}
	d, ok, err := s.directory(prefix)
	if err != nil {
		return nil, Validity{}, err
	}
	if !ok {
		if prefix == s.cfg.Prefix {
			return nil, Validity{}, nil
		}
		return nil, Validity{}, fs.ErrNotExist
	}
	pass := dirPass{s: s, prefix: prefix, d: &d, rows: s.file.Reader(), at: p, namesOnly: namesOnly}
	row := d.First
	if p.from != "" {
		if row, _, err = pass.rows.Search(&d, row, p.from); err != nil {
			return nil, Validity{}, err
		}
	}
	limit = min(limit, maxBatch)
	pass.entries = make([]Entry, 0, min(uint64(limit), d.End()-row))
	for ; row < d.End() && len(pass.entries) < limit; row++ {
		if err := pass.read(row); err != nil {
			if len(pass.entries) > 0 {
				break // they are good, and the next call begins with the error
			}
			return nil, Validity{}, err
		}
	}
	return pass.entries, Validity{}, nil
}

// ReadDirAt calls yield with the entries of dir, in the order of ReadDir, until it
// returns false. Entries are numbered from 0, with gaps; the first is that at
// position, or the next one. Positions are those of this snapshot alone, so that
// nobody has to remember anything between calls; entries have no Cursor. Name and
// Object share one allocation. namesOnly leaves out the Object of what is no directory.
// The entry is yield's only until it returns; what it points to may be kept.
func (s *Snapshot) ReadDirAt(_ context.Context, dir string, position int64, namesOnly bool, yield func(position int64, e *Entry) bool) error {
	prefix, shown := prefixOf(s.cfg.Prefix, dir)
	if !shown {
		return fs.ErrNotExist
	}
	if position < 0 {
		return fmt.Errorf("read directory %q at %d: %w", dir, position, fs.ErrInvalid)
	}
	d, ok, err := s.directory(prefix)
	if err != nil {
		return err
	}
	if !ok {
		if prefix == s.cfg.Prefix {
			return nil
		}
		return fs.ErrNotExist
	}
	pass := dirPass{s: s, prefix: prefix, d: &d, rows: s.file.Reader(), namesOnly: namesOnly}
	var e Entry // one for all of them: yield makes it escape
	for ; uint64(position) < d.Inside.Rows; position++ {
		row := d.First + uint64(position)
		item, kind, err := pass.look(row)
		if err != nil {
			return err
		}
		if kind == notShown {
			continue
		}
		if e, err = pass.entry(row, item, kind); err != nil {
			return err
		}
		if namesOnly && kind == asIs {
			e.Name = string(item)
		}
		if !yield(position, &e) {
			return nil
		}
	}
	return nil
}

// dirPass is one call that reads a directory.
type dirPass struct {
	s         *Snapshot
	prefix    string
	d         *snapfile.Dir
	rows      snapfile.Reader
	at        position
	namesOnly bool
	entries   []Entry
}

// look is what a row looks like.
type look uint8

const (
	notShown look = iota
	// asIs is an object whose name is its item.
	asIs
	// escaped is an object whose item cannot be a name.
	escaped
	// besideDir is an object beside a directory of its name.
	besideDir
	// asDir is a directory.
	asDir
)

// look returns the item of a row and how it is shown. The item is part of what is
// cached.
func (p *dirPass) look(row uint64) ([]byte, look, error) {
	item, _, err := p.rows.Item(row)
	if err != nil {
		return nil, notShown, err
	}
	kind, component := asIs, item
	switch {
	case len(item) == 0:
		var r snapfile.Row
		if err := p.rows.Row(&r, row); err != nil {
			return nil, notShown, err
		}
		if r.Marker() {
			return item, notShown, nil
		}
	case item[len(item)-1] == '/':
		kind, component = asDir, item[:len(item)-1]
		if p.s.hidden(p.prefix, item) {
			return item, notShown, nil
		}
	}
	if len(p.prefix)+len(item) > maxKey {
		return item, notShown, nil
	}
	if !clearlyPlain(component) {
		name := nameOf(string(component), false)
		if len(name) > maxName {
			return item, notShown, nil
		}
		if kind == asIs && name != string(component) {
			kind = escaped
		}
	}
	if kind != asDir && p.d.Inside.Subdirectories > 0 {
		beside, err := p.beside(row, item)
		if err != nil {
			return nil, notShown, err
		}
		if beside {
			kind = besideDir
			if len(nameOf(string(item), true)) > maxName {
				kind = notShown
			}
		}
	}
	return item, kind, nil
}

// entry returns the entry of a row that is shown, without a cursor.
func (p *dirPass) entry(row uint64, item []byte, kind look) (Entry, error) {
	if kind == asDir {
		key := p.prefix + string(item)
		name := key[len(p.prefix) : len(key)-1]
		if !clearlyPlain(item[:len(item)-1]) {
			name = nameOf(name, false)
		}
		if p.namesOnly {
			return Entry{Name: name, Kind: Directory, Object: oss.Object{Key: key}}, nil
		}
		return p.s.directoryEntry(name, key)
	}
	var e Entry
	if p.namesOnly {
		var err error
		if e.Kind, err = p.kindOf(row); err != nil {
			return e, err
		}
		if kind != asIs {
			e.Name = nameOf(string(item), kind == besideDir)
		}
		return e, nil // the name of most is part of the cursor
	}
	var r snapfile.Row
	if err := p.rows.Row(&r, row); err != nil {
		return e, err
	}
	e = objectEntryOf("", p.prefix, &r)
	if e.Name = e.Object.Key[len(p.prefix):]; kind != asIs {
		e.Name = nameOf(e.Name, kind == besideDir)
	}
	return e, nil
}

// kindOf returns what an object is shown as: a link of ossfs 1 is told from a file by its
// attributes, which are read of those alone that are small enough.
func (p *dirPass) kindOf(row uint64) (Kind, error) {
	_, symlink, err := p.rows.Item(row)
	if err == nil && !symlink {
		var size int64
		var attr *Attr
		size, attr, err = p.rows.AttrOfSmall(row, mostLink)
		symlink = linkFile(attr, size)
	}
	if err != nil || !symlink {
		return File, err
	}
	return Symlink, nil
}

// read appends the entry of a row with its cursor, if it is shown.
func (p *dirPass) read(row uint64) error {
	item, kind, err := p.look(row)
	if err != nil || kind == notShown {
		return err
	}
	// One allocation holds the item and the cursor. What is shown under its own name
	// is mostly beside nothing that was.
	var space [300]byte
	b := append(append(space[:0], item...), ':')
	if kind == asIs || kind == escaped {
		b = strconv.AppendInt(b, int64(len(item)), 10)
	}
	cursor := string(b)
	own := cursor[:len(item)]
	collides := kind == asDir && p.at.collides(own)
	e, err := p.entry(row, item, kind)
	if err != nil {
		return err
	}
	p.at.pass(own)
	if collides {
		return nil
	}
	usual := 0
	if kind == asIs || kind == escaped {
		p.at.shown = append(p.at.shown, len(item))
		usual = 1
	}
	if len(p.at.shown) != usual {
		cursor = p.at.cursor()
	}
	e.Cursor = cursor
	if p.namesOnly && kind == asIs {
		e.Name = own
	}
	p.entries = append(p.entries, e)
	return nil
}

// nearRows is how many rows are looked at for a directory of an object's name
// before it is searched for.
const nearRows = 8

// beside reports whether the object item of the row is beside a directory of its
// name that is shown.
func (p *dirPass) beside(row uint64, item []byte) (bool, error) {
	if len(p.prefix)+len(item)+1 > maxKey || p.s.hidden(p.prefix, append(slices.Clip(item), '/')) {
		return false, nil
	}
	// Another reader, so that a row in the next block does not cost this one its
	// place.
	ahead := p.rows
	for next := row + 1; next <= row+nearRows; next++ {
		if next >= p.d.End() {
			return false, nil
		}
		other, _, err := ahead.Item(next)
		if err != nil {
			return false, err
		}
		switch {
		case !bytes.HasPrefix(other, item) || other[len(item)] > '/':
			return false, nil
		case other[len(item)] == '/':
			return true, nil
		}
	}
	_, found, err := ahead.Search(p.d, row+1, string(item)+"/")
	return found, err
}

// cursor returns the cursor that means p.
func (p *position) cursor() string {
	var space [64]byte
	b := append(append(space[:0], p.item...), ':')
	for i, n := range p.shown {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, int64(n), 10)
	}
	return string(b)
}

// Records returns the records of all keys that begin with prefix, in the order of
// keys, which is that of listings. An error ends them.
func (s *Snapshot) Records(ctx context.Context, prefix string) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		if err := s.walk(ctx, prefix, func(r Record) bool { return yield(r, nil) }); err != nil {
			yield(Record{}, err)
		}
	}
}

// walkFrame is a directory that is being walked.
type walkFrame struct {
	prefix string
	d      snapfile.Dir
	row    uint64
	rows   snapfile.Reader
}

// walk calls f with the records of all keys that begin with prefix, until it
// returns false.
func (s *Snapshot) walk(ctx context.Context, prefix string, f func(Record) bool) error {
	if strings.HasPrefix(s.root, prefix) {
		prefix = s.root
	}
	if !strings.HasPrefix(prefix, s.root) {
		return nil
	}
	slash := strings.LastIndexByte(prefix, '/') + 1
	first, begins := prefix[:slash], prefix[slash:]
	var stack []walkFrame
	enter := func(prefix, from string) error {
		d, ok, err := s.directory(prefix)
		if err != nil || !ok {
			return err
		}
		frame := walkFrame{prefix: prefix, d: d, row: d.First, rows: s.file.Reader()}
		if from != "" {
			if frame.row, _, err = frame.rows.Search(&d, d.First, from); err != nil {
				return err
			}
		}
		stack = append(stack, frame)
		return nil
	}
	if err := enter(first, begins); err != nil {
		return err
	}
	var row snapfile.Row
	for n := 0; len(stack) > 0; n++ {
		if n%1024 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		top := &stack[len(stack)-1]
		if top.row >= top.d.End() {
			stack = stack[:len(stack)-1]
			continue
		}
		if err := top.rows.Row(&row, top.row); err != nil {
			return err
		}
		top.row++
		if len(stack) == 1 && !bytes.HasPrefix(row.Item, []byte(begins)) {
			return nil
		}
		key := top.prefix + string(row.Item)
		if row.Directory() {
			if err := enter(key, ""); err != nil {
				return err
			}
			continue
		}
		if !f(recordOfRow(key, &row)) {
			return nil
		}
	}
	return nil
}
