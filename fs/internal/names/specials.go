package names

import (
	"context"
	"errors"
	iofs "io/fs"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"github.com/tidwall/btree"

	"github.com/pailfs/pailfs/fs/internal/callers"
	"github.com/pailfs/pailfs/fs/internal/shares"
	"github.com/pailfs/pailfs/fs/writeback"
	"github.com/pailfs/pailfs/manifest"
	"github.com/pailfs/pailfs/oss"
)

// specialsMost bounds the specials of a mount, each of which takes some hundred bytes of
// memory, and one user gets no more than a share of them.
const specialsMost = 1 << 16

// Special is a fifo or a socket. The kernel does what programs do with it: it asks for
// the name and the attributes alone.
type Special struct {
	kind   manifest.Kind
	object oss.Object // makes it another than all others
	maker  uint32     // the user who is charged for it, whoever owns it later
	mu     struct {
		sync.Mutex
		mode, uid, gid      uint32
		atime, mtime, ctime time.Time
	}
}

// Attr fills the attributes of s.
func (s *Special) Attr(a *fuse.Attr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a.Mode = TypeBits(s.kind) | s.mu.mode
	a.Owner = fuse.Owner{Uid: s.mu.uid, Gid: s.mu.gid}
	a.SetTimes(&s.mu.atime, &s.mu.mtime, &s.mu.ctime)
}

// Set changes attributes as the kernel asks: it has found that the caller may.
func (s *Special) Set(in *fuse.SetAttrIn, now time.Time) error {
	if in.Valid&fuse.FATTR_SIZE != 0 {
		return syscall.EINVAL
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	caller := callers.Rights{Caller: &in.Caller}
	gid := s.mu.gid
	if to, ok := in.GetGID(); ok {
		gid = to
	}
	if in.Valid&fuse.FATTR_KILL_SUIDGID != 0 || callers.AsksNothing(in) {
		left := callers.LentTo(s.mu.mode, s.mu.gid, gid, caller.Member)
		if left != s.mu.mode && callers.AsksNothing(in) && !caller.Owner(s.mu.uid) {
			return syscall.EPERM
		}
		s.mu.mode = left
	}
	s.mu.gid = gid
	if uid, ok := in.GetUID(); ok {
		s.mu.uid = uid
	}
	if mode, ok := in.GetMode(); ok {
		s.mu.mode = mode & Permissions
	}
	switch {
	case in.Valid&fuse.FATTR_MTIME_NOW != 0:
		s.mu.mtime = now
	case in.Valid&fuse.FATTR_MTIME != 0:
		s.mu.mtime = time.Unix(int64(in.Mtime), int64(in.Mtimensec))
	}
	switch {
	case in.Valid&fuse.FATTR_ATIME_NOW != 0:
		s.mu.atime = now
	case in.Valid&fuse.FATTR_ATIME != 0:
		s.mu.atime = time.Unix(int64(in.Atime), int64(in.Atimensec))
	}
	s.mu.ctime = now
	return nil
}

// changed notes that the name of s was changed.
func (s *Special) changed(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.ctime = now
}

// Specials are the fifos and sockets of a mount, by directory and name. They are there
// as long as the mount. Who changes them holds what keeps the names of a directory apart:
// the kernel's lock of it, and that of package moves.
type Specials struct {
	// Clock tells the time in nanoseconds since 1970.
	Clock func() int64
	mu    struct {
		sync.Mutex
		dirs map[string]*btree.Map[string, *Special]
		made uint64
		// charged says how many of them each user made.
		charged *shares.Shares
	}
}

// Get returns the special of a name, or nil.
func (l *Specials) Get(dir, name string) *Special {
	l.mu.Lock()
	defer l.mu.Unlock()
	if d := l.mu.dirs[dir]; d != nil {
		s, _ := d.Get(name)
		return s
	}
	return nil
}

// Now returns the time of a change.
func (l *Specials) Now() time.Time { return time.Unix(0, l.Clock()) }

// Any reports whether there is a special in dir.
func (l *Specials) Any(dir string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.dirs[dir] != nil
}

// Make makes a special under a name that means nothing.
func (l *Specials) Make(dir, name string, kind manifest.Kind, o writeback.CreateOptions) (*Special, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.charged == nil {
		l.mu.charged = shares.New(specialsMost, uint32(os.Geteuid()))
	}
	if err := l.mu.charged.Take(o.UID); err != nil {
		return nil, err
	}
	l.mu.made++
	s := &Special{kind: kind, maker: o.UID, object: oss.Object{ETag: "local " + strconv.FormatUint(l.mu.made, 10)}}
	now := l.Now()
	s.mu.mode, s.mu.uid, s.mu.gid = o.Mode&Permissions, o.UID, o.GID
	s.mu.atime, s.mu.mtime, s.mu.ctime = now, now, now
	l.putLocked(dir, name, s)
	return s, nil
}

func (l *Specials) putLocked(dir, name string, s *Special) {
	if l.mu.dirs == nil {
		l.mu.dirs = make(map[string]*btree.Map[string, *Special])
	}
	d := l.mu.dirs[dir]
	if d == nil {
		d = &btree.Map[string, *Special]{}
		l.mu.dirs[dir] = d
	}
	if there, replaced := d.Set(name, s); replaced {
		l.mu.charged.Give(there.maker)
	}
}

// in returns the specials of dir by name.
func (l *Specials) in(dir string) map[string]*Special {
	l.mu.Lock()
	defer l.mu.Unlock()
	d := l.mu.dirs[dir]
	if d == nil {
		return nil
	}
	all := make(map[string]*Special, d.Len())
	d.Scan(func(name string, s *Special) bool {
		all[name] = s
		return true
	})
	return all
}

// Drop removes a name, if it means a special.
func (l *Specials) Drop(dir, name string) *Special {
	return l.dropIf(dir, name, func(*Special) bool { return true })
}

// dropIf removes a name, if it means a special that is to go.
func (l *Specials) dropIf(dir, name string, goes func(*Special) bool) *Special {
	l.mu.Lock()
	defer l.mu.Unlock()
	d := l.mu.dirs[dir]
	if d == nil {
		return nil
	}
	s, ok := d.Get(name)
	if !ok || !goes(s) {
		return nil
	}
	l.mu.charged.Give(s.maker)
	l.takeLocked(dir, name)
	return s
}

// takeLocked takes a special from its name, which it has.
func (l *Specials) takeLocked(dir, name string) *Special {
	d := l.mu.dirs[dir]
	s, _ := d.Delete(name)
	if d.Len() == 0 {
		delete(l.mu.dirs, dir)
	}
	s.changed(l.Now())
	return s
}

// Rename moves a special, over another if one has the new name.
func (l *Specials) Rename(dir, name, newDir, newName string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	d := l.mu.dirs[dir]
	if d == nil {
		return
	}
	if _, ok := d.Get(name); ok {
		l.putLocked(newDir, newName, l.takeLocked(dir, name))
	}
}

// Moved notes that the directory at path from is at path to, with all below it.
func (l *Specials) Moved(from, to string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for dir, d := range l.mu.dirs {
		if Below(dir, from) {
			delete(l.mu.dirs, dir)
			l.mu.dirs[to+strings.TrimPrefix(dir, from)] = d
		}
	}
}

// list returns the entries of dir after a name, limit at most.
func (l *Specials) list(dir, after string, limit int) []Entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	d := l.mu.dirs[dir]
	if d == nil {
		return nil
	}
	var found []Entry
	d.Ascend(after, func(name string, s *Special) bool {
		if name != after {
			found = append(found, s.Entry(name))
		}
		return len(found) < limit
	})
	return found
}

// localCursor begins the cursor of a special: its name follows. No cursor of the space has
// such a byte.
const localCursor = "local/"

// Entry returns s as the entry of a directory.
func (s *Special) Entry(name string) Entry {
	return Entry{Entry: manifest.Entry{Name: name, Kind: s.kind, Object: s.object, Cursor: localCursor + name}}
}

// Local is the view of a mount that can be written: what the space says, and the
// specials behind it. Where somebody else puts an object in the place of a special, the
// object has the name: content that others rely on is not hidden by what only this mount
// has.
type Local struct {
	*writeback.Space
	specials *Specials
	log      *slog.Logger
}

// NewLocal returns the view of what the space says, with specials behind it.
func NewLocal(space *writeback.Space, specials *Specials, log *slog.Logger) Local {
	return Local{Space: space, specials: specials, log: log}
}

var _ View = Local{}

// specialFor is for how long a special is believed to be there: then what others did to
// the name is asked again.
const specialFor = 5 * time.Second

// Lookup implements [View].
func (v Local) Lookup(ctx context.Context, dir, name string) (Entry, manifest.Validity, error) {
	s := v.specials.Get(dir, name) // before: what is made meanwhile came after what is found
	e, valid, err := v.Space.Lookup(ctx, dir, name)
	switch {
	case s == nil:
		return e, valid, err
	case err == nil:
		v.giveWay(dir, name, s)
		return e, valid, nil
	case !errors.Is(err, iofs.ErrNotExist):
		v.log.Debug("a local name is believed although the store was not asked", "path", "/"+Join(dir, name), "err", err)
	}
	return s.Entry(name), manifest.Validity(time.Now().Add(specialFor)), nil
}

// giveWay lets an object have the name of s, if s has it.
func (v Local) giveWay(dir, name string, s *Special) {
	if v.specials.dropIf(dir, name, func(there *Special) bool { return there == s }) != nil {
		v.log.Warn("an object was put in the place of a fifo or socket, which has lost its name", "path", "/"+Join(dir, name))
	}
}

// ReadDir implements [View]. Specials come after all others.
func (v Local) ReadDir(ctx context.Context, dir, after string, limit int) ([]Entry, manifest.Validity, error) {
	last, local := strings.CutPrefix(after, localCursor)
	if !local {
		before := v.specials.in(dir)
		entries, valid, err := v.Space.ReadDir(ctx, dir, after, limit)
		if err != nil {
			return entries, valid, err
		}
		for i := range entries {
			if s := before[entries[i].Name]; s != nil {
				v.giveWay(dir, entries[i].Name, s)
			}
		}
		if len(entries) > 0 || !v.specials.Any(dir) {
			return entries, valid, nil
		}
		last = "" // the cursor of the space is no name
	}
	return v.specials.list(dir, last, limit), manifest.Validity(time.Now().Add(specialFor)), nil
}
