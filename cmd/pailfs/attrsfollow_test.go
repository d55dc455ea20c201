package main

import (
	"os"
	"path/filepath"
	"testing"
)

// TestAFollowedManifestIsNotAskedAboutEachObject: a mount that was asked for nothing follows the manifest
// that is published, and its names cost no request.
func TestAFollowedManifestIsNotAskedAboutEachObject(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	for _, name := range []string{"a", "b", "c", "d"} {
		s.put(t, "dir/"+name, []byte("content"))
	}
	p := newPublisher(s)
	p.publish(p.build(nil))
	startForeground(t, environ(), s.at, s.mountArgs()...)
	heads := func() int64 { return s.Stats().Operations["HeadObject"].Requests }
	before := heads()
	for _, name := range []string{"a", "b", "c", "d", "file"} {
		if _, err := os.Stat(filepath.Join(s.at, "dir", name)); err != nil {
			t.Fatal(err)
		}
	}
	if n := heads() - before; n > 0 {
		t.Errorf("%d requests for five names of a manifest", n)
	}
}
