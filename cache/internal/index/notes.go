package index

import (
	"bytes"
	"encoding/binary"

	"go.etcd.io/bbolt"

	"github.com/pailfs/pailfs/cache/internal/content"
)

// notesKey is the key in the meta bucket that says which generation of notes is the
// young one and how many it has.
var notesKey = []byte("notes")

// Note returns a note, or nil. old says that it is of the generation before. A
// damaged one is not there.
func (ix *Index) Note(id content.Identity) (note []byte, old bool, err error) {
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

// StoreNotes stores notes. When a generation has most of them, the one before goes.
func (ix *Index) StoreNotes(pending map[content.Identity][]byte, most uint32) error {
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
