package cache

import (
	"bytes"
	"sync"

	"github.com/pailfs/pailfs/cache/internal/content"
	"github.com/pailfs/pailfs/oss"
)

const (
	// maxNote is the longest note, in bytes.
	maxNote = 8 << 10
	// notesInMemory and notesInIndex are how many notes a generation has. When one is
	// full, the one before is forgotten; what was read of it has moved on.
	notesInMemory = 32 << 10
	notesInIndex  = 256 << 10
)

// notes are what others want remembered of object versions, and cannot tell from
// their bytes. Those in the index survive a restart.
type notes struct {
	mu struct {
		sync.Mutex
		young, old map[content.Identity][]byte
		// pending are not in the index yet.
		pending map[content.Identity][]byte
	}
}

// Note returns what was remembered of obj. It must not be changed.
func (c *Cache) Note(obj oss.Object) (note []byte, ok bool) {
	id := content.Identify(c.bucket, obj)
	if note, ok = c.notes.get(id); ok || c.ssd == nil || !c.ssd.health.Readable() {
		return note, ok
	}
	note, old, err := c.ssd.indexer.index.Note(id)
	if err != nil {
		c.ssd.indexer.failed(err)
		return nil, false
	}
	if note == nil {
		return nil, false
	}
	c.notes.put(id, note, old)
	return note, true
}

// SetNote remembers up to 8 KiB of obj, for as long as there is room: half a million
// notes on SSD, some ten thousand without. A longer note is not taken.
func (c *Cache) SetNote(obj oss.Object, note []byte) {
	if len(note) <= maxNote {
		c.notes.put(content.Identify(c.bucket, obj), bytes.Clone(note), c.ssd != nil)
	}
}

func (n *notes) get(id content.Identity) ([]byte, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if note, ok := n.mu.young[id]; ok {
		return note, true
	}
	if note, ok := n.mu.pending[id]; ok {
		return note, true
	}
	note, ok := n.mu.old[id]
	if ok {
		n.putLocked(id, note)
	}
	return note, ok
}

// put keeps a note in memory, and has it stored.
func (n *notes) put(id content.Identity, note []byte, store bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.putLocked(id, note)
	if !store {
		return
	}
	if n.mu.pending == nil {
		n.mu.pending = make(map[content.Identity][]byte)
	}
	n.mu.pending[id] = note
}

func (n *notes) putLocked(id content.Identity, note []byte) {
	if len(n.mu.young) >= notesInMemory {
		n.mu.old, n.mu.young = n.mu.young, nil
	}
	if n.mu.young == nil {
		n.mu.young = make(map[content.Identity][]byte)
	}
	n.mu.young[id] = note
}

// take returns what is to be stored.
func (n *notes) take() map[content.Identity][]byte {
	n.mu.Lock()
	defer n.mu.Unlock()
	pending := n.mu.pending
	n.mu.pending = nil
	return pending
}

// storeNotes tells the index what was noted. What it could not be told is asked
// again one day.
func (x *indexer) storeNotes() {
	pending := x.notes.take()
	if len(pending) == 0 {
		return
	}
	if err := x.index.StoreNotes(pending, notesInIndex); err != nil {
		x.failed(err)
	}
}
