package fs

import (
	"maps"
	"slices"
	"sync"

	"github.com/hanwen/go-fuse/v2/fuse"
)

// ownHandle is set in the numbers that the audit gives to what is only read, which else has
// none: the file system takes them for none.
const ownHandle = 1 << 63

// auditedOpens are the open descriptions that the audit is to see closed, by their number.
type auditedOpens struct {
	mu struct {
		sync.RWMutex
		last uint64
		open map[uint64]*auditedOpen
	}
}

// add remembers o under the number that the kernel gets.
func (t *auditedOpens) add(o *auditedOpen, out *fuse.OpenOut) uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.mu.open == nil {
		t.mu.open = make(map[uint64]*auditedOpen)
	}
	t.mu.last++
	o.opened.Handle = t.mu.last
	if out.Fh == 0 {
		out.Fh = t.mu.last | ownHandle
	}
	t.mu.open[out.Fh] = o
	return t.mu.last
}

// get returns what is open under a number, or nil.
func (t *auditedOpens) get(fh uint64) *auditedOpen {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.mu.open[fh]
}

// remove forgets a number and returns what was open under it, or nil.
func (t *auditedOpens) remove(fh uint64) *auditedOpen {
	t.mu.Lock()
	defer t.mu.Unlock()
	o := t.mu.open[fh]
	delete(t.mu.open, fh)
	return o
}

// removeAll forgets all numbers and returns what was open.
func (t *auditedOpens) removeAll() []*auditedOpen {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := slices.Collect(maps.Values(t.mu.open))
	t.mu.open = nil
	return all
}
