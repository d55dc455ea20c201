package ask

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/pailfs/pailfs/cmd/internal/command"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/mountpoint"
)

// At returns the pailfs mount at path.
func At(path string) (string, mountpoint.Mount, error) {
	at, err := mountpoint.Resolve(path)
	if err != nil {
		if mountpoint.Missing(err) {
			return "", mountpoint.Mount{}, fmt.Errorf("%s does not exist: give the directory where a bucket is mounted", path)
		}
		return "", mountpoint.Mount{}, fmt.Errorf("%s: %w", path, err)
	}
	m, mounted, err := mountpoint.At(at)
	switch {
	case err != nil:
		return "", m, err
	case !mounted:
		return "", m, fmt.Errorf("nothing is mounted at %s", at)
	case m.Type != mountpoint.Type:
		return "", m, fmt.Errorf("%s is a mount of type %s, not of pailfs", at, m.Type)
	}
	return at, m, nil
}

// Above returns the pailfs mount that path lies in, and the path as it
// can be opened.
func Above(path string) (string, mountpoint.Mount, error) {
	at, err := mountpoint.Resolve(path)
	if err != nil {
		return At(path) // says why
	}
	mounts, err := mountpoint.List()
	if err != nil {
		return "", mountpoint.Mount{}, err
	}
	var best mountpoint.Mount
	for _, m := range mounts {
		if mountpoint.Within(m.Path, at) && len(m.Path) >= len(best.Path) {
			best = m
		}
	}
	if best.Type != mountpoint.Type {
		return At(path) // says why
	}
	return at, best, nil
}

// Together returns the mount that the paths lie in, and the paths relative to
// it. They need not exist: the daemon says which do not.
func Together(paths []string) (at string, relative []string, err error) {
	for _, path := range paths {
		full, m, err := mountOf(path)
		if err != nil {
			return "", nil, err
		}
		if at != "" && m.Path != at {
			return "", nil, command.Usage(fmt.Errorf("%s and %s are in different mounts: run one command for each", paths[0], path))
		}
		at = m.Path
		rel, err := filepath.Rel(at, full)
		if err != nil {
			return "", nil, fmt.Errorf("path %q: %w", path, err)
		}
		if rel == "." {
			rel = ""
		}
		relative = append(relative, rel)
	}
	return at, relative, nil
}

// mountOf returns the mount that path lies in, and the path without links in its
// directories.
func mountOf(path string) (string, mountpoint.Mount, error) {
	full, err := filepath.Abs(path)
	if err != nil {
		return "", mountpoint.Mount{}, err
	}
	if at, m, err := Above(full); err == nil {
		return at, m, nil
	}
	dir, m, err := Above(filepath.Dir(full))
	if err != nil {
		return "", mountpoint.Mount{}, err
	}
	return filepath.Join(dir, filepath.Base(full)), m, nil
}

// Within returns the mount that a path is of, and the path within. Nothing need be there.
func Within(name string) (mountpoint.Mount, string, error) {
	abs, err := filepath.Abs(name)
	if err != nil {
		return mountpoint.Mount{}, "", command.Usage(err)
	}
	rest := ""
	for abs != "/" {
		if _, err := os.Lstat(abs); !mountpoint.Missing(err) {
			break
		}
		rest = filepath.Join(filepath.Base(abs), rest)
		abs = filepath.Dir(abs)
	}
	at, m, err := Above(abs)
	if err != nil {
		return mountpoint.Mount{}, "", err
	}
	within, err := filepath.Rel(m.Path, filepath.Join(at, rest))
	if err == nil && within == "." {
		err = errors.New("it is the mount itself: name a file")
	}
	if err != nil {
		return mountpoint.Mount{}, "", command.Usage(fmt.Errorf("%s: %w", name, err))
	}
	return m, within, nil
}
