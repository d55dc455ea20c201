package index

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/pailfs/pailfs/cache/internal/content"
)

// Name is the name of the index in its directory.
const Name = "index.db"

// The buckets of the index.
var (
	objectsBucket  = []byte("objects")
	segmentsBucket = []byte("segments")
	usesBucket     = []byte("uses")
	metaBucket     = []byte("meta")
	// notesBuckets hold notes: those of one generation, and those before.
	notesBuckets = [2][]byte{[]byte("notes0"), []byte("notes1")}

	// cleanKey is in the meta bucket of an index that was closed in order.
	cleanKey = []byte("clean")
)

// ErrUnusable means that the index is damaged or cannot be used.
var ErrUnusable = errors.New("cache index is unusable")

// Index remembers on disk what the object files hold. What it says is durable,
// and so is what it says it of: records are stored after the blocks were synced,
// and removed before the file is.
//
// bbolt maps its file and trusts it: damage shows as a panic, or as a fault when
// the file is shorter than it says. Both become ErrUnusable here. Worse is a page that
// leads back to itself, so the pages are checked before. What bbolt left
// locked stays so; after the first such error the index is dead and its file
// removed, for the next start would meet the same.
type Index struct {
	db   *bbolt.DB
	path string
	dead atomic.Bool
}

// Open opens the index in dir, made if it is missing. clean says that it was
// closed after the last change, so that it knows of every file.
func Open(dir string) (ix *Index, clean bool, err error) {
	ix = &Index{path: filepath.Join(dir, Name)}
	if err := checkIndexPages(ix.path); err != nil {
		return nil, false, err
	}
	err = ix.guard(func() error {
		db, err := bbolt.Open(ix.path, 0o600, &bbolt.Options{
			// The directory's own lock was taken; nobody else has the file.
			Timeout:      time.Second,
			FreelistType: bbolt.FreelistMapType,
			// Without a stored list of free pages bbolt walks through all pages at the
			// start, in a goroutine where no guard of ours can catch what it meets.
			NoFreelistSync: false,
			NoStatistics:   true,
		})
		if err != nil {
			var errno syscall.Errno
			if !errors.As(err, &errno) && !errors.Is(err, bolterrors.ErrTimeout) {
				// The system had no part in it, so it is the content: a file that is too
				// short has an error of no kind.
				err = fmt.Errorf("%w: %w", ErrUnusable, err)
			}
			return err
		}
		ix.db = db
		return db.Update(func(tx *bbolt.Tx) error {
			for _, name := range [][]byte{objectsBucket, segmentsBucket, usesBucket, metaBucket, notesBuckets[0], notesBuckets[1]} {
				if _, err := tx.CreateBucketIfNotExists(name); err != nil {
					return err
				}
			}
			meta := tx.Bucket(metaBucket)
			clean = meta.Get(cleanKey) != nil
			return meta.Delete(cleanKey)
		})
	})
	if err != nil {
		if ix.db != nil {
			_ = ix.Close()
		}
		return nil, false, err
	}
	return ix, clean, nil
}

// SetClean notes that the index knows of every file. Nothing may be stored after
// it.
func (ix *Index) SetClean() error {
	return ix.guard(func() error {
		return ix.db.Update(func(tx *bbolt.Tx) error {
			return tx.Bucket(metaBucket).Put(cleanKey, []byte{recordVersion})
		})
	})
}

// Damaged tells whether an error of Open says that the file is not an index,
// rather than that the disk does not work.
func Damaged(err error) bool {
	return errors.Is(err, ErrUnusable) || errors.Is(err, bolterrors.ErrInvalid) ||
		errors.Is(err, bolterrors.ErrChecksum) || errors.Is(err, bolterrors.ErrVersionMismatch) ||
		errors.Is(err, bolterrors.ErrIncompatibleValue)
}

// guard runs f, which uses bbolt, and returns its panics as errors.
func (ix *Index) guard(f func() error) (err error) {
	if ix.dead.Load() {
		return ErrUnusable
	}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %v", ErrUnusable, p)
			if !ix.dead.Swap(true) {
				_ = os.Remove(ix.path)
			}
		}
	}()
	return f()
}

// Visit calls f with every object, its last use, and what is wrong with its
// record.
func (ix *Index) Visit(f func(id content.Identity, r Object, use content.Use, err error)) error {
	return ix.guard(func() error {
		return ix.db.View(func(tx *bbolt.Tx) error {
			uses := tx.Bucket(usesBucket)
			return tx.Bucket(objectsBucket).ForEach(func(k, v []byte) error {
				if len(k) != len(content.Identity{}) {
					return fmt.Errorf("%w: key of %d bytes", ErrUnusable, len(k))
				}
				id := content.Identity(k)
				r, err := parseObjectRecord(id, v)
				// Without a good use record an object counts as never used.
				use, _ := parseUseRecord(id, uses.Get(k))
				f(id, r, use, err)
				return nil
			})
		})
	})
}

// Load returns what is stored of an object: nil if nothing is. A damaged segment
// is left out.
func (ix *Index) Load(id content.Identity) (r *Object, segments map[int]*Segment, err error) {
	err = ix.guard(func() error {
		return ix.db.View(func(tx *bbolt.Tx) error {
			v := tx.Bucket(objectsBucket).Get(id[:])
			if v == nil {
				return nil
			}
			parsed, err := parseObjectRecord(id, v)
			if err != nil {
				return err
			}
			r, segments = &parsed, make(map[int]*Segment)
			return eachSegment(tx, id, func(k, v []byte, segment int) error {
				if s, err := parseSegmentRecord(k, v); err == nil {
					segments[segment] = s
				}
				return nil
			})
		})
	})
	return r, segments, err
}

// eachSegment calls f with the segment records of an object.
func eachSegment(tx *bbolt.Tx, id content.Identity, f func(k, v []byte, segment int) error) error {
	cursor := tx.Bucket(segmentsBucket).Cursor()
	for k, v := cursor.Seek(id[:]); len(k) == len(id)+4 && content.Identity(k[:len(id)]) == id; k, v = cursor.Next() {
		tail := k[len(id):]
		segment := int(tail[0])<<24 | int(tail[1])<<16 | int(tail[2])<<8 | int(tail[3])
		if err := f(k, v, segment); err != nil {
			return err
		}
	}
	return nil
}

// Update is what changes about one object.
type Update struct {
	ID     content.Identity
	Record Object
	Use    content.Use
	// Segments are those that changed; one without blocks is removed.
	Segments map[int]*Segment
}

// Store makes the updates durable, all of them or none.
func (ix *Index) Store(updates []Update) error {
	return ix.guard(func() error {
		return ix.db.Update(func(tx *bbolt.Tx) error {
			objects, segments, uses := tx.Bucket(objectsBucket), tx.Bucket(segmentsBucket), tx.Bucket(usesBucket)
			for _, u := range updates {
				if err := objects.Put(u.ID[:], appendObjectRecord(nil, u.ID, u.Record)); err != nil {
					return err
				}
				if err := uses.Put(u.ID[:], appendUseRecord(nil, u.ID, u.Use)); err != nil {
					return err
				}
				for i, s := range u.Segments {
					key := segmentKey(u.ID, i)
					if s.Blocks == (content.BlockSet{}) {
						if err := segments.Delete(key); err != nil {
							return err
						}
						continue
					}
					if err := segments.Put(key, appendSegmentRecord(nil, key, s)); err != nil {
						return err
					}
				}
			}
			return nil
		})
	})
}

// StoreUses notes when objects were used, those of them that the index knows.
func (ix *Index) StoreUses(used map[content.Identity]content.Use) error {
	return ix.guard(func() error {
		return ix.db.Update(func(tx *bbolt.Tx) error {
			objects, uses := tx.Bucket(objectsBucket), tx.Bucket(usesBucket)
			for id, use := range used {
				if objects.Get(id[:]) == nil {
					continue
				}
				if err := uses.Put(id[:], appendUseRecord(nil, id, use)); err != nil {
					return err
				}
			}
			return nil
		})
	})
}

// Remove durably forgets objects. Of none of which it knows anything costs no write.
func (ix *Index) Remove(ids []content.Identity) error {
	return ix.guard(func() error {
		known := false
		if err := ix.db.View(func(tx *bbolt.Tx) error {
			objects := tx.Bucket(objectsBucket)
			known = slices.ContainsFunc(ids, func(id content.Identity) bool { return objects.Get(id[:]) != nil })
			return nil
		}); err != nil || !known {
			return err
		}
		return ix.db.Update(func(tx *bbolt.Tx) error {
			objects, segments, uses := tx.Bucket(objectsBucket), tx.Bucket(segmentsBucket), tx.Bucket(usesBucket)
			for _, id := range ids {
				if err := objects.Delete(id[:]); err != nil {
					return err
				}
				if err := uses.Delete(id[:]); err != nil {
					return err
				}
				var keys [][]byte
				err := eachSegment(tx, id, func(k, _ []byte, _ int) error {
					keys = append(keys, bytes.Clone(k))
					return nil
				})
				if err != nil {
					return err
				}
				for _, k := range keys {
					if err := segments.Delete(k); err != nil {
						return err
					}
				}
			}
			return nil
		})
	})
}

// Close closes the index. Of a dead one nothing can be closed: bbolt would wait for
// itself.
func (ix *Index) Close() error {
	if ix.dead.Load() {
		return nil
	}
	return ix.guard(ix.db.Close)
}
