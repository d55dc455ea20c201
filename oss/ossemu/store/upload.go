package store

import (
	"crypto/md5"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
)

// MinPartSize is the least that a part other than the last may have.
const MinPartSize = 100 << 10

// Upload is a multipart upload that has been begun.
type Upload struct {
	ID        string
	Key       string
	Initiated time.Time
	Attrs     *Attributes
}

// upload is an Upload with its parts, guarded by the store's mu.
type upload struct {
	Upload
	parts map[int]*part
}

// Part is one part of a multipart upload.
type Part struct {
	Number int
	Size   int64
	CRC64  uint64

	tag     [16]byte
	modTime int64
}

// ETag is the part's entity tag.
func (p *Part) ETag() string { return formatETag(p.tag, 0) }

// ModTime is when the part was received, in whole seconds.
func (p *Part) ModTime() time.Time { return time.Unix(p.modTime, 0).UTC() }

// part is a Part with its bytes. It is never changed.
type part struct {
	Part
	extents []extent
}

// CreateUpload begins a multipart upload of key.
func (s *Store) CreateUpload(bucket, key string, attrs Attributes) (Upload, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.mu.buckets[bucket]
	if b == nil {
		return Upload{}, ErrNoBucket
	}
	u := &upload{parts: make(map[int]*part)}
	u.ID = formatETag(randomTag(), 0)
	u.Key = key
	u.Initiated = time.Unix(s.now().Unix(), 0).UTC()
	u.Attrs = s.mu.attributes.intern(&attrs)
	var e encoder
	encodeUpload(&e, bucket, u)
	if err := s.commit(&e); err != nil {
		return Upload{}, err
	}
	b.uploads[u.ID] = u
	return u.Upload, nil
}

// upload finds an upload. The caller holds the store's mu.
func (all buckets) upload(bucket, key, id string) (*bucket, *upload, error) {
	b := all[bucket]
	if b == nil {
		return nil, nil, ErrNoBucket
	}
	u := b.uploads[id]
	if u == nil || u.Key != key {
		return nil, nil, ErrNoUpload
	}
	return b, u, nil
}

// Upload returns an upload that has been begun.
func (s *Store) Upload(bucket, key, id string) (Upload, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	_, u, err := s.mu.buckets.upload(bucket, key, id)
	if err != nil {
		return Upload{}, err
	}
	return u.Upload, nil
}

// PutPart makes blob a part of an upload. The same number again replaces it. The
// bytes of blob are handed over, whether it succeeds or not.
func (s *Store) PutPart(bucket, key, id string, number int, blob *Blob) (Part, error) {
	p := &part{
		Part:    Part{Number: number, Size: blob.Size, CRC64: blob.CRC64, tag: blob.MD5, modTime: s.now().Unix()},
		extents: blob.take(),
	}
	unused := p.extents
	defer func() { s.data.release(unused) }()
	s.mu.Lock()
	defer s.mu.Unlock()
	_, u, err := s.mu.buckets.upload(bucket, key, id)
	if err != nil {
		return Part{}, err
	}
	var e encoder
	encodePart(&e, bucket, id, p)
	if err := s.commit(&e); err != nil {
		return Part{}, err
	}
	unused = nil
	if old := u.parts[number]; old != nil {
		unused = old.extents
	}
	u.parts[number] = p
	return p.Part, nil
}

// Parts returns the parts of an upload with numbers above marker, in order, at
// most limit, and whether there are more.
func (s *Store) Parts(bucket, key, id string, marker, limit int) (u Upload, parts []Part, more bool, err error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	_, up, err := s.mu.buckets.upload(bucket, key, id)
	if err != nil {
		return Upload{}, nil, false, err
	}
	for _, n := range slices.Sorted(maps.Keys(up.parts)) {
		if n <= marker {
			continue
		}
		if len(parts) == limit {
			return up.Upload, parts, true, nil
		}
		parts = append(parts, up.parts[n].Part)
	}
	return up.Upload, parts, false, nil
}

// CompletePart names a part by number and entity tag.
type CompletePart struct {
	Number int
	ETag   string
}

// Complete makes an object of parts and ends the upload. With all it takes
// every part there is instead; no parts make an empty object. The parts' bytes
// are not moved. Of o.Attrs only the ACL counts, if it has one.
func (s *Store) Complete(bucket, key, id string, parts []CompletePart, all bool, o PutOptions) (*Object, error) {
	var unused []extent
	defer func() { s.data.release(unused) }()
	s.mu.Lock()
	defer s.mu.Unlock()
	b, u, err := s.mu.buckets.upload(bucket, key, id)
	if err != nil {
		return nil, err
	}
	if all {
		for _, n := range slices.Sorted(maps.Keys(u.parts)) {
			parts = append(parts, CompletePart{n, u.parts[n].ETag()})
		}
	}
	chosen, err := u.choose(parts)
	if err != nil {
		return nil, err
	}
	if _, exists := b.objects.Get(key); exists && o.ForbidOverwrite {
		return nil, ErrExists
	}
	obj := assemble(chosen)
	obj.Attrs = u.Attrs
	if o.Attrs.ACL != "" {
		attrs := *u.Attrs
		attrs.ACL = o.Attrs.ACL
		obj.Attrs = s.mu.attributes.intern(&attrs)
	}
	obj.modTime = s.now().Unix()
	var e encoder
	encodeObject(&e, bucket, key, obj, id)
	if err := s.commit(&e); err != nil {
		return nil, err
	}
	// The object has references of its own; the parts give theirs up.
	retain(obj.extents)
	for _, p := range u.parts {
		unused = append(unused, p.extents...)
	}
	delete(b.uploads, id)
	if old := b.set(key, obj); old != nil {
		unused = append(unused, old.extents...)
	}
	return obj, nil
}

// choose finds the named parts and checks what the service checks.
func (u *upload) choose(parts []CompletePart) ([]*part, error) {
	chosen := make([]*part, 0, len(parts))
	for i, c := range parts {
		if i > 0 && c.Number <= parts[i-1].Number {
			return nil, ErrPartOrder
		}
		p := u.parts[c.Number]
		if p == nil || !SameETag(c.ETag, p.ETag()) {
			return nil, fmt.Errorf("%w: number %d", ErrInvalidPart, c.Number)
		}
		chosen = append(chosen, p)
	}
	for i, p := range chosen {
		if p.Size < MinPartSize && i < len(chosen)-1 {
			return nil, fmt.Errorf("%w: number %d has %d bytes", ErrPartTooSmall, p.Number, p.Size)
		}
	}
	return chosen, nil
}

// assemble makes an object of parts, without references of its own.
func assemble(parts []*part) *Object {
	obj := &Object{Type: Multipart, parts: int32(len(parts))}
	sum := md5.New()
	for _, p := range parts {
		// The service hashes the parts' tags as text; a tag in a test of its SDK shows
		// it.
		_, _ = io.WriteString(sum, p.ETag()) // never fails
		obj.CRC64 = CombineCRC64(obj.CRC64, p.CRC64, p.Size)
		obj.Size += p.Size
		obj.extents = append(obj.extents, p.extents...)
	}
	obj.extents = joinExtents(obj.extents, nil)
	sum.Sum(obj.tag[:0])
	return obj
}

// Abort forgets an upload and its parts.
func (s *Store) Abort(bucket, key, id string) error {
	var unused []extent
	defer func() { s.data.release(unused) }()
	s.mu.Lock()
	defer s.mu.Unlock()
	b, u, err := s.mu.buckets.upload(bucket, key, id)
	if err != nil {
		return err
	}
	var e encoder
	encodeUploadGone(&e, bucket, id)
	if err := s.commit(&e); err != nil {
		return err
	}
	for _, p := range u.parts {
		unused = append(unused, p.extents...)
	}
	delete(b.uploads, id)
	return nil
}

// UploadQuery asks for one page of the uploads of a bucket.
type UploadQuery struct {
	Prefix, Delimiter string
	// KeyMarker and IDMarker are exclusive; IDMarker counts for uploads of the key
	// KeyMarker only.
	KeyMarker, IDMarker string
	Limit               int
}

// UploadPage is one page of uploads, by key and then by id.
type UploadPage struct {
	Uploads  []Upload
	Prefixes []string
	// More says that the page is not the last; NextKey and NextID then continue.
	More            bool
	NextKey, NextID string
}

// Uploads lists the uploads that have been begun in a bucket.
func (s *Store) Uploads(bucket string, q UploadQuery) (UploadPage, error) {
	uploads, err := s.matchingUploads(bucket, q)
	if err != nil {
		return UploadPage{}, err
	}
	var page UploadPage
	lastPrefix := ""
	for _, u := range uploads {
		prefix := commonPrefix(u.Key, q.Prefix, q.Delimiter)
		if prefix != "" && (prefix == lastPrefix || prefix == q.KeyMarker) {
			continue
		}
		if len(page.Uploads)+len(page.Prefixes) == q.Limit {
			page.More = true
			return page, nil
		}
		if prefix != "" {
			lastPrefix = prefix
			page.Prefixes = append(page.Prefixes, prefix)
			page.NextKey, page.NextID = prefix, ""
			continue
		}
		page.Uploads = append(page.Uploads, u)
		page.NextKey, page.NextID = u.Key, u.ID
	}
	page.NextKey, page.NextID = "", ""
	return page, nil
}

// matchingUploads returns the uploads behind the markers, in order.
func (s *Store) matchingUploads(bucket string, q UploadQuery) ([]Upload, error) {
	s.mu.RLock()
	b := s.mu.buckets[bucket]
	if b == nil {
		s.mu.RUnlock()
		return nil, ErrNoBucket
	}
	var found []Upload
	for _, u := range b.uploads {
		behind := u.Key > q.KeyMarker || (u.Key == q.KeyMarker && q.IDMarker != "" && u.ID > q.IDMarker)
		if strings.HasPrefix(u.Key, q.Prefix) && behind {
			found = append(found, u.Upload)
		}
	}
	s.mu.RUnlock()
	slices.SortFunc(found, func(a, b Upload) int {
		if c := strings.Compare(a.Key, b.Key); c != 0 {
			return c
		}
		return strings.Compare(a.ID, b.ID)
	})
	return found, nil
}
