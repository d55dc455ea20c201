package machine

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/pailfs/pailfs/cmd/pailfs/internal/config"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/mountpoint"
	"github.com/pailfs/pailfs/cmd/terminal"
)

// CheckMountPoint returns the resolved mount point and the mount of a dead daemon
// that is there, if any. It touches nothing.
func CheckMountPoint(path string) (string, *mountpoint.Mount, error) {
	at, err := mountpoint.Resolve(path)
	switch {
	case mountpoint.Missing(err):
		return "", nil, fmt.Errorf("mount point %s does not exist: make it with mkdir %s", path, path)
	case err != nil:
		return "", nil, fmt.Errorf("mount point %s: %w", path, err)
	}
	here, mounted, err := mountpoint.At(at)
	if err != nil {
		return "", nil, err
	}
	if mounted && strings.HasPrefix(here.Type, "fuse") {
		return checkOccupied(at, here)
	}
	info, err := os.Stat(at)
	if err != nil {
		return "", nil, fmt.Errorf("mount point: %w", err)
	}
	if !info.IsDir() {
		return "", nil, fmt.Errorf("mount point %s is not a directory: choose an empty directory", at)
	}
	empty, err := mountpoint.Empty(at)
	if err != nil {
		return "", nil, fmt.Errorf("mount point %s: %w", at, err)
	}
	if !empty {
		return "", nil, fmt.Errorf("mount point %s is not empty, and what is in it would be hidden: choose an empty directory", at)
	}
	return at, nil, nil
}

// checkOccupied judges the FUSE mount that is already at the mount point: that of
// a dead pailfs may be replaced, everything else is somebody's.
func checkOccupied(at string, here mountpoint.Mount) (string, *mountpoint.Mount, error) {
	state, err := mountpoint.Probe(at, mountpoint.Patience)
	if err != nil {
		return "", nil, fmt.Errorf("mount point %s: %w", at, err)
	}
	switch {
	case state == mountpoint.Dead && here.Type == mountpoint.Type:
		return at, &here, nil
	case state == mountpoint.Dead:
		return "", nil, fmt.Errorf("mount point %s has the dead mount of another program (%s): clear it with umount -l %s", at, here.Type, at)
	case state == mountpoint.Stuck:
		return "", nil, fmt.Errorf("mount point %s is busy: %s is mounted there and does not answer: clear it with pailfs umount --force %s", at, here.Source, at)
	default:
		return "", nil, fmt.Errorf("mount point %s is busy: %s is mounted there: run pailfs umount %s, or choose another directory", at, here.Source, at)
	}
}

// CheckCacheDir refuses a cache directory that cannot be made or hold anything.
// It makes nothing; the cache makes its directory, and says whose it is if it is
// not ours.
func CheckCacheDir(l *config.Loaded, at string) error {
	dir := filepath.Clean(l.CacheDir)
	if l.CacheDir == "" {
		return nil
	}
	parent := filepath.Dir(dir)
	on := dir // what the directory's file system can be asked by
	switch info, err := os.Stat(dir); {
	case errors.Is(err, os.ErrNotExist):
		if _, err := os.Stat(parent); err != nil {
			return l.Refuse("cache-dir", fmt.Errorf("%s cannot be made, for its parent %s does not exist: mount the disk, or make the parent", dir, parent))
		}
		on = parent
	case err != nil:
		return l.Refuse("cache-dir", fmt.Errorf("%s cannot be used: %w", dir, err))
	case !info.IsDir():
		return l.Refuse("cache-dir", fmt.Errorf("%s is not a directory: choose a directory", dir))
	}
	target, err := filepath.EvalSymlinks(on)
	if err != nil {
		return l.Refuse("cache-dir", fmt.Errorf("%s cannot be used: %w", dir, err))
	}
	if on == parent {
		target = filepath.Join(target, filepath.Base(dir))
	}
	if mountpoint.Within(target, at) {
		return fmt.Errorf("mount point %s is inside the cache directory %s: choose another mount point", at, dir)
	}
	if mountpoint.Within(at, target) {
		return l.Refuse("cache-dir", fmt.Errorf("%s is inside the mount point %s and would be hidden by it: choose another directory", dir, at))
	}
	return checkDisk(l, on)
}

// CheckAudit refuses a file for the audit that the mount would hide, or hold.
func CheckAudit(l *config.Loaded, at string) error {
	file := l.AuditFile()
	if file == "" {
		return nil
	}
	dir, err := filepath.EvalSymlinks(filepath.Dir(file))
	if err != nil {
		return l.Refuse("audit", fmt.Errorf("%s cannot be made: %w: choose a path in a directory that exists", file, err))
	}
	if mountpoint.Within(at, dir) {
		return l.Refuse("audit", fmt.Errorf("%s lies on the mount %s that is to be audited: choose a path on a local disk", file, at))
	}
	return nil
}

// leastRoom is the free space without which the SSD tier would only evict.
const leastRoom = 64 << 20

// checkDisk refuses a file system that cannot hold what was asked of it.
func checkDisk(l *config.Loaded, on string) error {
	var st unix.Statfs_t
	if err := unix.Statfs(on, &st); err != nil {
		return l.Refuse("cache-dir", fmt.Errorf("%s cannot be used: %w", on, err))
	}
	total := config.Size(st.Blocks) * config.Size(st.Bsize)
	free := config.Size(st.Bavail) * config.Size(st.Bsize)
	if l.CacheSize > total {
		return l.Refuse("cache-size", fmt.Errorf("%s is more than the whole file system of %s holds, %s: write a smaller size, or auto", l.CacheSize, on, terminal.Size(int64(total))))
	}
	if on != filepath.Clean(l.CacheDir) && free < leastRoom {
		return l.Refuse("cache-dir", fmt.Errorf("the file system of %s has no room, %s is free: free %s, or choose another disk", on, terminal.Size(int64(free)), terminal.Size(leastRoom)))
	}
	return nil
}

// CheckMemory refuses a memory tier larger than the memory there is.
func CheckMemory(l *config.Loaded) error {
	available, err := Memory()
	if err != nil {
		return err
	}
	if int64(l.Memory) > available {
		return l.Refuse("memory", fmt.Errorf("%s is more than the %s that this machine or control group has: write a smaller size, or auto", l.Memory, terminal.Size(available)))
	}
	return nil
}
