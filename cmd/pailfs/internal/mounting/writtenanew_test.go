package mounting

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/pailfs/pailfs/cmd/pailfs/internal/programtest"
	"github.com/pailfs/pailfs/oss/ossemu"
)

// The file that is written anew again and again: large enough to be sent in parts, and sparse,
// so that it costs next to nothing.
const (
	anewSize   = 24 << 20
	anewRounds = 40
	anewCuts   = 100
)

// TestAFileWrittenAnewWhilePublished writes a file anew while what it had before is uploaded: no
// close may fail, no publication count as failed, and the object is what was closed last.
// PAILFS_TEST_ANEW_SIZE is another size, in MiB.
func TestAFileWrittenAnewWhilePublished(t *testing.T) {
	size := int64(anewSize)
	if mib, err := strconv.ParseInt(os.Getenv("PAILFS_TEST_ANEW_SIZE"), 10, 64); err == nil {
		size = mib << 20
	}
	// An upload takes several rounds.
	s := programtest.StartStore(t, func(c *ossemu.Config) { c.Shape.UploadPerConnection = 32 << 20 })
	_, at := programtest.WritableMount(t, s, filepath.Join(t.TempDir(), "cache"))
	path := filepath.Join(at, "file")
	failed := 0
	for round := range anewRounds {
		if err := writeAnew(path, round, size); err != nil {
			failed++
			t.Logf("round %d: %v", round, err)
		}
		time.Sleep(250 * time.Millisecond)
	}
	if failed > 0 {
		t.Errorf("%d of %d closes failed", failed, anewRounds)
	}
	if w := programtest.WritingStatus(t, at); w.Failures > 0 || w.FailingCount > 0 || w.RetryingCount > 0 {
		t.Errorf("status tells of failures: %+v", w)
	}
	programtest.MustRun(t, "umount", at)
}

// writeAnew makes the file one of a size with one page that is written.
func writeAnew(path string, round int, size int64) error {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	defer f.Close()
	// What is read of it for publication between two of these ends too soon, and when that is
	// looked into the file has its size again.
	for range anewCuts {
		if err := errors.Join(f.Truncate(0), f.Truncate(size)); err != nil {
			return err
		}
	}
	if _, err := f.WriteAt(bytes.Repeat(fmt.Appendf(nil, "%15d\n", round), 4096/16), int64(round)*4096%size); err != nil {
		return err
	}
	return f.Close()
}
