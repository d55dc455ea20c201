package fs

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
	"golang.org/x/sys/unix"

	"github.com/pailfs/pailfs/fs/internal/callers"
	"github.com/pailfs/pailfs/fs/internal/shares"
	"github.com/pailfs/pailfs/fs/writeback"
	"github.com/pailfs/pailfs/manifest"
	"github.com/pailfs/pailfs/oss"
)

// The kinds of names that are local: they have no place in an object store.
const (
	fifoKind manifest.Kind = 0x80 + iota
	socketKind
)

// local reports whether a kind is one of names that are never published.
func local(k manifest.Kind) bool { return k == fifoKind || k == socketKind }

// specialsMost bounds the specials of a mount, each of which takes some hundred bytes of
// memory, and one user gets no more than a share of them.
const specialsMost = 1 << 16

// special is a fifo or a socket. The kernel does what programs do with it: it asks for
// the name and the attributes alone.
type special struct {
	kind   manifest.Kind
	object oss.Object // makes it another than all others
	maker  uint32     // the user who is charged for it, whoever owns it later
	mu     struct {
		sync.Mutex
		mode, uid, gid      uint32
		atime, mtime, ctime time.Time
	}
}

// attr fills the attributes of s.
func (s *special) attr(a *fuse.Attr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a.Mode = typeBits(s.kind) | s.mu.mode
	a.Owner = fuse.Owner{Uid: s.mu.uid, Gid: s.mu.gid}
	a.SetTimes(&s.mu.atime, &s.mu.mtime, &s.mu.ctime)
}

// set changes attributes as the kernel asks: it has found that the caller may.
func (s *special) set(in *fuse.SetAttrIn, now time.Time) error {
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
		s.mu.mode = mode & permissions
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
func (s *special) changed(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.ctime = now
}

// specials are the fifos and sockets of a mount, by directory and name. They are there
// as long as the mount. Who changes them holds what keeps the names of a directory apart:
// the kernel's lock of it, and [moves].
type specials struct {
	// clock tells the time in nanoseconds since 1970.
	clock func() int64
	mu    struct {
		sync.Mutex
		dirs map[string]*btree.Map[string, *special]
		made uint64
		// charged says how many of them each user made.
		charged *shares.Shares
	}
}

// get returns the special of a name, or nil.
func (l *specials) get(dir, name string) *special {
	l.mu.Lock()
	defer l.mu.Unlock()
	if d := l.mu.dirs[dir]; d != nil {
		s, _ := d.Get(name)
		return s
	}
	return nil
}

func (l *specials) now() time.Time { return time.Unix(0, l.clock()) }

// any reports whether there is a special in dir.
func (l *specials) any(dir string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.dirs[dir] != nil
}

// make makes a special under a name that means nothing.
func (l *specials) make(dir, name string, kind manifest.Kind, o writeback.CreateOptions) (*special, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.charged == nil {
		l.mu.charged = shares.New(specialsMost, uint32(os.Geteuid()))
	}
	if err := l.mu.charged.Take(o.UID); err != nil {
		return nil, err
	}
	l.mu.made++
	s := &special{kind: kind, maker: o.UID, object: oss.Object{ETag: "local " + strconv.FormatUint(l.mu.made, 10)}}
	now := l.now()
	s.mu.mode, s.mu.uid, s.mu.gid = o.Mode&permissions, o.UID, o.GID
	s.mu.atime, s.mu.mtime, s.mu.ctime = now, now, now
	l.putLocked(dir, name, s)
	return s, nil
}

func (l *specials) putLocked(dir, name string, s *special) {
	if l.mu.dirs == nil {
		l.mu.dirs = make(map[string]*btree.Map[string, *special])
	}
	d := l.mu.dirs[dir]
	if d == nil {
		d = &btree.Map[string, *special]{}
		l.mu.dirs[dir] = d
	}
	if there, replaced := d.Set(name, s); replaced {
		l.mu.charged.Give(there.maker)
	}
}

// in returns the specials of dir by name.
func (l *specials) in(dir string) map[string]*special {
	l.mu.Lock()
	defer l.mu.Unlock()
	d := l.mu.dirs[dir]
	if d == nil {
		return nil
	}
	all := make(map[string]*special, d.Len())
	d.Scan(func(name string, s *special) bool {
		all[name] = s
		return true
	})
	return all
}

// drop removes a name, if it means a special.
func (l *specials) drop(dir, name string) *special {
	return l.dropIf(dir, name, func(*special) bool { return true })
}

// dropIf removes a name, if it means a special that is to go.
func (l *specials) dropIf(dir, name string, goes func(*special) bool) *special {
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
func (l *specials) takeLocked(dir, name string) *special {
	d := l.mu.dirs[dir]
	s, _ := d.Delete(name)
	if d.Len() == 0 {
		delete(l.mu.dirs, dir)
	}
	s.changed(l.now())
	return s
}

// rename moves a special, over another if one has the new name.
func (l *specials) rename(dir, name, newDir, newName string) {
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

// moved notes that the directory at path from is at path to, with all below it.
func (l *specials) moved(from, to string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for dir, d := range l.mu.dirs {
		if below(dir, from) {
			delete(l.mu.dirs, dir)
			l.mu.dirs[to+strings.TrimPrefix(dir, from)] = d
		}
	}
}

// list returns the entries of dir after a name, limit at most.
func (l *specials) list(dir, after string, limit int) []entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	d := l.mu.dirs[dir]
	if d == nil {
		return nil
	}
	var found []entry
	d.Ascend(after, func(name string, s *special) bool {
		if name != after {
			found = append(found, s.entry(name))
		}
		return len(found) < limit
	})
	return found
}

// localCursor begins the cursor of a special: its name follows. No cursor of the space has
// such a byte.
const localCursor = "local/"

// entry returns s as the entry of a directory.
func (s *special) entry(name string) entry {
	return entry{Entry: manifest.Entry{Name: name, Kind: s.kind, Object: s.object, Cursor: localCursor + name}}
}

// localNames is the view of a mount that can be written: what the space says, and the
// specials behind it. Where somebody else puts an object in the place of a special, the
// object has the name: content that others rely on is not hidden by what only this mount
// has.
type localNames struct {
	*writeback.Space
	specials *specials
	log      *slog.Logger
}

var _ view = localNames{}

// specialFor is for how long a special is believed to be there: then what others did to
// the name is asked again.
const specialFor = 5 * time.Second

// Lookup implements view.
func (v localNames) Lookup(ctx context.Context, dir, name string) (entry, manifest.Validity, error) {
	s := v.specials.get(dir, name) // before: what is made meanwhile came after what is found
	e, valid, err := v.Space.Lookup(ctx, dir, name)
	switch {
	case s == nil:
		return e, valid, err
	case err == nil:
		v.giveWay(dir, name, s)
		return e, valid, nil
	case !errors.Is(err, iofs.ErrNotExist):
		v.log.Debug("a local name is believed although the store was not asked", "path", "/"+join(dir, name), "err", err)
	}
	return s.entry(name), manifest.Validity(time.Now().Add(specialFor)), nil
}

// giveWay lets an object have the name of s, if s has it.
func (v localNames) giveWay(dir, name string, s *special) {
	if v.specials.dropIf(dir, name, func(there *special) bool { return there == s }) != nil {
		v.log.Warn("an object was put in the place of a fifo or socket, which has lost its name", "path", "/"+join(dir, name))
	}
}

// ReadDir implements view. Specials come after all others.
func (v localNames) ReadDir(ctx context.Context, dir, after string, limit int) ([]entry, manifest.Validity, error) {
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
		if len(entries) > 0 || !v.specials.any(dir) {
			return entries, valid, nil
		}
		last = "" // the cursor of the space is no name
	}
	return v.specials.list(dir, last, limit), manifest.Validity(time.Now().Add(specialFor)), nil
}

// makeSpecial is MKNOD of a fifo or a socket.
func (c *naming) makeSpecial(ctx context.Context, dir *inode, name string, kind manifest.Kind, o writeback.CreateOptions, out *fuse.EntryOut) error {
	switch _, _, err := c.inodes.lookup(ctx, dir, name); {
	case err == nil:
		return syscall.EEXIST
	case !errors.Is(err, iofs.ErrNotExist):
		return err
	}
	c.moves.RLock()
	defer c.moves.RUnlock()
	s, err := c.inodes.specials.make(dir.dirPath(), name, kind, o)
	if err != nil {
		return err
	}
	e := s.entry(name)
	c.enteredAs(dir, &e, 0, out)
	return nil
}

// unlink removes a name that is no directory.
func (c *naming) unlink(ctx context.Context, dir, name string) error {
	if c.inodes.specials.drop(dir, name) != nil {
		return nil
	}
	return c.space.Unlink(ctx, dir, name)
}

// rmdir removes a directory, in which nothing must be.
func (c *naming) rmdir(ctx context.Context, dir, name string) error {
	switch {
	case c.inodes.specials.get(dir, name) != nil:
		return syscall.ENOTDIR
	case c.inodes.specials.any(join(dir, name)):
		return syscall.ENOTEMPTY
	}
	return c.space.Rmdir(ctx, dir, name)
}

// renameSpecial renames a fifo or a socket. What it replaces is removed: a crash between
// leaves nothing under the name, as it leaves no special.
func (c *naming) renameSpecial(ctx context.Context, from, to *inode, e, there *entry, newName string, flags uint32, victim *inode) error {
	c.moves.RLock()
	defer c.moves.RUnlock()
	switch {
	case there == nil:
	case flags&unix.RENAME_NOREPLACE != 0:
		return syscall.EEXIST
	case from == to && e.Name == newName:
		return nil
	case there.Kind == manifest.Directory:
		return syscall.EISDIR
	case !local(there.Kind):
		if err := c.space.Unlink(ctx, to.dirPath(), newName); err != nil && !errors.Is(err, iofs.ErrNotExist) {
			return err
		}
	}
	n := c.inodes.known(from, e)
	c.inodes.left(victim)
	c.inodes.specials.rename(from.dirPath(), e.Name, to.dirPath(), newName)
	if n != nil {
		n.where.Store(&place{parent: to.id, dir: to.dirPath(), name: newName})
	}
	return nil
}
