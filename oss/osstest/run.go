package osstest

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"testing"

	"github.com/pailfs/pailfs/oss"
)

// Run tests the bucket that open returns. open is called once for each test and
// may use t.Cleanup.
func Run(t *testing.T, open func(t *testing.T) oss.Bucket) {
	groups := []struct {
		name  string
		tests map[string]func(*fixture)
	}{
		{"Range", rangeTests},
		{"List", listTests},
		{"Head", headTests},
		{"Put", putTests},
		{"Copy", copyTests},
		{"Delete", deleteTests},
		{"Multipart", multipartTests},
		{"Context", contextTests},
	}
	for _, group := range groups {
		t.Run(group.name, func(t *testing.T) {
			for name, test := range group.tests {
				t.Run(name, func(t *testing.T) { test(newFixture(t, open(t))) })
			}
		})
	}
}

// fixture is a bucket and a prefix that is the test's own.
type fixture struct {
	*testing.T
	bucket oss.Bucket
	prefix string
}

func newFixture(t *testing.T, bucket oss.Bucket) *fixture {
	t.Helper()
	id := make([]byte, 8)
	_, _ = rand.Read(id) // it never fails
	f := &fixture{T: t, bucket: bucket, prefix: "osstest/" + hex.EncodeToString(id) + "/"}
	t.Cleanup(f.clean)
	return f
}

// clean removes all that the test wrote.
func (f *fixture) clean() {
	ctx := context.Background()
	uploads, err := f.bucket.ListUploads(ctx, f.prefix)
	if err != nil {
		f.Errorf("cleaning up: %v", err)
	}
	for _, u := range uploads {
		if err := f.bucket.AbortUpload(ctx, u); err != nil {
			f.Errorf("cleaning up: %v", err)
		}
	}
	var keys []string
	for _, o := range f.listAll(oss.ListRequest{Prefix: f.prefix}).Objects {
		keys = append(keys, o.Key)
	}
	if err := f.bucket.Delete(ctx, keys...); err != nil {
		f.Errorf("cleaning up: %v", err)
	}
}

// key returns a key of the test.
func (f *fixture) key(name string) string { return f.prefix + name }

// put stores content and fails the test if it cannot.
func (f *fixture) put(name string, content []byte) oss.Object {
	f.Helper()
	info, err := f.bucket.Put(context.Background(), f.key(name), bytes.NewReader(content), oss.PutOptions{})
	if err != nil {
		f.Fatalf("Put %q: %v", name, err)
	}
	return info.Object
}

// read returns the whole of an object.
func (f *fixture) read(o oss.Object) ([]byte, error) {
	if o.Size == 0 {
		return nil, nil
	}
	buffer := make([]byte, o.Size)
	_, err := f.bucket.ReadRange(context.Background(), oss.RangeRequest{Object: o, Buffer: buffer})
	return buffer, err
}

// mustHold fails the test unless name holds content.
func (f *fixture) mustHold(name string, content []byte) oss.Object {
	f.Helper()
	info, err := f.bucket.Head(context.Background(), f.key(name))
	if err != nil {
		f.Fatalf("Head %q: %v", name, err)
	}
	got, err := f.read(info.Object)
	if err != nil {
		f.Fatalf("reading %q: %v", name, err)
	}
	if !bytes.Equal(got, content) {
		f.Fatalf("%q holds %s, want %s", name, summary(got), summary(content))
	}
	return info.Object
}

// mustBeAbsent fails the test if name holds an object.
func (f *fixture) mustBeAbsent(name string) {
	f.Helper()
	if info, err := f.bucket.Head(context.Background(), f.key(name)); !errors.Is(err, oss.ErrNotFound) {
		f.Fatalf("Head %q = %+v, %v, want ErrNotFound", name, info, err)
	}
}

// listAll follows the pages of r and returns them as one.
func (f *fixture) listAll(r oss.ListRequest) oss.ListPage {
	f.Helper()
	var all oss.ListPage
	for {
		page, err := f.bucket.List(context.Background(), r)
		if err != nil {
			f.Fatalf("List %+v: %v", r, err)
		}
		all.Objects = append(all.Objects, page.Objects...)
		all.Prefixes = append(all.Prefixes, page.Prefixes...)
		if page.Next == "" {
			return all
		}
		r.Token = page.Next
	}
}

// wantError fails the test unless err is of kind.
func (f *fixture) wantError(err, kind error) {
	f.Helper()
	if !errors.Is(err, kind) {
		f.Fatalf("error is %v, want one that is %q", err, kind)
	}
}

// noise returns n bytes that no compression or repetition hides an error in. The
// same n gives the same bytes.
func noise(n int) []byte {
	b := make([]byte, n)
	source := mathrand.NewChaCha8([32]byte{byte(n), byte(n >> 8), byte(n >> 16)})
	_, _ = source.Read(b) // it never fails
	return b
}

func summary(b []byte) string {
	if len(b) <= 32 {
		return fmt.Sprintf("%q", b)
	}
	return fmt.Sprintf("%d bytes beginning with %x", len(b), b[:16])
}
