package store

import "crypto/rand"

// PutOptions are the properties of an object that is made.
type PutOptions struct {
	Attrs Attributes
	// ForbidOverwrite makes the call fail with ErrExists if the key exists.
	ForbidOverwrite bool
	// Replace, when set, makes the call fail with ErrNoKey unless the key still
	// holds this version.
	Replace *Object
}

// Put makes b the content of key. The bytes of b are handed over, whether it
// succeeds or not.
func (s *Store) Put(bucket, key string, b *Blob, o PutOptions) (*Object, error) {
	obj := &Object{Type: Normal, Size: b.Size, CRC64: b.CRC64, tag: b.MD5, extents: b.take(), Attrs: &o.Attrs}
	if !b.Digest {
		obj.parts = opaque
	}
	return s.put(bucket, key, obj, o)
}

// PutCopy makes a copy of src, whose content is b, the content of key. The copy
// keeps the checksum and the entity tag of its source.
func (s *Store) PutCopy(bucket, key string, src *Object, b *Blob, o PutOptions) (*Object, error) {
	return s.put(bucket, key, &Object{
		Type: Normal, Size: src.Size, CRC64: src.CRC64, tag: src.tag, parts: src.parts, extents: b.take(), Attrs: &o.Attrs,
	}, o)
}

// PutSymlink makes key a symlink to the key o.Attrs.Target. Its size is the
// length of that name.
func (s *Store) PutSymlink(bucket, key string, o PutOptions) (*Object, error) {
	return s.put(bucket, key, &Object{
		Type: Symlink, Size: int64(len(o.Attrs.Target)), tag: randomTag(), parts: opaque, Attrs: &o.Attrs,
	}, o)
}

func (s *Store) put(bucket, key string, obj *Object, o PutOptions) (*Object, error) {
	obj.modTime = s.now().Unix()
	unused := obj.extents
	defer func() { s.data.release(unused) }()
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.mu.buckets[bucket]
	if b == nil {
		return nil, ErrNoBucket
	}
	current, exists := b.objects.Get(key)
	if o.ForbidOverwrite && exists {
		return nil, ErrExists
	}
	if o.Replace != nil && current != o.Replace {
		return nil, ErrNoKey
	}
	obj.Attrs = s.mu.attributes.intern(obj.Attrs)
	var e encoder
	encodeObject(&e, bucket, key, obj, "")
	if err := s.commit(&e); err != nil {
		return nil, err
	}
	unused = nil
	if old := b.set(key, obj); old != nil {
		unused = old.extents
	}
	return obj, nil
}

// SetAttributes changes the attributes of an object, and nothing else of it.
// The function is given a copy to change.
func (s *Store) SetAttributes(bucket, key string, change func(*Attributes)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.mu.buckets[bucket]
	if b == nil {
		return ErrNoBucket
	}
	old, ok := b.objects.Get(key)
	if !ok {
		return ErrNoKey
	}
	attrs := *old.Attrs
	change(&attrs)
	// The new version has the extents of the old one, and with them its
	// references.
	obj := *old
	obj.Attrs = s.mu.attributes.intern(&attrs)
	var e encoder
	encodeObject(&e, bucket, key, &obj, "")
	if err := s.commit(&e); err != nil {
		return err
	}
	b.set(key, &obj)
	return nil
}

// Delete removes a key and says whether it existed.
func (s *Store) Delete(bucket, key string) (bool, error) {
	old, err := s.remove(bucket, key)
	if old == nil || err != nil {
		return false, err
	}
	s.data.release(old.extents)
	return true, nil
}

func (s *Store) remove(bucket, key string) (*Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.mu.buckets[bucket]
	if b == nil {
		return nil, ErrNoBucket
	}
	if _, ok := b.objects.Get(key); !ok {
		return nil, nil
	}
	var e encoder
	encodeObjectGone(&e, bucket, key)
	if err := s.commit(&e); err != nil {
		return nil, err
	}
	return b.remove(key), nil
}

// Object returns the version that key holds.
func (s *Store) Object(bucket, key string) (*Object, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	b := s.mu.buckets[bucket]
	if b == nil {
		return nil, ErrNoBucket
	}
	o, ok := b.objects.Get(key)
	if !ok {
		return nil, ErrNoKey
	}
	return o, nil
}

// Open returns the version that key holds and its content, which the caller
// must close.
func (s *Store) Open(bucket, key string) (*Object, *Content, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	b := s.mu.buckets[bucket]
	if b == nil {
		return nil, nil, ErrNoBucket
	}
	o, ok := b.objects.Get(key)
	if !ok {
		return nil, nil, ErrNoKey
	}
	// The index holds a reference to each extent for as long as mu is held.
	retain(o.extents)
	return o, &Content{data: &s.data, extents: o.extents}, nil
}

// randomTag makes an entity tag that says nothing of the content.
func randomTag() (tag [16]byte) {
	rand.Read(tag[:])
	return tag
}
