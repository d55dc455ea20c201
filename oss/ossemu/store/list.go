package store

import (
	"strings"

	"github.com/tidwall/btree"
)

// ListQuery asks for one page of a listing.
type ListQuery struct {
	// Prefix limits the listing to keys that begin with it.
	Prefix string
	// Delimiter folds the keys that contain it behind Prefix.
	Delimiter string
	// After begins the listing behind this key or common prefix. A common prefix
	// is not repeated; one in which After merely lies is.
	After string
	// Limit is the most entries, keys and common prefixes together.
	Limit int
}

// ListEntry is one line of a listing. Object is nil for a common prefix.
type ListEntry struct {
	Key    string
	Object *Object
}

// ListPage is one page of a listing, in the byte order of keys.
type ListPage struct {
	Entries []ListEntry
	// More says that the page is not the last. Its last entry's Key then is the
	// After of the next one.
	More bool
}

// List returns one page of a bucket's keys.
func (s *Store) List(bucket string, q ListQuery) (ListPage, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	b := s.mu.buckets[bucket]
	if b == nil {
		return ListPage{}, ErrNoBucket
	}
	return list(b.objects, q), nil
}

// Listing is the names of a bucket as they were at one instant.
type Listing struct {
	objects *btree.Map[string, *Object]
}

// Freeze returns the names of a bucket as they are now. It costs nothing but
// the memory of what changes later.
func (s *Store) Freeze(bucket string) (Listing, error) {
	s.mu.Lock() // copying a tree marks both sides as shared
	defer s.mu.Unlock()
	b := s.mu.buckets[bucket]
	if b == nil {
		return Listing{}, ErrNoBucket
	}
	return Listing{b.objects.Copy()}, nil
}

// List returns one page.
func (l Listing) List(q ListQuery) ListPage { return list(l.objects, q) }

// list walks a tree. Where a common prefix is found it seeks behind it, so that
// a page costs as much as its entries, whatever lies beneath them.
func list(objects *btree.Map[string, *Object], q ListQuery) ListPage {
	var page ListPage
	if q.Limit <= 0 {
		return page
	}
	it := objects.Iter()
	ok := false
	switch {
	case q.After == "" || q.After < q.Prefix:
		ok = it.Seek(q.Prefix)
	case q.Delimiter != "" && commonPrefix(q.After, q.Prefix, q.Delimiter) == q.After:
		ok = seekBehindPrefix(&it, q.After)
	default:
		ok = it.Seek(q.After)
		if ok && it.Key() == q.After {
			ok = it.Next()
		}
	}
	if ok {
		page.Entries = make([]ListEntry, 0, min(q.Limit, 1000))
	}
	for ok && strings.HasPrefix(it.Key(), q.Prefix) {
		if len(page.Entries) == q.Limit {
			page.More = true
			return page
		}
		key := it.Key()
		if folded := commonPrefix(key, q.Prefix, q.Delimiter); folded != "" {
			page.Entries = append(page.Entries, ListEntry{Key: folded})
			ok = seekBehindPrefix(&it, folded)
			continue
		}
		page.Entries = append(page.Entries, ListEntry{key, it.Value()})
		ok = it.Next()
	}
	return page
}

// seekBehindPrefix moves to the first key that does not begin with prefix and is
// greater than it.
func seekBehindPrefix(it *btree.MapIter[string, *Object], prefix string) bool {
	b := []byte(prefix)
	for len(b) > 0 && b[len(b)-1] == 0xff {
		b = b[:len(b)-1]
	}
	if len(b) == 0 {
		return false
	}
	b[len(b)-1]++
	return it.Seek(string(b))
}

// commonPrefix returns what key is folded to, "" if it is not.
func commonPrefix(key, prefix, delimiter string) string {
	if delimiter == "" || !strings.HasPrefix(key, prefix) {
		return ""
	}
	i := strings.Index(key[len(prefix):], delimiter)
	if i < 0 {
		return ""
	}
	return key[:len(prefix)+i+len(delimiter)]
}
