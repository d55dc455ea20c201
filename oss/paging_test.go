package oss_test

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"github.com/pailfs/pailfs/oss"
	"github.com/pailfs/pailfs/oss/ossemu"
	"github.com/pailfs/pailfs/oss/ossemu/ossemutest"
)

// TestLongListsTakeFewRequests goes past the 1000 entries that OSS puts on a page
// and takes in a deletion.
func TestLongListsTakeFewRequests(t *testing.T) {
	e := ossemutest.Start(t, ossemu.Config{})
	bucket := openClient(t, emulatorConfig(t, e)).As(oss.Upload)
	ctx := t.Context()

	var keys []string
	for i := range 2001 {
		keys = append(keys, fmt.Sprintf("keys/%05d", i))
		e.Put(keys[i], nil)
	}
	var listed []string
	for r := (oss.ListRequest{Prefix: "keys/"}); ; {
		page, err := bucket.List(ctx, r)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range page.Objects {
			listed = append(listed, o.Key)
		}
		if r.Token = page.Next; r.Token == "" {
			break
		}
	}
	if !slices.Equal(listed, keys) || e.Requests("ListObjectsV2") != 3 {
		t.Errorf("%d requests listed %d keys of %d, want 3", e.Requests("ListObjectsV2"), len(listed), len(keys))
	}
	if err := bucket.Delete(ctx, keys...); err != nil {
		t.Fatal(err)
	}
	if left := e.Keys("keys/"); len(left) != 0 || e.Requests("DeleteMultipleObjects") != 3 {
		t.Errorf("%d requests left %d keys, want 3 and none", e.Requests("DeleteMultipleObjects"), len(left))
	}

	u, err := bucket.CreateUpload(ctx, "upload", oss.PutOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var sent []oss.Part
	for i := range 1001 {
		p, err := bucket.UploadPart(ctx, u, 2*i+1, bytes.NewReader([]byte{byte(i)}))
		if err != nil {
			t.Fatal(err)
		}
		sent = append(sent, p)
	}
	parts, err := bucket.ListParts(ctx, u)
	if err != nil || !slices.Equal(parts, sent) || e.Requests("ListParts") != 2 {
		t.Errorf("%d requests listed %d parts, %v, want 2 and %d", e.Requests("ListParts"), len(parts), err, len(sent))
	}
	for range 1000 {
		if _, err := bucket.CreateUpload(ctx, "upload", oss.PutOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	uploads, err := bucket.ListUploads(ctx, "up")
	if err != nil || len(uploads) != 1001 || e.Requests("ListMultipartUploads") != 2 {
		t.Errorf("%d requests listed %d uploads, %v, want 2 and 1001", e.Requests("ListMultipartUploads"), len(uploads), err)
	}
	slices.SortFunc(uploads, func(a, b oss.MultipartUpload) int { return bytes.Compare([]byte(a.ID), []byte(b.ID)) })
	if n := len(slices.Compact(uploads)); n != 1001 {
		t.Errorf("only %d of the listed uploads are different ones", n)
	}
}
