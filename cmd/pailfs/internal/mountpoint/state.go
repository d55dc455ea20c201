package mountpoint

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// Patience is how long a mount may take to answer a statfs. The daemon answers it from memory; only
// a stopped one takes longer.
const Patience = 5 * time.Second

// State says whether a mount answers.
type State int

// The states of a mount.
const (
	// Alive answers.
	Alive State = iota
	// Dead is a mount whose daemon is gone: every call fails at once.
	Dead
	// Stuck did not answer in time: its daemon is stopped, or waits itself.
	Stuck
)

// Probe asks the mount at path for its statistics, which the kernel never
// answers from a cache. An error that says nothing of the daemon, such as a
// missing right, is returned.
//
// A child makes the call, so that whoever asks can end at any time; a daemon, which cannot
// look at its own mount so, uses a [Prober].
func Probe(path string, patience time.Duration) (State, error) {
	var seen sight
	switch err := ask(verbStatfs, path, patience, &seen); {
	case errors.Is(err, context.DeadlineExceeded):
		return Stuck, nil
	case err != nil:
		return Alive, err
	}
	return seen.State, seen.Failure.err()
}

// statfs asks the mount once, and waits for as long as that takes.
func statfs(path string) (State, error) {
	var st unix.Statfs_t
	err := retry(func() error { return unix.Statfs(path, &st) })
	switch {
	case err == nil:
		return Alive, nil
	case errors.Is(err, unix.ENOTCONN), errors.Is(err, unix.ECONNABORTED):
		return Dead, nil
	}
	return Alive, fmt.Errorf("statfs %s: %w", path, err)
}

// Resolve returns the absolute path of a mount point without symbolic links. A mount at path itself
// is not touched, and one above it that is stuck is an error after [Patience].
func Resolve(path string) (string, error) {
	if filepath.IsAbs(path) {
		if m, ok, err := At(filepath.Clean(path)); err != nil || ok {
			return m.Path, err
		}
	}
	var seen sight
	switch err := ask(verbResolve, path, Patience, &seen); {
	case errors.Is(err, context.DeadlineExceeded):
		return "", fmt.Errorf("resolve %s: the file system there does not answer", path)
	case err != nil:
		return "", err
	}
	return string(seen.Path), seen.Failure.err()
}

// resolve is Resolve in a child.
func resolve(path string) (string, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", fmt.Errorf("resolve mount point %s: %w", path, err)
	}
	if mounted, ok, err := At(abs); err != nil {
		return "", err
	} else if ok {
		return mounted.Path, nil
	}
	dir, base := filepath.Split(abs)
	dir, err = filepath.EvalSymlinks(dir)
	if err != nil {
		return "", err
	}
	abs = filepath.Join(dir, base)
	if _, ok, err := At(abs); err != nil || ok {
		return abs, err
	}
	return filepath.EvalSymlinks(abs)
}

// Missing reports whether err says that a path, or part of it, does not exist.
func Missing(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR)
}

// Empty reports whether the directory at path has no entries.
func Empty(path string) (bool, error) {
	d, err := os.Open(path)
	if err != nil {
		return false, err
	}
	defer func() { _ = d.Close() }() // only read
	switch _, err := d.Readdirnames(1); {
	case errors.Is(err, io.EOF):
		return true, nil
	default:
		return false, err
	}
}

// retry repeats f while a signal interrupts it.
func retry(f func() error) error {
	for {
		if err := f(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
