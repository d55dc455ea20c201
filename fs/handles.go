package fs

import (
	"sync"

	"github.com/pailfs/pailfs/fs/writeback"
)

// openFile is one open description that may write.
type openFile struct {
	node   *inode
	handle *writeback.Handle
}

// handleTable holds what is open for writing by the number that the kernel has. 0
// is the number of everything that is only read.
type handleTable struct {
	mu struct {
		sync.Mutex
		next uint64
		open map[uint64]*openFile
	}
}

func (t *handleTable) add(o *openFile) uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.mu.open == nil {
		t.mu.open = make(map[uint64]*openFile)
	}
	t.mu.next++
	t.mu.open[t.mu.next] = o
	return t.mu.next
}

func (t *handleTable) get(fh uint64) *openFile {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.mu.open[fh]
}

func (t *handleTable) remove(fh uint64) *openFile {
	t.mu.Lock()
	defer t.mu.Unlock()
	o := t.mu.open[fh]
	delete(t.mu.open, fh)
	return o
}

// closeAll releases what was open for writing when the connection to the kernel
// ended.
func (t *handleTable) closeAll() {
	t.mu.Lock()
	open := t.mu.open
	t.mu.open = nil
	t.mu.Unlock()
	for _, o := range open {
		o.handle.Release()
	}
}
