package durable_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/pailfs/pailfs/cache/durable"
)

func TestReplaceFileLeavesTheNewContentAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	next := path + ".next"
	// What an interrupted call left is longer than what comes.
	if err := os.WriteFile(next, []byte("half of something"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"first", "2nd"} {
		if err := durable.ReplaceFile(path, next, []byte(want)); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(path)
		if err != nil || string(got) != want {
			t.Errorf("the file has %q (%v), want %q", got, err, want)
		}
		if _, err := os.Stat(next); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s is still there: %v", next, err)
		}
	}
}

func TestReplaceFileKeepsTheOldContentWhenItFails(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	if err := durable.ReplaceFile(path, path+".next", []byte("old")); err != nil {
		t.Fatal(err)
	}
	if err := durable.ReplaceFile(path, filepath.Join(path, "next"), []byte("new")); err == nil {
		t.Error("a file below a file was written")
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != "old" {
		t.Errorf("the file has %q (%v), want what it had", got, err)
	}
}

func TestSyncDirectoryNamesWhatIsNotThere(t *testing.T) {
	gone := filepath.Join(t.TempDir(), "gone")
	var failed *fs.PathError
	if err := durable.SyncDirectory(gone); !errors.As(err, &failed) || failed.Path != gone {
		t.Errorf("got %v, want an error of %s", err, gone)
	}
}
