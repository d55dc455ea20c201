package writeback

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// isSpread reports whether directories made in dir are spread over the disk.
func isSpread(t *testing.T, dir string) bool {
	t.Helper()
	d, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	flags, err := unix.IoctlGetUint32(int(d.Fd()), unix.FS_IOC_GETFLAGS)
	if err != nil {
		t.Fatal(err)
	}
	return flags&topDir != 0
}

func TestStagedFilesLieApartFromWhatIsRemovedBesideThem(t *testing.T) {
	dir := filepath.Join(smallDisk(t, 16), "cache", "staging")
	if err := makeStaged(dir); err != nil {
		t.Fatal(err)
	}
	if !isSpread(t, dir) {
		t.Error("the directory of the staged files was made beside the others")
	}
	if info, err := os.Stat(filepath.Join(dir, stagedDir)); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the directory of the staged files: %v, %v", info, err)
	}
	if isSpread(t, filepath.Dir(dir)) {
		t.Error("the directory of the cache was changed, too")
	}
}

func TestStagedFilesThatAreThereStayWhereTheyAre(t *testing.T) {
	dir := smallDisk(t, 16)
	if err := os.Mkdir(filepath.Join(dir, stagedDir), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := makeStaged(dir); err != nil {
		t.Fatal(err)
	}
	if isSpread(t, dir) {
		t.Error("the directory was changed, which moves nothing")
	}
}
