package writeback

import (
	"os"
	"path/filepath"
	"sync"
	"testing"
)

// TestSeveralAskAtOnceWhetherAFileIsSealed by one descriptor: one of them lets go of the lease
// that another was given, and neither is told of an error.
func TestSeveralAskAtOnceWhetherAFileIsSealed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "staged")
	if err := os.WriteFile(path, []byte("content"), 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := openStagedFile(path, os.O_RDONLY)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 5000 {
				if _, err := sealed(file); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	if tight, err := sealed(file); !tight || err != nil {
		t.Errorf("alone: %t, %v", tight, err)
	}
	writer, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Close()
	if tight, err := sealed(file); tight || err != nil {
		t.Errorf("beside a writer: %t, %v", tight, err)
	}
}
