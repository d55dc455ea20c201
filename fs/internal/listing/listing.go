package listing

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/pailfs/pailfs/fs/internal/names"
	"github.com/pailfs/pailfs/fs/internal/seeks"
	"github.com/pailfs/pailfs/manifest"
)

// pageEntries is how many entries are asked of the tree at once.
const pageEntries = 1024

// SoughtPage is how many times as many entries are asked of the tree as a reader gets that
// came by seekdir(3): such readers often go on to a position nearby.
const SoughtPage = 4

// An offset in a directory is the number of a listing and a position in it: 0 is
// the start, 1 is after ".", 2 after "..", and 2+i after the i-th entry. The
// kernel keeps offsets beside its cached entries and hands them to any open
// directory, so they must mean the same to all of them.
const (
	positionBits = 40
	DotEntries   = 2
	lastNumber   = 1<<(63-positionBits) - 1

	// oldListings is how many listings before the last are kept for readers who may
	// have their offsets from the kernel.
	oldListings = 4
)

// PackOffset returns the offset of a position in the listing with a number.
func PackOffset(number uint64, position int) uint64 {
	if position == 0 {
		return 0
	}
	return number<<positionBits | uint64(position)
}

func unpackOffset(off uint64) (number uint64, position int) {
	return off >> positionBits, int(off & (1<<positionBits - 1))
}

// Listing numbers the entries of a directory as they were seen from its start,
// so that a position can be found again while names come and go.
type Listing struct {
	// Number is in the offsets that lead here.
	Number uint64
	// open counts the open directories that use the listing; guarded by
	// Directory.mu.
	open int
	// touches is that of the directory when the listing was begun.
	touches uint64
	mu      struct {
		sync.Mutex
		// cursors[i] continues after the i-th entry.
		cursors []string
		// names is a sum of the names, as many as are summed.
		names  uint64
		summed int
		// expires is when the tree may say something else; zero means never, or
		// that nothing has been read yet.
		expires time.Time
	}
}

// expired reports whether the listing may not be shown to a new reader.
func (l *Listing) expired(now time.Time) bool {
	t := l.Expiry()
	return !t.IsZero() && !now.Before(t)
}

// record notes the entries that follow position in the tree's answer. It reports
// whether they continue what was seen before; if not, the directory has changed
// and the numbers would lie.
func (l *Listing) record(position int, entries []names.Entry, valid manifest.Validity) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	first := position - DotEntries
	for i, e := range entries {
		switch at := first + i; {
		case at == len(l.mu.cursors):
			l.mu.cursors = append(l.mu.cursors, e.Cursor)
			if l.mu.summed == at {
				l.mu.summed++
				l.mu.names += xxhash.Sum64String(e.Name)
			}
		case at > len(l.mu.cursors) || l.mu.cursors[at] != e.Cursor:
			return false
		}
	}
	if t := time.Time(valid); !t.IsZero() && (l.mu.expires.IsZero() || t.Before(l.mu.expires)) {
		l.mu.expires = t
	}
	return true
}

// sum returns what stands for all names, if the listing has them from the start to the end,
// which was reached.
func (l *Listing) sum() (names uint64, whole bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.names, l.mu.summed == len(l.mu.cursors)
}

// expire makes the listing expire at t if it would later.
func (l *Listing) expire(t time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.expires.IsZero() || t.Before(l.mu.expires) {
		l.mu.expires = t
	}
}

// Expiry returns until when the listing may be shown, zero for ever.
func (l *Listing) Expiry() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.expires
}

// cursor returns the cursor that continues at position, if it is known, and else
// the last known position before it.
func (l *Listing) cursor(position int) (cursor string, at int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := min(position-DotEntries, len(l.mu.cursors))
	if n <= 0 {
		return "", DotEntries
	}
	return l.mu.cursors[n-1], n + DotEntries
}

// Length returns how many cursors are known.
func (l *Listing) Length() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.mu.cursors)
}

// upTo returns a copy of the cursors before position.
func (l *Listing) upTo(position int) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.mu.cursors[:min(position-DotEntries, len(l.mu.cursors))])
}

// Directory is the part of an inode that only directories have.
type Directory struct {
	// Path is where the directory is; a rename changes it.
	Path atomic.Pointer[string]
	// Told says that the kernel may hold names of the directory, or the absence of
	// some. It is set before the tree is asked.
	Told atomic.Bool
	// Shown says that the kernel may hold the times of the directory. It is set before they
	// are looked at.
	Shown atomic.Bool
	// renewals counts the generations of names in which the directory changed.
	renewals atomic.Uint64
	// touches counts the names that were changed here.
	touches atomic.Uint64
	// Ends tells readers apart where nobody opens the directory here.
	Ends seeks.Ends
	mu   struct {
		sync.Mutex
		number uint64
		// seen is what was listed last, whole: the number of the listing, its names, and
		// touches; without a number nothing was.
		seen    struct{ number, names, touches uint64 }
		current *Listing
		// others are listings that an open directory still uses, or may come back to.
		others map[uint64]*Listing
		// changed says that what the kernel has cached is a mixture.
		changed bool
		open    int
		timer   *time.Timer
	}
}

// New returns the directory at path, of which nothing was read.
func New(path string) *Directory {
	d := &Directory{}
	d.Path.Store(&path)
	return d
}

// Enter returns the listing for a reader at the start of the directory, and
// whether what the kernel has cached belongs to it.
func (d *Directory) Enter(now time.Time) (l *Listing, known bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	known = !d.mu.changed
	d.mu.changed = false
	if d.mu.current == nil || d.mu.current.expired(now) {
		d.replaceLocked(d.nextLocked(nil))
		known = false
	}
	d.mu.current.open++
	return d.mu.current, known
}

// Renew makes what was read before go to no new reader: the names have changed.
func (d *Directory) Renew() {
	d.renewals.Add(1)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mu.changed = true
	if d.mu.current != nil {
		d.mu.current.expire(time.Now())
	}
}

// Tell notes that the kernel is about to learn of names.
func (d *Directory) Tell() {
	if !d.Told.Load() {
		d.Told.Store(true)
	}
}

// Show notes that the kernel is about to learn of the times.
func (d *Directory) Show() {
	if !d.Shown.Load() {
		d.Shown.Store(true)
	}
}

// Leave says that one reader of l has gone. The listing of new readers stays, see
// Cursors.
func (d *Directory) Leave(l *Listing) {
	d.mu.Lock()
	defer d.mu.Unlock()
	l.open--
	d.pruneLocked()
}

// pruneLocked drops listings that no reader uses, but for the last few while a
// directory is open: its reader may have met their offsets in the kernel's cache.
func (d *Directory) pruneLocked() {
	for number, l := range d.mu.others {
		if l.open == 0 && (d.mu.open == 0 || d.mu.number-number > oldListings) {
			delete(d.mu.others, number)
		}
	}
}

// fork returns a new listing that agrees with l before position, for the reader
// that met a change there. It is what new readers get, and the caller's already.
func (d *Directory) fork(l *Listing, position int) *Listing {
	cursors := l.upTo(position)
	d.mu.Lock()
	fork := d.nextLocked(cursors)
	fork.open++
	d.replaceLocked(fork)
	d.mu.changed = true
	d.mu.Unlock()
	d.Leave(l)
	return fork
}

// find returns the listing with a number, for a reader that comes with an offset
// of another's.
func (d *Directory) find(number uint64) (*Listing, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	l, ok := d.mu.others[number]
	if d.mu.current != nil && d.mu.current.Number == number {
		l, ok = d.mu.current, true
	}
	if ok {
		l.open++
	}
	return l, ok
}

func (d *Directory) nextLocked(cursors []string) *Listing {
	d.mu.number = d.mu.number%lastNumber + 1
	l := &Listing{Number: d.mu.number, touches: d.touches.Load()}
	l.mu.cursors = cursors
	return l
}

func (d *Directory) replaceLocked(l *Listing) {
	if old := d.mu.current; old != nil && (old.open > 0 || d.mu.open > 0) {
		if d.mu.others == nil {
			d.mu.others = make(map[uint64]*Listing)
		}
		d.mu.others[old.Number] = old
	}
	d.mu.current = l
	d.pruneLocked()
}

// Touch says that a name was changed here: whoever begins to read gets a new
// listing. What the kernel has cached it has dropped by itself.
func (d *Directory) Touch() {
	d.touches.Add(1)
	d.mu.Lock()
	current := d.mu.current
	d.mu.Unlock()
	if current == nil {
		return
	}
	current.mu.Lock()
	defer current.mu.Unlock()
	current.mu.expires = time.Unix(1, 0)
}

// changedElsewhere reports whether a listing that has come to its end has other names than
// the one before, which nobody has changed here.
func (d *Directory) changedElsewhere(l *Listing) bool {
	names, whole := l.sum()
	if !whole || d.touches.Load() != l.touches {
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	before := d.mu.seen
	if l.Number <= before.number {
		return false
	}
	d.mu.seen.number, d.mu.seen.names, d.mu.seen.touches = l.Number, names, l.touches
	return before.number > 0 && before.touches == l.touches && before.names != names
}

// Opened counts one more open directory.
func (d *Directory) Opened() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mu.open++
}

// Closed counts one less, and stops the timer with the last.
func (d *Directory) Closed() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mu.open--
	if d.mu.open > 0 {
		return
	}
	d.pruneLocked()
	if d.mu.timer != nil {
		d.mu.timer.Stop()
		d.mu.timer = nil
	}
}

// At makes do run when the listing that readers see expires, if a directory is
// open then: the kernel would serve rewinddir(3) from its cache for ever.
func (d *Directory) At(expires time.Time, do func()) {
	if expires.IsZero() {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.mu.timer != nil || d.mu.open == 0 {
		return
	}
	d.mu.timer = time.AfterFunc(time.Until(expires), func() {
		d.mu.Lock()
		d.mu.timer = nil
		d.mu.Unlock()
		do()
	})
}

// Reader reads a directory entry by entry. One request at a time uses it.
type Reader struct {
	Tree names.View
	Dir  *Directory
	List *Listing
	// Position is that of the next entry; pending are the entries from there.
	Position int
	Pending  []names.Entry
	Valid    manifest.Validity
	end      bool
	// completing asks for attributes while an answer is made that has them; asked is the
	// position before which it has.
	completing *Completing
	asked      int
	// Changed says that names were met, or missed, that nobody has made or removed here.
	Changed bool
	// renewals is that of the directory when pending was read.
	renewals uint64
	// page is what was read of the tree last, from position first on: pending is its end.
	page  []names.Entry
	first int
	// sought is how many entries the next answer has to a reader that came by seekdir(3),
	// 0 for as many as fit.
	sought int
}

// Seek moves to an offset that the kernel has from us.
func (r *Reader) Seek(off uint64, now time.Time) {
	number, position := unpackOffset(off)
	if position == r.Position {
		if position == 0 && !r.List.expired(now) || position > 0 && number == r.List.Number {
			return
		}
	}
	r.Position, r.Pending, r.end, r.sought, r.asked = position, nil, false, seeks.First, 0
	switch {
	case position == 0:
		r.sought = 0
		l, _ := r.Dir.Enter(now)
		r.swap(l)
	case number != r.List.Number:
		// Not finding it means that the directory was read anew several times since.
		// The same position of what is read now is the best guess there is.
		if l, ok := r.Dir.find(number); ok {
			r.swap(l)
		}
	case position >= r.first && position-r.first < len(r.page) && !r.List.expired(now):
		r.Pending = r.page[position-r.first:]
	}
}

func (r *Reader) swap(l *Listing) {
	r.Dir.Leave(r.List)
	r.List, r.page = l, nil
}

// Enough reports whether an answer of so many entries is as long as it should be.
func (r *Reader) Enough(given int) bool { return r.sought > 0 && given >= r.sought }

// Answered notes that the reader got an answer: if it goes on from there it wants more.
func (r *Reader) Answered() { r.sought = seeks.Next(r.sought) }

// ask returns how many entries to ask of the tree that follow position at.
func (r *Reader) ask(at int) int {
	if r.sought == 0 || at < r.Position {
		return pageEntries
	}
	return min(r.sought*SoughtPage, pageEntries)
}

// Fill reads on if no entry is pending. There is none afterwards at the end. At
// the start, "." and ".." come before what is pending.
func (r *Reader) Fill(ctx context.Context) error {
	if n := r.Dir.renewals.Load(); n != r.renewals {
		// What was read ahead must not be told after the kernel was made to forget it.
		r.renewals, r.Pending, r.page, r.end = n, nil, nil, false
	}
	for len(r.Pending) == 0 && !r.end {
		cursor, at := r.List.cursor(r.Position)
		dir, limit := *r.Dir.Path.Load(), r.ask(at)
		entries, valid, err := r.Tree.ReadDir(ctx, dir, cursor, limit)
		if err == nil && r.lacks(dir, at, entries) {
			// It may have been renamed meanwhile, and another one be where it was.
			r.renewals = r.Dir.renewals.Load()
			entries, valid, err = r.Tree.ReadDir(ctx, *r.Dir.Path.Load(), cursor, limit)
		}
		if err != nil {
			return err
		}
		if !r.List.record(at, entries, valid) {
			r.List = r.Dir.fork(r.List, at)
			r.List.record(at, entries, valid)
		}
		r.page, r.first = entries, at
		r.Valid = valid
		if r.end = len(entries) == 0; r.end && r.Dir.changedElsewhere(r.List) {
			r.Changed = true
		}
		if skip := r.Position - at; skip < len(entries) {
			r.Pending = entries[max(skip, 0):]
		}
	}
	return nil
}

// Complete makes what is read until the function is called that it returns have attributes, as
// far as c learns of them. What was read before is read again.
func (r *Reader) Complete(c *Completing) (done func()) {
	if c == nil {
		return func() {}
	}
	r.completing = c
	if r.lacks(*r.Dir.Path.Load(), r.Position, r.Pending) || len(r.Pending) > 0 && lacking(&r.Pending[0]) {
		r.Pending, r.page, r.end = nil, nil, false
	}
	return func() {
		r.completing = nil
		c.done()
	}
}

// lacks asks for the attributes of entries from position at on that were not asked for yet, and
// reports whether to read them again. Answers are short where the buffer is: what has no answer
// holds up one of them, not each that follows.
func (r *Reader) lacks(dir string, at int, entries []names.Entry) bool {
	from := min(max(r.asked-at, 0), len(entries))
	if r.completing == nil || from == len(entries) {
		return false
	}
	r.asked = at + len(entries)
	return r.completing.page(dir, entries[from:])
}

// Next takes the pending entry.
func (r *Reader) Next() {
	if r.Position >= DotEntries {
		r.Pending = r.Pending[1:]
	}
	r.Position++
}
