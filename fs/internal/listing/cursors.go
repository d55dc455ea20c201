package listing

import (
	"container/list"
	"sync"
)

const (
	// cursorsMost bounds the cursors that are kept of directories that nobody has
	// open: some 40 MB of names.
	cursorsMost = 1 << 19
	// cursorsEach is what a directory counts beside its cursors.
	cursorsEach = 8
)

// Cursors bounds what is kept of listings that nobody reads. The kernel keeps
// entries of a directory with their offsets when it is closed, and goes on from one
// of them when it is opened again. So the cursors behind the offsets must be there
// for as long as the kernel is let to keep those: counted from the start, a
// position means another entry once one before it has gone.
type Cursors struct {
	mu struct {
		sync.Mutex
		order list.List // of keptCursors, the longest unused first
		at    map[*Directory]*list.Element
		total int
	}
}

type keptCursors struct {
	dir  *Directory
	cost int
}

// Closed notes that d was closed, and lets go of what was closed long ago if there
// is too much.
func (k *Cursors) Closed(d *Directory) {
	cost := d.Cursors() + cursorsEach
	k.mu.Lock()
	if e := k.mu.at[d]; e != nil {
		k.removeLocked(e)
	}
	if k.mu.at == nil {
		k.mu.at = make(map[*Directory]*list.Element)
	}
	k.mu.at[d] = k.mu.order.PushBack(keptCursors{d, cost})
	k.mu.total += cost
	var old []*Directory
	for k.mu.total > cursorsMost {
		old = append(old, k.removeLocked(k.mu.order.Front()))
	}
	k.mu.Unlock()
	for _, d := range old {
		d.dropCursors()
	}
}

// Forgotten notes that the kernel has forgotten d.
func (k *Cursors) Forgotten(d *Directory) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if e := k.mu.at[d]; e != nil {
		k.removeLocked(e)
	}
}

func (k *Cursors) removeLocked(e *list.Element) *Directory {
	v := k.mu.order.Remove(e).(keptCursors)
	delete(k.mu.at, v.dir)
	k.mu.total -= v.cost
	return v.dir
}

// Cursors returns how many cursors the listing of new readers has.
func (d *Directory) Cursors() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.mu.current == nil {
		return 0
	}
	return d.mu.current.Length()
}

// dropCursors lets go of the cursors unless somebody reads. What the kernel has
// cached is of no use then: its offsets lead nowhere.
func (d *Directory) dropCursors() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.mu.current != nil && d.mu.current.open == 0 {
		d.mu.current = nil
		d.mu.changed = true
	}
}
