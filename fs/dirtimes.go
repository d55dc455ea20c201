package fs

import (
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/pailfs/pailfs/fs/internal/kernelclock"
	"github.com/pailfs/pailfs/fs/internal/names"
	"github.com/pailfs/pailfs/fs/internal/notices"
	"github.com/pailfs/pailfs/fs/writeback"
	"github.com/pailfs/pailfs/manifest"
)

// changeTimes knows when directories were changed, and whatever else has no file of the
// space that would: as long as the kernel knows them in the inode, and of the last
// directories that it forgot here.
type changeTimes struct {
	clock  kernelclock.Clock
	notify *notices.Notifier
	mu     struct {
		sync.Mutex
		forgotten pathTimes
	}
}

// now returns the time of a change, as the kernel would stamp it.
func (c *changeTimes) now() int64 { return c.clock.Now() }

// entries notes that a name came to dir, left it or was renamed in it, at a time that was
// asked before or is 0.
func (c *changeTimes) entries(dir *inode, at int64) { c.move(dir, at, true) }

// status notes that n itself was changed, and not what it holds.
func (c *changeTimes) status(n *inode) {
	if file := n.file.Load(); file != nil {
		file.MarkChanged(c.now())
		return
	}
	c.move(n, 0, false)
}

// move makes the time of the last change of n a later one, so that whoever has seen the one
// before sees that something happened. The kernel drops what it has of n, but an answer may
// be on its way to it that was given before: it hears of the change again.
func (c *changeTimes) move(n *inode, at int64, entries bool) {
	for {
		old := n.told.Load()
		var now writeback.Times
		if old != nil {
			now = *old
		}
		if at == 0 || at <= now.Ctime {
			at = max(c.now(), now.Ctime+1)
		}
		now.Ctime = at
		if entries {
			now.Mtime = at
		}
		if n.told.CompareAndSwap(old, &now) {
			break
		}
	}
	if n.tree != nil && n.tree.Shown.Swap(false) {
		c.notify.Attributes(n.id)
	}
}

// remind tells the space what programs were told of the times of n, which is an object and
// may become a file of it now.
func (t *inodes) remind(n *inode) {
	version, staged := n.version()
	if staged {
		return
	}
	if file := n.file.Load(); file != nil {
		if told, err := file.Times(); err == nil && file.Forgotten() {
			t.space.Tell(version, told)
		}
	} else if told := n.told.Load(); told != nil && told.Mtime != 0 {
		t.space.Tell(version, *told)
	}
}

// given notes that a program set the time of the last write of a directory.
func (c *changeTimes) given(dir *inode, mtime time.Time) {
	for {
		old := dir.told.Load()
		var now writeback.Times
		if old != nil {
			now = *old
		}
		now.Mtime = mtime.UnixNano()
		if dir.told.CompareAndSwap(old, &now) {
			return
		}
	}
}

// lay puts what is known of n over its attributes.
func (n *inode) layTimes(a *fuse.Attr) {
	told := n.told.Load()
	if told == nil {
		return
	}
	var mtime, ctime *time.Time
	if told.Mtime != 0 {
		t := time.Unix(0, told.Mtime)
		mtime = &t
	}
	if told.Ctime != 0 {
		t := time.Unix(0, told.Ctime)
		ctime = &t
	}
	a.SetTimes(mtime, mtime, ctime)
}

// forget takes references of the kernel's back, and remembers what was told of a directory
// that leaves the table by that.
func (c *changeTimes) forget(nodes *nodeTable, id, references uint64) *inode {
	n := nodes.get(id)
	if n == nil || n.kind != manifest.Directory || n.told.Load() == nil {
		return nodes.forget(id, references)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	n = nodes.forget(id, references)
	if n != nil && !n.gone.Load() {
		c.mu.forgotten.put(n.dirPath(), *n.told.Load())
	}
	return n
}

// acquire returns the inode with the identity of want, a directory, with a reference of the
// kernel's.
func (c *changeTimes) acquire(nodes *nodeTable, want *inode) *inode {
	c.mu.Lock()
	defer c.mu.Unlock()
	if t, ok := c.mu.forgotten.take(want.dirPath()); ok {
		want.told.Store(&t)
	}
	return nodes.acquire(want)
}

// renamed notes that a directory has another path.
func (c *changeTimes) renamed(from, to string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.forgotten.rename(from, to)
}

// forgottenMost is how many directories are remembered that the kernel has forgotten; those
// of the last half of them at least.
const forgottenMost = 1 << 14

// pathTimes are times by path. What was put longest ago goes.
type pathTimes struct{ young, old map[string]writeback.Times }

func (p *pathTimes) put(path string, t writeback.Times) {
	if p.young == nil || len(p.young) >= forgottenMost/2 {
		p.old, p.young = p.young, make(map[string]writeback.Times)
	}
	p.young[path] = t
}

func (p *pathTimes) take(path string) (writeback.Times, bool) {
	t, ok := p.young[path]
	if !ok {
		t, ok = p.old[path]
	}
	delete(p.young, path)
	delete(p.old, path)
	return t, ok
}

// rename moves what is at a path and below it, and forgets what was there.
func (p *pathTimes) rename(from, to string) {
	for _, m := range []map[string]writeback.Times{p.young, p.old} {
		moved := make(map[string]writeback.Times)
		for path, t := range m {
			switch {
			case names.Below(path, from):
				moved[to+strings.TrimPrefix(path, from)] = t
				delete(m, path)
			case names.Below(path, to):
				delete(m, path)
			}
		}
		maps.Copy(m, moved)
	}
}
