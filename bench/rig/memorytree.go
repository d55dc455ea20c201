package rig

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// MemoryTree is a running go-fuse program that shows a tree out of its memory.
type MemoryTree struct {
	*mount
}

// StartMemoryTree runs `program memory-tree`, which mounts dirs directories of files
// files each below work.
func StartMemoryTree(ctx context.Context, program, work string, dirs, files int) (*MemoryTree, error) {
	at := filepath.Join(work, "mnt")
	if err := os.MkdirAll(at, 0o755); err != nil {
		return nil, fmt.Errorf("prepare mount: %w", err)
	}
	m, err := startMount(ctx, at, processConfig{
		name: "memory-tree", log: filepath.Join(work, "memory-tree.log"),
		args: []string{program, "memory-tree", "--dirs", strconv.Itoa(dirs), "--files", strconv.Itoa(files), at},
	})
	if err != nil {
		return nil, err
	}
	return &MemoryTree{m}, nil
}

// Stop unmounts and ends the program.
func (t *MemoryTree) Stop() error {
	if err := unix.Unmount(t.at, 0); err != nil {
		err = fmt.Errorf("unmount %q: %w", t.at, err)
		return errors.Join(err, t.process.stop(10*time.Second), t.detach())
	}
	return t.ended()
}
