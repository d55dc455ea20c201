package disk

import (
	"sync"

	"github.com/pailfs/pailfs/cache/internal/content"
)

// CheckedFiles are the files of large objects that are whole and of which every
// block was written by us or checked since the start. It outlives the record of
// an object, which goes when nobody has it open and nothing of it is in memory:
// else a file larger than memory would be checked anew at every open, and never
// be handed out to somebody who opens it, reads it and closes it.
//
// Small objects are left out: there are many, and they are checked as fast as
// they are read.
type CheckedFiles struct {
	mu struct {
		sync.Mutex
		inodes map[content.Identity]Inode
	}
}

// Add notes that the file with that inode is whole and right.
func (c *CheckedFiles) Add(id content.Identity, file Inode) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.inodes == nil {
		c.mu.inodes = make(map[content.Identity]Inode)
	}
	c.mu.inodes[id] = file
}

// Remove notes that an object has no such file, or no longer.
func (c *CheckedFiles) Remove(id content.Identity) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.mu.inodes, id)
}

// Inode returns the inode of the file that is whole and right, if there is one.
func (c *CheckedFiles) Inode(id content.Identity) (file Inode, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	file, ok = c.mu.inodes[id]
	return file, ok
}
