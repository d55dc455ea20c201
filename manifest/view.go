package manifest

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pailfs/pailfs/oss"
)

// view is what one call may rely on: what is known of a directory and young
// enough, and what was told since the call began, which it may use even if it
// could not be kept. Live.mu must be held while it is used, for reading at least.
type view struct {
	live *Live
	// d is nil if nothing is known of the directory.
	d      *directory
	prefix string
	now    time.Time
	own    []*run
}

// find returns the run that covers item, or nil. fresh says that it was told
// since the call began.
func (v *view) find(item string) (r *run, fresh bool) {
	for _, r := range slices.Backward(v.own) {
		if r.covers(item) {
			return r, true
		}
	}
	if v.d == nil {
		return nil, false
	}
	if r = v.d.find(item, v.now.Add(-v.live.cfg.TTL)); r != nil {
		r.used.Store(v.now.UnixNano())
	}
	return r, false
}

// until returns how long what r tells may be repeated.
func (v *view) until(r *run) time.Time { return r.sent.Add(v.live.cfg.TTL) }

// absentUntil returns how long may be repeated that what r covers is not there,
// and whether that time is not over. A directory that is known as a whole tells
// what it does not hold for as long as what it does.
func (v *view) absentUntil(r *run, fresh bool) (time.Time, bool) {
	until := r.sent.Add(v.live.cfg.NegativeTTL)
	if v.d != nil && v.d.wholeUntil.After(v.now) {
		until = v.until(r)
	}
	return until, fresh || until.After(v.now)
}

// answer is what a view says to a lookup.
type answer struct {
	// want is the item that has to be asked for first; the rest is empty then. ok
	// says that nothing has to be.
	want string
	ok   bool

	found bool
	entry Entry
	until time.Time
}

// lookup says what is shown as name, which is how component is shown, beside a
// directory or not.
func (v *view) lookup(name, component string, beside bool) answer {
	// None of what is returned holds on to item, so that it needs no memory of its
	// own when it is short.
	item := component + "/"
	dirRun, dirFresh := v.find(item)
	isDir := false
	if dirRun != nil {
		_, isDir = dirRun.search(item)
	}
	if isDir && !beside {
		return answer{ok: true, found: true, until: v.until(dirRun), entry: v.directoryEntry(name, item)}
	}
	if dirRun != nil && !isDir && beside {
		return v.absent(item, dirRun, dirFresh)
	}
	fileRun, fileFresh := v.find(component)
	if fileRun == nil {
		return answer{want: component}
	}
	i, isFile := fileRun.search(component)
	if isFile {
		var space [64]byte
		r, etag := decodeRecord(fileRun.data[fileRun.offsets[i]:], space[:0])
		isFile = !r.marker()
		if isFile && dirRun != nil {
			until := earlier(v.until(fileRun), v.until(dirRun))
			return answer{ok: true, found: true, until: until, entry: v.objectEntry(name, &r, etag)}
		}
	}
	if dirRun == nil {
		return answer{want: strings.Clone(item)}
	}
	noFile := v.absent(component, fileRun, fileFresh)
	noDir := v.absent(item, dirRun, dirFresh)
	if !noFile.ok || (noDir.ok && noFile.until.Before(noDir.until)) || isDir {
		return noFile
	}
	return noDir
}

// absent says that a name is not there, on the word of r about item.
func (v *view) absent(item string, r *run, fresh bool) answer {
	until, ok := v.absentUntil(r, fresh)
	if !ok {
		return answer{want: strings.Clone(item)}
	}
	return answer{ok: true, until: until}
}

// directoryEntry returns the entry of a directory.
func (v *view) directoryEntry(name, item string) Entry {
	return Entry{Name: name, Kind: Directory, Object: oss.Object{Key: v.prefix + item}}
}

// objectEntry returns the entry of an object whose ETag is etag. Key and ETag
// share one allocation.
func (v *view) objectEntry(name string, r *record, etag []byte) Entry {
	var b strings.Builder
	b.Grow(len(v.prefix) + len(r.item) + len(etag))
	b.WriteString(v.prefix)
	b.WriteString(r.item)
	b.Write(etag)
	s := b.String()
	n := len(s) - len(etag)
	return Entry{Name: name, Kind: kindOf(r), Object: oss.Object{Key: s[:n], ETag: s[n:], Size: r.size, ModTime: r.modTime}}
}

func kindOf(r *record) Kind {
	if r.symlink {
		return Symlink
	}
	return File
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// position is a place in a directory, between two of its entries.
type position struct {
	// from is the smallest item that may come next, when reading begins and
	// wherever another run is needed.
	from string
	// item is the one before, "" at the beginning.
	item string
	// shown are the lengths of those leading parts of item that were shown as
	// objects under their own name and whose directory, if one comes into being,
	// is still ahead. It must not be shown under the same name in this pass.
	shown []int
}

// parseCursor returns the position that a cursor means. A cursor is an item, a
// colon, and the lengths in position.shown separated by commas.
func parseCursor(cursor string) (p position, ok bool) {
	if cursor == "" {
		return position{}, true
	}
	i := strings.LastIndexByte(cursor, ':')
	if i < 0 {
		return position{}, false
	}
	p.item, p.from = cursor[:i], afterItem(cursor[:i])
	if list := cursor[i+1:]; list != "" {
		for field := range strings.SplitSeq(list, ",") {
			n, err := strconv.Atoi(field)
			if err != nil || n < 0 || n > len(p.item) {
				return position{}, false
			}
			p.shown = append(p.shown, n)
		}
	}
	return p, true
}

// clone returns a position that can be moved without moving p.
func (p position) clone() position {
	p.shown = slices.Clone(p.shown)
	return p
}

// pass moves the position past item.
func (p *position) pass(item string) {
	// Drop those whose directory would have come before item. Each is a leading
	// part of the next, so that the last one that stays keeps all before it.
	for n := len(p.shown); n > 0; n-- {
		if l := p.shown[n-1]; l < len(item) && item[l] < '/' && p.item[:l] == item[:l] {
			break
		}
		p.shown = p.shown[:n-1]
	}
	p.item = item
}

// collides reports whether the directory item has the name of an object that was
// shown in this pass.
func (p *position) collides(item string) bool {
	l := len(item) - 1
	return slices.Contains(p.shown, l) && p.item[:l] == item[:l]
}

// listing is what a view says to a reader of the directory.
type listing struct {
	entries []Entry
	// until is how long all of this may be repeated.
	until time.Time
	// end says that nothing follows the entries.
	end bool
	// want is the item that has to be asked for before more can be said, if not
	// end. If it is because nobody knows whether the object before it is beside a
	// directory, probe is the item that would tell.
	want, probe string
	// ahead is the item that will be asked for next, if isAhead.
	ahead   string
	isAhead bool
	// inhabited says that the directory is known to hold some key, or that the
	// reader is not at its beginning and does not care.
	inhabited bool
}

// enough reports whether l answers a reader of the directory.
func (v *view) enough(l *listing) bool {
	if len(l.entries) > 0 {
		return true
	}
	return l.end && (!v.uninhabited(l) || len(v.own) > 0 || v.uninhabitedUntil(l).After(v.now))
}

// uninhabited reports whether l says that no key is in the directory.
func (v *view) uninhabited(l *listing) bool { return l.end && len(l.entries) == 0 && !l.inhabited }

// uninhabitedUntil returns how long that may be repeated.
func (v *view) uninhabitedUntil(l *listing) time.Time {
	return l.until.Add(v.live.cfg.NegativeTTL - v.live.cfg.TTL)
}

// read says what follows p, up to limit entries.
func (v *view) read(p position, limit int) listing {
	l := listing{inhabited: p.from != ""}
	for {
		r, _ := v.find(p.from)
		if r == nil {
			l.want = p.from
			return l
		}
		if l.until.IsZero() || v.until(r).Before(l.until) {
			l.until = v.until(r)
		}
		l.inhabited = l.inhabited || r.inhabited
		first, _ := r.search(p.from)
		for i := first; i < r.len(); i++ {
			if len(l.entries) == limit {
				v.lookAhead(&l, r)
				return l
			}
			if !v.readOne(&l, &p, r, i) {
				v.lookAhead(&l, r)
				return l
			}
		}
		if r.toEnd {
			l.end = true
			return l
		}
		p.from = r.hi
		if len(l.entries) == limit {
			v.lookAhead(&l, r)
			return l
		}
	}
}

// readOne appends the i-th item of r to l, if it is shown, and moves p past it.
// It returns false if more has to be known first.
func (v *view) readOne(l *listing, p *position, r *run, i int) bool {
	encoded := r.data[r.offsets[i]:]
	item, _ := decodeItem(encoded)
	if isDirectory(item) {
		name := nameOf(item[:len(item)-1], false)
		collides := p.collides(item)
		p.pass(item)
		if !collides {
			l.entries = append(l.entries, v.listedEntry(name, p, &record{item: item}, nil))
		}
		return true
	}
	var space [64]byte
	rec, etag := decodeRecord(encoded, space[:0])
	if rec.marker() {
		p.pass(item)
		return true
	}
	beside := item + "/"
	dirRun, _ := v.find(beside)
	if dirRun == nil {
		// A copy, so that beside itself needs no memory of its own.
		l.want, l.probe = v.edge(r), strings.Clone(beside)
		return false
	}
	_, isBeside := dirRun.search(beside)
	name := nameOf(item, isBeside)
	p.pass(item)
	if isBeside {
		v.live.problems.add(v.prefix+item, reasonFor(item, name, 0))
		if len(name) > maxName {
			return true
		}
	} else {
		p.shown = append(p.shown, len(item))
	}
	l.entries = append(l.entries, v.listedEntry(name, p, &rec, etag))
	return true
}

// edge returns where the knowledge that goes on from r ends. It must end.
func (v *view) edge(r *run) string {
	for {
		next, _ := v.find(r.hi)
		if next == nil {
			return r.hi
		}
		r = next
	}
}

// lookAhead notes what a reader who is in r will want next, if it is not known.
func (v *view) lookAhead(l *listing, r *run) {
	if r.toEnd {
		return
	}
	if next, _ := v.find(r.hi); next != nil || (v.d != nil && v.d.flights[r.hi] != nil) {
		return
	}
	l.ahead, l.isAhead = r.hi, true
}

// listedEntry returns the entry of an item with the cursor p. The cursor has its
// own allocation: some keep it alone, for every entry of a large directory.
func (v *view) listedEntry(name string, p *position, r *record, etag []byte) Entry {
	var e Entry
	if isDirectory(r.item) {
		e = v.directoryEntry(name, r.item)
	} else {
		e = v.objectEntry(name, r, etag)
	}
	// The name that came in may be part of the run's memory.
	if component := strings.TrimSuffix(e.Object.Key[len(v.prefix):], "/"); component == name {
		e.Name = component
	}
	var space [64]byte
	cursor := append(append(space[:0], r.item...), ':')
	for i, n := range p.shown {
		if i > 0 {
			cursor = append(cursor, ',')
		}
		cursor = strconv.AppendInt(cursor, int64(n), 10)
	}
	e.Cursor = string(cursor)
	return e
}
