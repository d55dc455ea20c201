package store

import (
	"slices"
	"strings"
	"time"

	"github.com/tidwall/btree"
)

// Bucket is what is known of a bucket.
type Bucket struct {
	Name         string
	Created      time.Time
	ACL          string
	StorageClass string
	Redundancy   string
}

// bucket is a bucket with its contents, guarded by the store's mu.
type bucket struct {
	info    Bucket
	objects *btree.Map[string, *Object]
	uploads map[string]*upload
	// bytes is the sum of the objects' sizes.
	bytes int64
}

// buckets are all there are, by name, guarded by the store's mu.
type buckets map[string]*bucket

func newBucket(info Bucket) *bucket {
	return &bucket{info: info, objects: btree.NewMap[string, *Object](64), uploads: make(map[string]*upload)}
}

// set makes o the value of key and returns the one before, if any.
func (b *bucket) set(key string, o *Object) *Object {
	old, _ := b.objects.Set(key, o)
	b.bytes += o.Size
	if old != nil {
		b.bytes -= old.Size
	}
	return old
}

// remove removes key and returns what it held, if anything.
func (b *bucket) remove(key string) *Object {
	old, _ := b.objects.Delete(key)
	if old != nil {
		b.bytes -= old.Size
	}
	return old
}

// CreateBucket makes a bucket.
func (s *Store) CreateBucket(info Bucket) error {
	info.Created = time.Unix(s.now().Unix(), 0).UTC()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.buckets[info.Name] != nil {
		return ErrBucketExists
	}
	var e encoder
	encodeBucket(&e, &info)
	if err := s.commit(&e); err != nil {
		return err
	}
	s.mu.buckets[info.Name] = newBucket(info)
	return nil
}

// SetBucketACL changes who may use a bucket without a signature.
func (s *Store) SetBucketACL(name, acl string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.mu.buckets[name]
	if b == nil {
		return ErrNoBucket
	}
	info := b.info
	info.ACL = acl
	var e encoder
	encodeBucket(&e, &info)
	if err := s.commit(&e); err != nil {
		return err
	}
	b.info = info
	return nil
}

// DeleteBucket removes an empty bucket.
func (s *Store) DeleteBucket(name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.mu.buckets[name]
	if b == nil {
		return ErrNoBucket
	}
	if b.objects.Len() > 0 || len(b.uploads) > 0 {
		return ErrNotEmpty
	}
	var e encoder
	encodeBucketGone(&e, name)
	if err := s.commit(&e); err != nil {
		return err
	}
	delete(s.mu.buckets, name)
	return nil
}

// Bucket returns what is known of a bucket.
func (s *Store) Bucket(name string) (Bucket, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	b := s.mu.buckets[name]
	if b == nil {
		return Bucket{}, ErrNoBucket
	}
	return b.info, nil
}

// Buckets returns the buckets whose name begins with prefix and comes after
// marker, in order, at most limit, and whether there are more.
func (s *Store) Buckets(prefix, marker string, limit int) (found []Bucket, more bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for name, b := range s.mu.buckets {
		if strings.HasPrefix(name, prefix) && name > marker {
			found = append(found, b.info)
		}
	}
	slices.SortFunc(found, func(a, b Bucket) int { return strings.Compare(a.Name, b.Name) })
	if len(found) > limit {
		return found[:limit], true
	}
	return found, false
}

// Usage is how much a bucket holds.
type Usage struct {
	Objects, Bytes, Uploads, Parts, PartBytes int64
}

// Usage counts what a bucket holds.
func (s *Store) Usage(name string) (Usage, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	b := s.mu.buckets[name]
	if b == nil {
		return Usage{}, ErrNoBucket
	}
	u := Usage{Objects: int64(b.objects.Len()), Bytes: b.bytes, Uploads: int64(len(b.uploads))}
	for _, up := range b.uploads {
		for _, p := range up.parts {
			u.Parts++
			u.PartBytes += p.Size
		}
	}
	return u, nil
}
