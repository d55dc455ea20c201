package writeback

import (
	"context"
	"encoding/hex"
	"errors"
	"io/fs"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/pailfs/pailfs/fs/writeback/internal/order"
	"github.com/pailfs/pailfs/fs/writeback/internal/state"
	"github.com/pailfs/pailfs/manifest"
	"github.com/pailfs/pailfs/oss"
)

// Entry is one name as the mount shows it.
type Entry struct {
	manifest.Entry
	// File is set if the name means a file that was changed here. Object is then its
	// content if that is an object, and else has a size and a time only.
	File *File
	// Told is what programs were told of the times of an object that was a file of the
	// space, as long as that is remembered.
	Told *Times
}

// nameValidity is how long an answer about a changed name may be repeated.
const nameValidity = 5 * time.Second

// Lookup returns what name means in dir. A name that does not exist is
// [fs.ErrNotExist]; the Validity says how long the answer may be repeated.
func (s *Space) Lookup(ctx context.Context, dir, base string) (Entry, manifest.Validity, error) {
	for {
		s.mu.Lock()
		e, known, err := s.entry(dir, base)
		forgets := s.mu.forgets
		empty := s.mu.made.until(dir)
		s.mu.Unlock()
		switch {
		case known:
			return e, manifest.Validity(time.Now().Add(nameValidity)), err
		case !empty.IsZero():
			return Entry{}, manifest.Validity(empty), fs.ErrNotExist
		}
		below, valid, err := s.base.Lookup(ctx, dir, base)
		s.mu.Lock()
		e, known, errKnown := s.entry(dir, base)
		same := forgets == s.mu.forgets
		if err == nil && s.mu.Keys[below.Object.Key] != nil {
			below, err = manifest.Entry{}, fs.ErrNotExist
			valid = manifest.Validity(time.Now())
		}
		told := s.told(below.Object)
		s.mu.Unlock()
		switch {
		case known:
			return e, manifest.Validity(time.Now().Add(nameValidity)), errKnown
		case same:
			return Entry{Entry: below, Told: told}, valid, err
		}
		// A name was forgotten meanwhile: what the base tree said may be older.
		if err := ctx.Err(); err != nil {
			return Entry{}, manifest.Validity{}, err
		}
	}
}

// entry returns what the space itself says of a name. s.mu is held.
func (s *Space) entry(dir, base string) (e Entry, known bool, err error) {
	n, ok := s.mu.Lookup(dir, base)
	switch {
	case !ok:
		return Entry{}, false, nil
	case n.Kind == state.NameGone:
		return Entry{}, true, fs.ErrNotExist
	}
	return s.entryOf(base, n), true, nil
}

// entryOf returns the entry of a name that is not gone. s.mu is held.
func (s *Space) entryOf(base string, n state.Name) Entry {
	e := Entry{Entry: manifest.Entry{Name: base, Kind: manifest.Directory, Object: oss.Object{Key: n.Key}, Cursor: cursorOf(n.Key)}}
	if n.Kind == state.NameDirectory {
		e.Attr = s.mu.Dirs[n.Key].Attr.Known()
		return e
	}
	f := s.mu.Files[n.File]
	e.File = s.file(n.File)
	e.Kind = manifest.File
	if f.Symlink {
		e.Kind = manifest.Symlink
	}
	e.Object = f.Object
	if f.Staged {
		e.Object = oss.Object{Key: n.Key, Size: max(f.Size, 0), ModTime: time.Unix(0, f.Mtime()).UTC()}
	}
	return e
}

// A cursor is a key in hexadecimal digits: the listing goes on after it. Behind a
// colon stands the cursor of the base tree that leads there, if there is one.
func cursorOf(key string) string { return hex.EncodeToString([]byte(key)) + ":" }

func parseCursor(cursor string) (key, below string, ok bool) {
	if cursor == "" {
		return "", "", true
	}
	digits, below, ok := strings.Cut(cursor, ":")
	b, err := hex.DecodeString(digits)
	return string(b), below, ok && err == nil
}

// ReadDir returns entries of dir in the order of keys, after the one whose Cursor
// is after; at least one unless the directory ends. No name comes twice and none
// that stays is left out, also while names are published. A directory that does
// not exist is [fs.ErrNotExist].
func (s *Space) ReadDir(ctx context.Context, dir, after string, limit int) ([]Entry, manifest.Validity, error) {
	key, below, ok := parseCursor(after)
	if !ok || limit <= 0 {
		return nil, manifest.Validity{}, syscall.EINVAL
	}
	for {
		s.mu.Lock()
		forgets, touched := s.mu.forgets, len(s.mu.Names[dir]) > 0
		s.mu.Unlock()
		page, err := s.basePage(ctx, dir, key, below, limit)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, manifest.Validity{}, err
		}
		s.mu.Lock()
		if forgets != s.mu.forgets {
			s.mu.Unlock()
			if err := ctx.Err(); err != nil {
				return nil, manifest.Validity{}, err
			}
			continue
		}
		touched = touched || len(s.mu.Names[dir]) > 0
		if len(page.entries) > 0 {
			delete(s.mu.made, dir) // what a listing has shown is there
		}
		merged := s.merge(dir, key, below, page, limit)
		known := err == nil || s.exists(dir)
		s.mu.Unlock()
		if !known {
			return nil, page.valid, err
		}
		if touched {
			// Whoever changes a name here drops what was listed before; what is published
			// meanwhile changes no name.
			if until := time.Now().Add(nameValidity); time.Time(page.valid).IsZero() || until.Before(time.Time(page.valid)) {
				page.valid = manifest.Validity(until)
			}
		}
		if len(merged) == 0 && !page.end {
			// Everything in it was hidden.
			last := page.entries[len(page.entries)-1]
			key, below = last.Object.Key, last.Cursor
			continue
		}
		return merged[:min(limit, len(merged))], page.valid, nil
	}
}

// basePage is a stretch of the base tree: all that it has of a directory from a key
// to that of the last entry, or to the end.
type basePage struct {
	entries []manifest.Entry
	valid   manifest.Validity
	end     bool
}

// basePage reads the base tree after key. below is a cursor that leads there or to
// somewhere before.
func (s *Space) basePage(ctx context.Context, dir, key, below string, limit int) (basePage, error) {
	for {
		entries, valid, err := s.base.ReadDir(ctx, dir, below, limit)
		if err != nil {
			return basePage{valid: valid, end: true}, err
		}
		page := basePage{entries: entries, valid: valid, end: len(entries) == 0}
		if page.end {
			return page, nil
		}
		below = entries[len(entries)-1].Cursor
		first, _ := slices.BinarySearchFunc(entries, key+"\x00", func(e manifest.Entry, key string) int {
			return strings.Compare(e.Object.Key, key)
		})
		if key == "" {
			first = 0
		}
		if page.entries = entries[first:]; len(page.entries) > 0 {
			return page, nil
		}
	}
}

// merge lays the names of the space over a stretch of the base tree that begins
// after key, where below leads. Of its own names it takes no more than limit. s.mu is held.
func (s *Space) merge(dir, key, below string, page basePage, limit int) (merged []Entry) {
	names := s.mu.Names[dir]
	last := ""
	if !page.end {
		last = page.entries[len(page.entries)-1].Object.Key
	}
	if len(names) > 0 {
		s.mu.Ordered.After(dir, key, names, func(base string, n state.Name) bool {
			if !page.end && n.Key > last {
				return false
			}
			merged = append(merged, s.entryOf(base, n))
			return len(merged) < limit
		})
	}
	for _, e := range page.entries {
		// A key that is about to go may be shown under another name.
		if _, hidden := names[e.Name]; !hidden && s.mu.Keys[e.Object.Key] == nil {
			e.Cursor = cursorOf(e.Object.Key) + e.Cursor
			merged = append(merged, Entry{Entry: e, Told: s.told(e.Object)})
		}
	}
	slices.SortFunc(merged, func(a, b Entry) int { return strings.Compare(a.sortKey(), b.sortKey()) })
	// A name of ours continues the base tree where the entry before it did.
	for i := range merged {
		if merged[i].File == nil && !strings.HasSuffix(merged[i].Cursor, ":") {
			_, below, _ = parseCursor(merged[i].Cursor)
		} else if below != "" {
			merged[i].Cursor += below
		}
	}
	return merged
}

// exists reports whether the space knows that a directory exists. s.mu is held.
func (s *Space) exists(dir string) bool {
	if dir == "" || !s.mu.Hollow(dir) {
		return true
	}
	n, ok := s.mu.Lookup(order.Parent(dir), dir[strings.LastIndexByte(dir, '/')+1:])
	return ok && n.Kind == state.NameDirectory
}

// sortKey is the place of e in its directory: its key, for which the cursor stands
// also where Object is that of another key.
func (e *Entry) sortKey() string {
	key, _, _ := parseCursor(e.Cursor)
	return key
}

// ReadLink returns the target of a symlink.
func (s *Space) ReadLink(ctx context.Context, e Entry) (string, error) {
	if e.File == nil {
		return s.base.ReadLink(ctx, e.Entry)
	}
	if !e.File.state().Symlink {
		return "", syscall.EINVAL
	}
	return e.File.target(ctx)
}

// Problems reports what the base tree cannot show.
func (s *Space) Problems() manifest.Problems { return s.base.Problems() }
