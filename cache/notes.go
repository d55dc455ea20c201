package cache

import (
	"bytes"
	"encoding/binary"
	"sync"

	"go.etcd.io/bbolt"

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
	if note, ok = c.notes.get(id); ok || c.ssd == nil || !c.ssd.health.readable() {
		return note, ok
	}
	note, old, err := c.ssd.index.note(id)
	if err != nil {
		c.ssd.indexFailed(err)
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
func (t *ssdTier) storeNotes() {
	pending := t.notes.take()
	if len(pending) == 0 {
		return
	}
	if err := t.index.storeNotes(pending, notesInIndex); err != nil {
		t.indexFailed(err)
	}
}

// notesKey is the key in the meta bucket that says which generation of notes is the
// young one and how many it has.
var notesKey = []byte("notes")

// note returns a note, or nil. old says that it is of the generation before. A
// damaged one is not there.
func (ix *index) note(id content.Identity) (note []byte, old bool, err error) {
	err = ix.guard(func() error {
		return ix.db.View(func(tx *bbolt.Tx) error {
			young, _ := notesState(tx)
			for i, at := range []int{young, 1 - young} {
				body, err := checkSeal(tx.Bucket(notesBuckets[at]).Get(id[:]), id[:])
				if err == nil {
					note, old = bytes.Clone(body[1:]), i > 0
					return nil
				}
			}
			return nil
		})
	})
	return note, old, err
}

// notesState returns which bucket is the young one and how many notes it has.
func notesState(tx *bbolt.Tx) (young int, count uint32) {
	v := tx.Bucket(metaBucket).Get(notesKey)
	if len(v) != 5 || v[0] > 1 {
		return 0, 0
	}
	return int(v[0]), binary.LittleEndian.Uint32(v[1:])
}

// storeNotes stores notes. When a generation has most of them, the one before goes.
func (ix *index) storeNotes(pending map[content.Identity][]byte, most uint32) error {
	return ix.guard(func() error {
		return ix.db.Update(func(tx *bbolt.Tx) error {
			young, count := notesState(tx)
			for id, note := range pending {
				if count >= most {
					young, count = 1-young, 0
					if err := tx.DeleteBucket(notesBuckets[young]); err != nil {
						return err
					}
					if _, err := tx.CreateBucket(notesBuckets[young]); err != nil {
						return err
					}
				}
				b := tx.Bucket(notesBuckets[young])
				if b.Get(id[:]) == nil {
					count++
				}
				if err := b.Put(id[:], appendSeal(append([]byte{recordVersion}, note...), 0, id[:])); err != nil {
					return err
				}
			}
			state := binary.LittleEndian.AppendUint32([]byte{byte(young)}, count)
			return tx.Bucket(metaBucket).Put(notesKey, state)
		})
	})
}
