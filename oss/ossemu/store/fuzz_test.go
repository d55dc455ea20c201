package store

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// FuzzOpen opens a directory whose journal is arbitrary. It may be refused, but
// must not crash nor take memory for lengths that are lies.
func FuzzOpen(f *testing.F) {
	var e encoder
	encodeHeader(&e)
	header := appendFrame(nil, e.b)
	f.Add(header)
	e.b = nil
	encodeBucket(&e, &Bucket{Name: testBucket})
	withBucket := appendFrame(bytes.Clone(header), e.b)
	f.Add(withBucket)
	e.b = nil
	encodeObject(&e, testBucket, "key", &Object{Attrs: &Attributes{Meta: []Pair{{"a", "b"}}}, parts: 3}, "upload")
	f.Add(appendFrame(bytes.Clone(withBucket), e.b))
	e.b = nil
	encodePart(&e, testBucket, "id", &part{Part: Part{Number: 1}})
	f.Add(appendFrame(bytes.Clone(withBucket), e.b))
	f.Fuzz(func(t *testing.T, journal []byte) {
		dir := t.TempDir()
		if err := os.MkdirAll(filepath.Join(dir, "index"), 0o700); err != nil {
			t.Fatal(err)
		}
		writeFile(t, filepath.Join(dir, "index", "journal-00000001"), journal)
		s, err := Open(Config{Dir: dir})
		if err != nil {
			return
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

// FuzzRecord replays an arbitrary record, which reaches further than a whole
// file, whose checksum is in the way.
func FuzzRecord(f *testing.F) {
	var e encoder
	encodeObject(&e, testBucket, "key", &Object{Attrs: &Attributes{Tags: []Pair{{"a", "b"}}}}, "")
	f.Add(e.b)
	e.b = nil
	encodeUpload(&e, testBucket, &upload{Upload: Upload{ID: "id", Key: "key", Attrs: &Attributes{}}})
	f.Add(e.b)
	e.b = nil
	encodePart(&e, testBucket, "id", &part{Part: Part{Number: 1}, extents: []extent{{&file{id: 1}, 2, 3}}})
	f.Add(e.b)
	e.b = nil
	encodeObjectGone(&e, testBucket, "key")
	f.Add(e.b)
	f.Fuzz(func(_ *testing.T, payload []byte) {
		s := &Store{}
		s.mu.buckets = buckets{testBucket: newBucket(Bucket{Name: testBucket})}
		s.mu.buckets[testBucket].uploads["id"] = &upload{parts: make(map[int]*part)}
		s.mu.attributes = make(sharedAttributes)
		r := &replay{store: s, files: make(map[uint64]*file), records: 1}
		_ = r.record(payload)
	})
}
