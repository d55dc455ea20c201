package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pailfs/pailfs/cmd/pailfs/internal/config"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/mountpoint"
	"github.com/pailfs/pailfs/cmd/terminal"
)

// probePatience is how long a mount may take to answer a statfs. The daemon
// answers it from memory; only a stopped one takes longer.
const probePatience = 5 * time.Second

// checkMountPoint returns the resolved mount point and the mount of a dead daemon
// that is there, if any. It touches nothing.
func checkMountPoint(path string) (string, *mountpoint.Mount, error) {
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
	state, err := mountpoint.Probe(at, probePatience)
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

// checkFUSE says why this process could not mount at all.
func checkFUSE(allowOther bool) error {
	const device = "/dev/fuse"
	const remedy = "load the module with modprobe fuse, or give the container the device (--device /dev/fuse)"
	f, err := os.OpenFile(device, os.O_RDWR, 0)
	switch {
	case errors.Is(err, os.ErrNotExist), errors.Is(err, unix.ENODEV), errors.Is(err, unix.ENXIO):
		return fmt.Errorf("%s does not exist, so nothing can be mounted: %s", device, remedy)
	case errors.Is(err, os.ErrPermission) && os.Geteuid() != 0:
		// fusermount3 opens it for users.
	case err != nil:
		return fmt.Errorf("%s cannot be opened (%w): %s", device, err, remedy)
	default:
		_ = f.Close() // nothing was done with it
	}
	caps, err := ownCapabilities()
	if err != nil {
		return err
	}
	if caps.effective {
		return nil
	}
	if os.Geteuid() == 0 || !caps.bounding || caps.noNewPrivileges {
		return fmt.Errorf("the capability CAP_SYS_ADMIN is missing, so nothing can be mounted: run as root on the host, or give the container --cap-add SYS_ADMIN")
	}
	if _, err := exec.LookPath("fusermount3"); err != nil {
		if _, err := exec.LookPath("fusermount"); err != nil {
			return fmt.Errorf("fusermount3 is not installed, which users need to mount: install the package fuse3, or run as root")
		}
	}
	if allowOther && !fuseConfAllowsOther("/etc/fuse.conf") {
		return fmt.Errorf("--allow-other is not permitted to users here: write user_allow_other into /etc/fuse.conf, or run as root")
	}
	return nil
}

// capabilities is what the kernel says of CAP_SYS_ADMIN in this process.
type capabilities struct {
	// effective: this process has it.
	effective bool
	// bounding: a set-user-id program that it starts may have it.
	bounding bool
	// noNewPrivileges: no program that it starts may have more than it.
	noNewPrivileges bool
}

func ownCapabilities() (capabilities, error) {
	f, err := os.Open("/proc/self/status")
	if err != nil {
		return capabilities{}, fmt.Errorf("read own capabilities: %w", err)
	}
	defer func() { _ = f.Close() }() // only read
	var c capabilities
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), ":")
		value = strings.TrimSpace(value)
		switch name {
		case "CapEff":
			c.effective = hasCapability(value, unix.CAP_SYS_ADMIN)
		case "CapBnd":
			c.bounding = hasCapability(value, unix.CAP_SYS_ADMIN)
		case "NoNewPrivs":
			c.noNewPrivileges = value == "1"
		}
	}
	return c, lines.Err()
}

// hasCapability reports whether the hexadecimal set has the capability.
func hasCapability(set string, capability uint) bool {
	var bits uint64
	if _, err := fmt.Sscanf(set, "%x", &bits); err != nil {
		return false
	}
	return bits&(1<<capability) != 0
}

// fuseConfAllowsOther reports whether fusermount3 lets users share their mounts.
func fuseConfAllowsOther(path string) bool {
	text, err := os.ReadFile(path)
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(text)) {
		if strings.TrimSpace(line) == "user_allow_other" {
			return true
		}
	}
	return false
}

// checkCacheDir refuses a cache directory that cannot be made or hold anything.
// It makes nothing; the cache makes its directory, and says whose it is if it is
// not ours.
func checkCacheDir(l *config.Loaded, at string) error {
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

// checkMemory refuses a memory tier larger than the memory there is.
func checkMemory(l *config.Loaded) error {
	available, err := machineMemory()
	if err != nil {
		return err
	}
	if int64(l.Memory) > available {
		return l.Refuse("memory", fmt.Errorf("%s is more than the %s that this machine or control group has: write a smaller size, or auto", l.Memory, terminal.Size(available)))
	}
	return nil
}
