package manifest

import (
	"fmt"
	"iter"
)

// Change says that a key has a new record, or is gone.
type Change struct {
	Record
	// Deleted says that the key is gone; only Key counts then.
	Deleted bool
}

// Merge returns the records of old with changes made, in the order of keys. Both
// must be in that order, each key once; if one is not, the result ends with an
// error.
func Merge(old iter.Seq2[Record, error], changes iter.Seq2[Change, error]) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		next, stop := iter.Pull2(changes)
		defer stop()
		var change Change
		pending, last, begun := false, "", false
		// advance reads the next change. It returns false if that failed and the
		// error was told.
		advance := func() bool {
			c, err, ok := next()
			switch {
			case !ok:
				pending = false
				return true
			case err != nil:
				yield(Record{}, err)
				return false
			case begun && c.Key <= last:
				yield(Record{}, fmt.Errorf("merge changes: key %q comes after %q", c.Key, last))
				return false
			}
			change, pending, last, begun = c, true, c.Key, true
			return true
		}
		if !advance() {
			return
		}
		// flush yields the changes before limit, or all.
		flush := func(limit string, all bool) bool {
			for pending && (all || change.Key < limit) {
				if !change.Deleted && !yield(change.Record, nil) {
					return false
				}
				if !advance() {
					return false
				}
			}
			return true
		}
		lastOld, anyOld := "", false
		for r, err := range old {
			if err != nil {
				yield(Record{}, err)
				return
			}
			if anyOld && r.Key <= lastOld {
				yield(Record{}, fmt.Errorf("merge changes: key %q comes after %q in what is changed", r.Key, lastOld))
				return
			}
			lastOld, anyOld = r.Key, true
			if !flush(r.Key, false) {
				return
			}
			if pending && change.Key == r.Key {
				continue // flushed with the next key
			}
			if !yield(r, nil) {
				return
			}
		}
		flush("", true)
	}
}
