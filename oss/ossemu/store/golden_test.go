package store

import (
	"bytes"
	"flag"
	"os"
	"testing"
	"time"
)

// -golden writes testdata/v1 anew, for a new version of the format.
var golden = flag.Bool("golden", false, "write testdata/v1")

// goldenContent fills a store with one of everything.
func goldenContent(t *testing.T, s *Store) {
	t.Helper()
	if err := s.CreateBucket(Bucket{Name: testBucket, ACL: "private", StorageClass: "Standard", Redundancy: "LRS"}); err != nil {
		t.Fatal(err)
	}
	b, err := s.Write(bytes.NewReader(pattern(1, 100)), 1<<20, true)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Put(testBucket, "small", b, PutOptions{Attrs: Attributes{
		ContentType: "text/plain", CacheControl: "no-cache", ContentDisposition: "inline", ContentEncoding: "identity",
		ContentLanguage: "en", Expires: "0", StorageClass: "IA", ACL: "public-read", Encryption: "AES256",
		Meta: []Pair{{"author", "a"}}, Tags: []Pair{{"k", "v"}},
	}}); err != nil {
		t.Fatal(err)
	}
	put(t, s, "large", pattern(2, packLimit+1))
	copyOf(t, s, "large", "copy")
	appendTo(t, s, 0, pattern(3, 10))
	if _, err := s.PutSymlink(testBucket, "link", PutOptions{Attrs: Attributes{Target: "small"}}); err != nil {
		t.Fatal(err)
	}
	put(t, s, "gone", nil)
	if _, err := s.Delete(testBucket, "gone"); err != nil {
		t.Fatal(err)
	}
	u, err := s.CreateUpload(testBucket, "unfinished", Attributes{})
	if err != nil {
		t.Fatal(err)
	}
	if b, err = s.Write(bytes.NewReader(pattern(4, 50)), 1<<20, true); err != nil {
		t.Fatal(err)
	}
	if _, err := s.PutPart(testBucket, "unfinished", u.ID, 7, b); err != nil {
		t.Fatal(err)
	}
}

func TestTheFormatOfVersion1IsRead(t *testing.T) {
	const dir = "testdata/v1"
	if *golden {
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		s, err := Open(Config{Dir: dir, Now: func() time.Time { return time.Unix(1_700_000_000, 0) }})
		if err != nil {
			t.Fatal(err)
		}
		goldenContent(t, s)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	copied := t.TempDir()
	if err := os.CopyFS(copied, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	s := openStore(t, copied)
	for key, want := range map[string][]byte{
		"small": pattern(1, 100), "large": pattern(2, packLimit+1), "copy": pattern(2, packLimit+1), "log": pattern(3, 10),
	} {
		if got := read(t, s, key); !bytes.Equal(got, want) {
			t.Errorf("%q differs", key)
		}
	}
	o, err := s.Object(testBucket, "small")
	if err != nil {
		t.Fatal(err)
	}
	if got := o.Attrs; got.ContentType != "text/plain" || got.StorageClass != "IA" || got.Meta[0] != (Pair{"author", "a"}) ||
		got.Tags[0] != (Pair{"k", "v"}) || got.Encryption != "AES256" || got.Expires != "0" {
		t.Errorf("attributes %+v", got)
	}
	if !o.ModTime().Equal(time.Unix(1_700_000_000, 0)) || o.ETag() != "5151B93CD50C14D844182C1AD5B2E295" {
		t.Errorf("modified %v, tag %s", o.ModTime(), o.ETag())
	}
	link, err := s.Object(testBucket, "link")
	if err != nil || link.Type != Symlink || link.Attrs.Target != "small" {
		t.Errorf("link %+v, %v", link, err)
	}
	page, err := s.Uploads(testBucket, UploadQuery{Limit: 10})
	if err != nil || len(page.Uploads) != 1 {
		t.Fatalf("uploads %+v, %v", page, err)
	}
	_, parts, _, err := s.Parts(testBucket, "unfinished", page.Uploads[0].ID, 0, 10)
	if err != nil || len(parts) != 1 || parts[0].Number != 7 || parts[0].Size != 50 {
		t.Errorf("parts %+v, %v", parts, err)
	}
}
