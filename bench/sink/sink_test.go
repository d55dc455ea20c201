package sink

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// mountSink serves a sink until the test ends.
func mountSink(t *testing.T, stage string) string {
	t.Helper()
	dir := t.TempDir()
	outside := device(t, dir)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- Serve(ctx, dir, stage) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("serving ended with %v", err)
		}
	})
	for device(t, dir) == outside {
		select {
		case err := <-ended:
			ended <- err
			t.Fatalf("no mount: %v", err)
		case <-time.After(time.Millisecond):
		}
	}
	return dir
}

func device(t *testing.T, path string) uint64 {
	t.Helper()
	var info unix.Stat_t
	if err := unix.Stat(path, &info); err != nil {
		t.Fatal(err)
	}
	return info.Dev
}

// makeFiles makes them by plain system calls: the runtime polls files that it opens
// itself, which must not be those of a mount that the same process serves.
func makeFiles(t *testing.T, root string) {
	t.Helper()
	if err := unix.Mkdir(filepath.Join(root, "d"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{"d/a": "first", "d/b": "second one"} {
		fd, err := unix.Open(filepath.Join(root, name), unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, 0o644)
		if err != nil {
			t.Fatal(err)
		}
		n, err := unix.Write(fd, []byte(content))
		if closed := unix.Close(fd); err != nil || closed != nil || n != len(content) {
			t.Fatalf("writing %s: %d bytes, %v, %v", name, n, err, closed)
		}
	}
}

func TestWhatKeepsNothingTakesFiles(t *testing.T) { makeFiles(t, mountSink(t, "")) }

func TestWhatStagesHasEveryByteTwiceAfterClose(t *testing.T) {
	// On a disk: the kernel passes through to no stacked file system.
	stage, err := os.MkdirTemp("/var/tmp", "sink-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(stage); err != nil {
			t.Error(err)
		}
	})
	makeFiles(t, mountSink(t, stage))
	record, err := os.ReadFile(filepath.Join(stage, "record"))
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(stage, "[0-9]*"))
	if err != nil || len(files) != 2 {
		t.Fatalf("staged are %v, %v; want two files", files, err)
	}
	for _, name := range files {
		content, err := os.ReadFile(name)
		if err != nil || len(content) == 0 || !bytes.Contains(record, content) {
			t.Errorf("%s has %q, %v, and the record %q", name, content, err, record)
		}
	}
}
