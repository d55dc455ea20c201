package cache

import (
	"sync"

	"github.com/pailfs/pailfs/cache/internal/content"
)

// checkedFiles are the files of large objects that are whole and of which every
// block was written by us or checked since the start. It outlives the record of
// an object, which goes when nobody has it open and nothing of it is in memory:
// else a file larger than memory would be checked anew at every open, and never
// be handed out to somebody who opens it, reads it and closes it.
//
// Small objects are left out: there are many, and they are checked as fast as
// they are read.
type checkedFiles struct {
	mu struct {
		sync.Mutex
		inodes map[content.Identity]inode
	}
}

// add notes that the file with that inode is whole and right.
func (c *checkedFiles) add(id content.Identity, file inode) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.inodes == nil {
		c.mu.inodes = make(map[content.Identity]inode)
	}
	c.mu.inodes[id] = file
}

// remove notes that an object has no such file, or no longer.
func (c *checkedFiles) remove(id content.Identity) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.mu.inodes, id)
}

// inode returns the inode of the file that is whole and right, if there is one.
func (c *checkedFiles) inode(id content.Identity) (file inode, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	file, ok = c.mu.inodes[id]
	return file, ok
}

// rememberChecked notes that the file of o is whole and right, if it is. o.mu must
// be held.
func (o *object) rememberChecked() {
	if d := &o.mu.disk; !o.small() && o.wholeOnDisk() && o.wholeChecked() && d.inode != (inode{}) {
		o.cache.ssd.checked.add(o.id, d.inode)
	}
}

// wholeChecked tells whether every block that is on SSD, and the whole, was
// checked. o.mu must be held.
func (o *object) wholeChecked() bool {
	return o.mu.disk.trusted == o.mu.disk.blocks && (o.mu.checked || !o.mu.hasCRC64)
}

// recallChecked takes over what an earlier record of o knew. o.mu must be held.
func (o *object) recallChecked() {
	file, ok := o.cache.ssd.checked.inode(o.id)
	if !ok || !o.wholeOnDisk() {
		return
	}
	for _, seg := range o.mu.segments {
		if seg != nil {
			seg.trusted = seg.disk
		}
	}
	o.mu.disk.trusted, o.mu.disk.inode = o.mu.disk.blocks, file
}
