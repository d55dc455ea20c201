package state

import (
	"maps"
	"slices"

	"github.com/pailfs/pailfs/fs/writeback/internal/journal"
	"github.com/pailfs/pailfs/fs/writeback/internal/order"
	"github.com/pailfs/pailfs/oss"
)

// Content is what a small file had when it was committed; without data, it is on the
// disk.
type Content struct {
	Gen  order.Generation
	Data []byte
}

// Snapshot returns a journal that makes st. The content that inline lacks is so
// little, and so new, that it may be read under the lock.
func (st *State) Snapshot(inline map[order.FileID]Content, read func(f *File) ([]byte, error)) ([]byte, error) {
	// It is made for all of it: to grow step by step costs several times as much memory.
	room := snapshotRoom(st)
	for _, c := range inline {
		room += len(c.Data)
	}
	b := Frame(append(make([]byte, 0, room), journal.Header()...), &Identified{st.Identity})
	b = Frame(b, &Boot{st.Boot})
	for _, id := range slices.Sorted(maps.Keys(st.Files)) {
		f := st.Files[id]
		r := &SnapFile{File: *f}
		if f.Staged && f.Inline == f.Gen && f.Gen > 0 {
			c, ok := inline[id]
			if !ok || c.Gen != f.Gen {
				data, err := read(f)
				if err != nil {
					return nil, err
				}
				c = Content{f.Gen, data}
			}
			if r.HasInline, r.Inline = c.Data != nil, c.Data; !r.HasInline {
				// It is on the disk.
				r.File.Inline, f.Inline = 0, 0
				st.Tally.Set(id, f)
			}
		}
		b = Frame(b, r)
		if f.Vouched != nil {
			b = Frame(b, &Lacks{File: id, Partial: *f.Vouched})
		}
		if f.Partial != nil {
			b = Frame(b, &Lacks{File: id, Partial: *f.Partial})
		} else if f.Vouched != nil {
			b = Frame(b, &Lacks{File: id})
		}
		if f.XAttrs != nil {
			b = Frame(b, &snapXAttrs{File: id, XAttrs: *f.XAttrs})
		}
	}
	for _, dir := range slices.Sorted(maps.Keys(st.Names)) {
		for _, base := range slices.Sorted(maps.Keys(st.Names[dir])) {
			b = Frame(b, &snapName{dir, base, st.Names[dir][base]})
		}
	}
	for _, id := range slices.Sorted(maps.Keys(st.Ops)) {
		b = Frame(b, &snapOp{*st.Ops[id]})
	}
	for _, key := range slices.Sorted(maps.Keys(st.Keys)) {
		b = Frame(b, &snapKey{key, *st.Keys[key]})
	}
	for _, id := range slices.Sorted(maps.Keys(st.Kept)) {
		b = Frame(b, &Kept{Op: id})
	}
	for _, id := range slices.Sorted(maps.Keys(st.Uploads)) {
		b = Frame(b, &UploadBegun{st.Uploads[id]})
	}
	for _, key := range slices.Sorted(maps.Keys(st.Dirs)) {
		b = Frame(b, &snapDirAttr{key, st.Dirs[key]})
	}
	for _, id := range slices.Sorted(maps.Keys(st.Losses)) {
		b = Frame(b, &snapLoss{id, *st.Losses[id]})
	}
	for _, c := range st.Conflicts {
		b = Frame(b, &snapConflict{c})
	}
	// Last, because applying counts orders.
	return Frame(b, &snapCounters{st.NextFile, st.NextOp, st.NextOrder}), nil
}

// snapshotRoom returns about how many bytes the records are that make st, and rather more
// than less, but for content.
func snapshotRoom(st *State) int {
	// What a record of each kind has beside its strings.
	const file, object, name, op, key, rest = 72, 32, 32, 64, 32, 4096
	room := rest
	for _, f := range st.Files {
		room += file + len(f.Dir) + len(f.Name) + len(f.Key)
		for _, o := range []*oss.Object{&f.Object, &f.Origin, &f.Published} {
			if o.Key != "" {
				room += object + len(o.Key) + len(o.ETag)
			}
		}
		for _, p := range []*Partial{f.Partial, f.Vouched} {
			if p != nil {
				room += file + len(p.Local)
			}
		}
		if f.XAttrs != nil {
			room += file + len(f.XAttrs.Given) + len(f.XAttrs.Pub)
		}
	}
	for dir, names := range st.Names {
		for base, n := range names {
			room += name + len(dir) + len(base) + len(n.Key)
		}
	}
	for _, o := range st.Ops {
		room += op + len(o.Key) + len(o.Dir) + len(o.Name)
	}
	for k := range st.Keys {
		room += key + len(k)
	}
	return room
}
