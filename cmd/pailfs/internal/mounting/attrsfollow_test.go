package mounting

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/pailfs/pailfs/cmd/pailfs/internal/programtest"
)

// TestAFollowedManifestIsNotAskedAboutEachObject: a mount that was asked for nothing follows the manifest
// that is published, and its names cost no request.
func TestAFollowedManifestIsNotAskedAboutEachObject(t *testing.T) {
	t.Parallel()
	s := programtest.NewScene(t)
	for _, name := range []string{"a", "b", "c", "d"} {
		s.Put(t, "dir/"+name, []byte("content"))
	}
	p := programtest.NewPublisher(s)
	p.Publish(p.Build(nil))
	programtest.StartForeground(t, programtest.Environ(), s.At, s.MountArgs()...)
	heads := func() int64 { return s.Stats().Operations["HeadObject"].Requests }
	before := heads()
	for _, name := range []string{"a", "b", "c", "d", "file"} {
		if _, err := os.Stat(filepath.Join(s.At, "dir", name)); err != nil {
			t.Fatal(err)
		}
	}
	if n := heads() - before; n > 0 {
		t.Errorf("%d requests for five names of a manifest", n)
	}
}
