package writeback

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sync/errgroup"

	"github.com/pailfs/pailfs/fs/writeback/internal/attrs"
	"github.com/pailfs/pailfs/fs/writeback/internal/order"
	"github.com/pailfs/pailfs/fs/writeback/internal/state"
	"github.com/pailfs/pailfs/manifest"
	"github.com/pailfs/pailfs/oss"
)

// maxRenamed is the largest directory that is renamed, in names below it. A larger
// one, or one whose record would be too large, is EXDEV: programs then copy and delete.
const maxRenamed = 250_000

// renameDir moves a directory with all that is below it, as one record.
func (s *Space) renameDir(ctx context.Context, dir, base string, from Entry, to state.Place, there Entry) error {
	old, fresh := order.Join(dir, base), order.Join(to.Dir, to.Name)
	switch {
	case fresh == old || strings.HasPrefix(fresh, old+"/"):
		return syscall.EINVAL
	case there.Name != "":
		inside, _, err := s.ReadDir(ctx, fresh, "", 1)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if len(inside) > 0 {
			return syscall.ENOTEMPTY
		}
	default:
		to.Key += "/"
		to.Base = state.Absent(to.Key)
	}
	if err := s.keepDir(ctx, dir); err != nil {
		return err
	}
	for {
		s.mu.Lock()
		forgets := s.mu.forgets
		s.mu.Unlock()
		below, err := s.walk(ctx, old, nil)
		if err == nil && s.cfg.Attrs {
			err = s.completeNames(ctx, below)
		}
		if err != nil {
			return err
		}
		m := &move{space: s, old: old, fresh: fresh, at: now()}
		s.mu.Lock()
		if forgets != s.mu.forgets {
			// What the base tree said may be older than what was forgotten.
			s.mu.Unlock()
			continue
		}
		pos, err := m.record(dir, base, from, to, there.Name != "", below)
		s.mu.Unlock()
		if err != nil {
			return err
		}
		return s.journal.Write(pos)
	}
}

// below is one name under a directory that is renamed.
type below struct {
	dir   string
	entry Entry
}

// walk returns all names under dir, directories before what is in them.
func (s *Space) walk(ctx context.Context, dir string, all []below) ([]below, error) {
	after := ""
	first := len(all)
	for {
		page, _, err := s.ReadDir(ctx, dir, after, 1000)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("list %q: %w", dir, err)
		}
		for _, e := range page {
			if e.Kind == manifest.Symlink && e.File == nil && !e.LinkFile() {
				// An OSS symlink object: its target is a key, and would not move along.
				return nil, syscall.EXDEV
			}
			all = append(all, below{dir, e})
		}
		if len(all) > maxRenamed {
			return nil, syscall.EXDEV
		}
		if len(page) == 0 {
			break
		}
		after = page[len(page)-1].Cursor
	}
	for _, b := range all[first:] {
		if b.entry.Kind != manifest.Directory {
			continue
		}
		var err error
		if all, err = s.walk(ctx, order.Join(dir, b.entry.Name), all); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// attributes returns what the base tree knows of a name.
func (b *below) attributes() attrs.Attrs {
	if b.entry.Attr == nil {
		return attrs.Attrs{}
	}
	return attrs.Of(b.entry.Attr)
}

// completeNames asks the base tree for what its listing has left out.
func (s *Space) completeNames(ctx context.Context, all []below) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(askedAtOnce)
	for i := range all {
		b := &all[i]
		if b.entry.File != nil || !b.entry.Partial {
			continue
		}
		g.Go(func() error {
			e, _, err := s.base.Lookup(ctx, b.dir, b.entry.Name)
			switch {
			case errors.Is(err, fs.ErrNotExist), err == nil && e.Object != b.entry.Object:
				return nil // whoever copies it will notice
			case err != nil:
				return err
			}
			b.entry.Entry.Kind, b.entry.Entry.Attr = e.Kind, e.Attr
			return nil
		})
	}
	return g.Wait()
}

// askedAtOnce is how many names the base tree is asked for at a time.
const askedAtOnce = 32

// move makes the record of the renaming of a directory.
type move struct {
	space      *Space
	old, fresh string
	at         int64
	group      state.Group
	// size bounds the body of group, in bytes.
	size    int64
	scratch []byte
	next    order.FileID
}

// moved returns where a path under the old directory goes.
func (m *move) moved(path string) string { return m.fresh + path[len(m.old):] }

func (m *move) add(r state.Record) {
	m.group.Records = append(m.group.Records, r)
	m.scratch = state.AppendBody(m.scratch[:0], r)
	m.size += int64(len(m.scratch)) + binary.MaxVarintLen64
}

// record adds the renaming to the journal. Space.mu is held.
func (m *move) record(dir, base string, from Entry, to state.Place, exists bool, all []below) (int64, error) {
	s := m.space
	m.next = s.mu.NextFile
	if n, ok := s.mu.Lookup(to.Dir, to.Name); ok && n.Kind == state.NameFile {
		return 0, syscall.ENOTDIR
	}
	m.add(&state.MadeDir{At: to, Time: m.at, Exists: exists})
	m.attributes(to, from.Entry)
	for _, b := range all {
		if b.entry.Kind == manifest.Directory {
			p, err := m.target(b)
			if err != nil {
				return 0, err
			}
			p.Key += "/"
			p.Base = state.Absent(p.Key)
			m.add(&state.MadeDir{At: p, Time: m.at})
			m.attributes(p, b.entry.Entry)
		}
	}
	for _, b := range all {
		if b.entry.Kind != manifest.Directory {
			if err := m.file(b); err != nil {
				return 0, err
			}
		}
	}
	for _, b := range slices.Backward(all) {
		if b.entry.Kind == manifest.Directory {
			m.remove(b.dir, b.entry)
		}
	}
	m.remove(dir, from)
	if m.size+binary.MaxVarintLen64 >= s.cfg.limits.record {
		return 0, syscall.EXDEV
	}
	clear(s.mu.made) // what is where has changed below both names
	return s.record(&m.group), nil
}

// attributes gives a directory those that it had.
func (m *move) attributes(to state.Place, from manifest.Entry) {
	if from.Attr == nil || from.Attr.Known == 0 || !m.space.cfg.Attrs {
		return
	}
	m.add(&state.SetDirAttr{At: to, Attr: attrs.Of(from.Attr), Time: m.at})
}

// target returns the place of a name in the new directory.
func (m *move) target(b below) (state.Place, error) {
	dir := m.moved(b.dir)
	key, err := manifest.KeyOf(m.space.cfg.Prefix, dir, b.entry.Name)
	if err != nil {
		return state.Place{}, err
	}
	p := state.Place{Dir: dir, Name: b.entry.Name, Key: key, Base: state.Absent(key)}
	if n, ok := m.space.mu.Lookup(dir, b.entry.Name); ok {
		p.Key = strings.TrimSuffix(n.Key, "/")
	}
	return p, nil
}

// file moves one file, of which the base tree's become ours.
func (m *move) file(b below) error {
	s := m.space
	p, err := m.target(b)
	if err != nil {
		return err
	}
	id := order.FileID(0)
	if n, ok := s.mu.Lookup(b.dir, b.entry.Name); ok {
		if n.Kind != state.NameFile {
			return nil // it was unlinked since it was listed
		}
		id = n.File
	} else if b.entry.File != nil {
		return nil
	}
	if id == 0 {
		id = m.next
		m.next++
		opened := &state.Opened{File: id, Symlink: b.entry.LinkFile(), Attr: b.attributes(), At: state.Place{Dir: b.dir, Name: b.entry.Name, Key: b.entry.Object.Key, Base: b.entry.Object}}
		for _, r := range opened.With(manifest.XAttrs(b.entry.Attr)) {
			m.add(r)
		}
	}
	m.add(&state.Renamed{File: id, To: p, Time: m.at})
	if f := s.mu.Files[id]; f != nil {
		for _, r := range s.mu.PuttingOff(f, p.Key, m.at) {
			m.add(r)
		}
	}
	return nil
}

// remove removes a directory that is empty by then.
func (m *move) remove(dir string, e Entry) {
	m.add(&state.RemovedDir{At: state.Place{
		Dir: dir, Name: e.Name, Key: e.Object.Key, Base: oss.Object{Key: e.Object.Key, ETag: state.AnyVersion},
	}, Time: m.at})
}
