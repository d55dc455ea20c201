package store

import (
	"bytes"
	"crypto/md5"
	"errors"
	"hash/crc64"
	"hash/maphash"
	"io"
	"slices"
	"sync"
)

// tailLimit is the largest append that is written behind the end of the file of
// the append before. Longer ones get a file each.
const tailLimit = 1 << 20

// AppendOptions are the properties of an append.
type AppendOptions struct {
	// Position must be the object's length; 0 makes the object.
	Position int64
	// Limit is the most that the object may become.
	Limit int64
	// Attrs are the attributes of an object that is made. One that exists keeps its
	// own, but for the ACL if Attrs has one.
	Attrs Attributes
	// Verify, when set, is given the MD5 of what was received, before it counts.
	Verify func(md5 [16]byte) error
}

// Append adds everything that r gives to the end of an appendable object, or
// makes one.
func (s *Store) Append(bucket, key string, r io.Reader, o AppendOptions) (*Object, error) {
	// Asked before the body is read as well, so that nobody sends it in vain.
	_, content, err := s.appendTo(bucket, key, o.Position)
	if err != nil {
		return nil, err
	}
	if content != nil {
		content.Close()
	}
	small := bytes.NewBuffer(make([]byte, 0, 64<<10))
	if _, err := io.Copy(small, io.LimitReader(r, tailLimit+1)); err != nil {
		return nil, err
	}
	if int64(small.Len()) > o.Limit-o.Position {
		return nil, ErrTooLarge
	}
	if small.Len() > tailLimit {
		blob, err := s.data.write(io.MultiReader(small, r), o.Limit-o.Position, true)
		if err != nil {
			return nil, err
		}
		defer blob.Release()
		return s.appendBlob(bucket, key, blob, nil, o)
	}
	body := small.Bytes()
	blob := &Blob{data: &s.data, Size: int64(len(body)), CRC64: crc64.Checksum(body, crcTable), MD5: md5.Sum(body)}
	defer blob.Release()
	return s.appendBlob(bucket, key, blob, body, o)
}

// appendTo opens the object that an append at position continues. Both are nil
// for an object that the append makes.
func (s *Store) appendTo(bucket, key string, position int64) (*Object, *Content, error) {
	old, content, err := s.Open(bucket, key)
	switch {
	case errors.Is(err, ErrNoKey) && position == 0:
		return nil, nil, nil
	case errors.Is(err, ErrNoKey):
		return nil, nil, ErrPosition
	case err != nil:
		return nil, nil, err
	case old.Type != Appendable:
		err = ErrNotAppendable
	case old.Size != position:
		err = ErrPosition
	}
	if err != nil {
		content.Close()
		return nil, nil, err
	}
	return old, content, nil
}

// appendBlob makes the append happen. A body that is small is not in blob yet
// and finds its place here.
func (s *Store) appendBlob(bucket, key string, blob *Blob, body []byte, o AppendOptions) (*Object, error) {
	if o.Verify != nil {
		if err := o.Verify(blob.MD5); err != nil {
			return nil, err
		}
	}
	lock := s.appends.of(bucket, key)
	lock.Lock()
	defer lock.Unlock()
	// Held open, so that its extents cannot go before the new version has them.
	old, content, err := s.appendTo(bucket, key, o.Position)
	if err != nil {
		return nil, err
	}
	obj := &Object{Type: Appendable, Attrs: &o.Attrs}
	if old != nil {
		defer content.Close()
		c := *old
		obj = &c
		if o.Attrs.ACL != "" && o.Attrs.ACL != old.Attrs.ACL {
			attrs := *old.Attrs
			attrs.ACL = o.Attrs.ACL
			obj.Attrs = &attrs
		}
	}
	if len(body) > 0 {
		e, err := s.data.placeTail(obj.extents, body)
		if err != nil {
			return nil, err
		}
		blob.extents = []extent{e}
	}
	obj.Size += blob.Size
	obj.CRC64 = CombineCRC64(obj.CRC64, blob.CRC64, blob.Size)
	obj.tag, obj.parts = randomTag(), opaque
	obj.modTime = s.now().Unix()
	obj.extents = joinExtents(obj.extents, blob.extents)
	return obj, s.commitAppend(bucket, key, old, obj, blob)
}

func (s *Store) commitAppend(bucket, key string, old, obj *Object, blob *Blob) error {
	var replaced []extent
	// The new version's references: those of the old extents are taken anew, the
	// blob's are handed over. Where two extents became one, one reference is
	// enough, and taking them by the new list keeps the count right.
	retain(obj.extents)
	err := func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		b := s.mu.buckets[bucket]
		if b == nil {
			return ErrNoBucket
		}
		if current, _ := b.objects.Get(key); current != old {
			return ErrPosition
		}
		obj.Attrs = s.mu.attributes.intern(obj.Attrs)
		var e encoder
		encodeObject(&e, bucket, key, obj, "")
		if err := s.commit(&e); err != nil {
			return err
		}
		if o := b.set(key, obj); o != nil {
			replaced = o.extents
		}
		return nil
	}()
	if err != nil {
		replaced = obj.extents
	}
	s.data.release(replaced)
	blob.Release()
	return err
}

// joinExtents returns a followed by b, as one where they touch.
func joinExtents(a, b []extent) []extent {
	joined := make([]extent, 0, len(a)+len(b))
	for _, e := range slices.Concat(a, b) {
		if n := len(joined); n > 0 {
			if last := &joined[n-1]; last.file == e.file && last.off+last.n == e.off {
				last.n += e.n
				continue
			}
		}
		joined = append(joined, e)
	}
	return joined
}

// appendLocks serialise the appends to one key, which write behind the end of a
// file that only that key has.
type appendLocks struct {
	seed  maphash.Seed
	locks [64]sync.Mutex
}

// of returns the lock of a key, which it may share with others.
func (l *appendLocks) of(bucket, key string) *sync.Mutex {
	var h maphash.Hash
	h.SetSeed(l.seed)
	_, _ = h.WriteString(bucket) // never fails
	_ = h.WriteByte(0)
	_, _ = h.WriteString(key)
	return &l.locks[h.Sum64()%uint64(len(l.locks))]
}
