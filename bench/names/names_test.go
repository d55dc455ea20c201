package names

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestJobsFindEveryNameOfATree(t *testing.T) {
	for _, tree := range []Tree{{Dirs: 1, Files: 3000}, {Dirs: 7, Files: 20}} {
		root := t.TempDir()
		if err := tree.WriteDisk(t.Context(), root); err != nil {
			t.Fatal(err)
		}
		for _, pattern := range []Pattern{Names, Attributes, Find} {
			job := Job{Root: root, Tree: tree, Pattern: pattern}
			if out, err := job.Run(t.Context()); err != nil || out.Seconds <= 0 {
				t.Errorf("%v, %s: %+v, %v", tree, pattern, out, err)
			}
		}
		lost := filepath.Join(root, tree.Dir(0), File(tree.Files/2))
		if err := os.Remove(lost); err != nil {
			t.Fatal(err)
		}
		for _, pattern := range []Pattern{Names, Attributes, Find} {
			job := Job{Root: root, Tree: tree, Pattern: pattern}
			if _, err := job.Run(t.Context()); err == nil {
				t.Errorf("%v, %s: a missing name was not missed", tree, pattern)
			}
		}
	}
}

func TestServeCarriesOutAJob(t *testing.T) {
	var out strings.Builder
	in := `{"root": "/nonexistent", "tree": {"dirs": 1, "files": 1}, "pattern": "names"}`
	if err := Serve(t.Context(), strings.NewReader(in), &out); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v", err)
	}
	if err := Serve(t.Context(), strings.NewReader("{"), &out); err == nil {
		t.Error("half a job was carried out")
	}
}

func TestMemoryTreeShowsTheSameNames(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("mounting needs root")
	}
	dir := t.TempDir()
	tree := Tree{Dirs: 3, Files: 50}
	ctx, cancel := context.WithCancel(context.Background())
	var outside unix.Stat_t
	if err := unix.Stat(dir, &outside); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- tree.MountMemory(ctx, dir) }()
	for inside := outside; inside.Dev == outside.Dev; {
		select {
		case err := <-ended:
			t.Fatalf("not mounted: %v", err)
		default:
		}
		if err := unix.Stat(dir, &inside); err != nil {
			t.Fatal(err)
		}
	}
	for _, pattern := range []Pattern{Names, Find} {
		if _, err := (Job{Root: dir, Tree: tree, Pattern: pattern}).Run(t.Context()); err != nil {
			t.Errorf("%s: %v", pattern, err)
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
