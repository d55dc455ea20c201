package oss_test

import (
	"errors"
	"testing"

	sdk "github.com/aliyun/aliyun-oss-go-sdk/oss"

	"github.com/pailfs/pailfs/oss"
	"github.com/pailfs/pailfs/oss/ossemu"
	"github.com/pailfs/pailfs/oss/ossemu/ossemutest"
)

// TestSymlinksAreSeen makes OSS symlink objects with the SDK, for the contract
// has no way to make one.
func TestSymlinksAreSeen(t *testing.T) {
	e := ossemutest.Start(t, ossemu.Config{})
	client, err := sdk.New(e.Endpoint, e.AccessKeyID, e.AccessKeySecret)
	if err != nil {
		t.Fatal(err)
	}
	maker, err := client.Bucket(e.Bucket)
	if err != nil {
		t.Fatal(err)
	}
	bucket := openClient(t, emulatorConfig(t, e)).As(oss.Demand)
	for _, target := range []string{"target", "dir/with space+plus%20", "汉字", "missing"} {
		if target != "missing" {
			e.Put(target, []byte("content"))
		}
		if err := maker.PutSymlink("link", target); err != nil {
			t.Fatal(err)
		}
		if got, err := bucket.SymlinkTarget(t.Context(), "link"); err != nil || got != target {
			t.Errorf("target is %q, %v, want %q", got, err, target)
		}
		page, err := bucket.List(t.Context(), oss.ListRequest{Prefix: "link"})
		if err != nil || len(page.Objects) != 1 || !page.Objects[0].Symlink || page.Objects[0].Size != int64(len(target)) {
			t.Errorf("listed %+v, %v, want a symlink of %d bytes", page.Objects, err, len(target))
		}
	}
	if _, err := bucket.Head(t.Context(), "link"); !errors.Is(err, oss.ErrNotFound) {
		t.Errorf("Head of a link to nothing: %v", err)
	}
}
