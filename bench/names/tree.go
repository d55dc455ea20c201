package names

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/pailfs/pailfs/manifest"
)

// Tree is a directory of directories of files.
type Tree struct {
	// Dirs is how many directories there are, of Files files each. With one the files
	// are in the root itself.
	Dirs  int `json:"dirs"`
	Files int `json:"files"`
}

// All is how many files there are.
func (t Tree) All() int { return t.Dirs * t.Files }

// Dir is the name of a directory, or "" where the files are in the root.
func (t Tree) Dir(i int) string {
	if t.Dirs == 1 {
		return ""
	}
	return fmt.Sprintf("dir-%04d", i)
}

// File is the name of a file.
func File(i int) string { return fmt.Sprintf("n%08d_%d.JPEG", i, i%977) }

// Size is the size of a file in bytes, in a manifest and in memory.
func Size(i int) int64 { return 50_000 + int64(i%1000) }

// born is when every file was modified.
var born = time.Unix(1_700_000_000, 0)

// WriteManifest writes the trees, each below its name and a slash, as a manifest of
// the keys under root.
func WriteManifest(ctx context.Context, path, root string, trees map[string]Tree) error {
	b, err := manifest.NewBuilder(manifest.BuilderConfig{Root: root, SpillDir: filepath.Dir(path)})
	if err != nil {
		return fmt.Errorf("write manifest of names: %w", err)
	}
	add := func() error {
		for name, t := range trees {
			for d := range t.Dirs {
				prefix := root + filepath.Join(name, t.Dir(d)) + "/"
				for i := range t.Files {
					r := manifest.Record{Key: prefix + File(i), ETag: fmt.Sprintf("%016X%016X", d, i), Size: Size(i), ModTime: born}
					if err := b.Add(r); err != nil {
						return err
					}
				}
			}
		}
		_, err := b.Finish(ctx, path, manifest.Header{Generation: 1, Began: born, Ended: born, Source: "bench"})
		return err
	}
	if err := errors.Join(add(), b.Close()); err != nil {
		return fmt.Errorf("write manifest of names: %w", err)
	}
	return nil
}

// WriteDisk makes the tree as empty files below dir.
func (t Tree) WriteDisk(ctx context.Context, dir string) error {
	for d := range t.Dirs {
		at := filepath.Join(dir, t.Dir(d))
		if err := os.MkdirAll(at, 0o755); err != nil {
			return fmt.Errorf("write names: %w", err)
		}
		for i := range t.Files {
			f, err := os.Create(filepath.Join(at, File(i)))
			if err == nil {
				err = f.Close()
			}
			if err != nil {
				return fmt.Errorf("write names: %w", err)
			}
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	return nil
}
