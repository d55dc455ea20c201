package csi

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// fsType is the type of pailfs' mounts.
const fsType = "fuse.pailfs"

// mountTable is what is mounted, in the order of mounting.
type mountTable []*mountinfo.Info

// readMounts reads the mounts that this process sees.
func readMounts() (mountTable, error) {
	t, err := mountinfo.GetMounts(nil)
	if err != nil {
		return nil, fmt.Errorf("read mount table: %w", err)
	}
	return t, nil
}

// at returns the topmost mount at exactly path, nil if there is none.
func (t mountTable) at(path string) *mountinfo.Info {
	for _, m := range slices.Backward(t) {
		if m.Mountpoint == path {
			return m
		}
	}
	return nil
}

// elsewhere returns where else the file system of m is mounted. The same directory seen through another
// mount of a directory above it does not count.
func (t mountTable) elsewhere(m *mountinfo.Info) (paths []string) {
	tail := func(path string) string {
		dir, base := filepath.Split(path)
		return filepath.Join(filepath.Base(dir), base)
	}
	for _, o := range t {
		if sameMount(o, m) && tail(o.Mountpoint) != tail(m.Mountpoint) {
			paths = append(paths, o.Mountpoint)
		}
	}
	return paths
}

// sameMount reports whether two mounts show one file system.
func sameMount(a, b *mountinfo.Info) bool { return a.Major == b.Major && a.Minor == b.Minor }

// readOnly reports whether a mount or its file system is read-only.
func readOnly(m *mountinfo.Info) bool {
	return hasOption(m.Options, "ro") || hasOption(m.VFSOptions, "ro")
}

func hasOption(list, option string) bool {
	return slices.Contains(strings.Split(list, ","), option)
}

// resolve returns path as the mount table shows it, without a call that what is mounted there would have to answer.
func resolve(path string) (string, error) {
	if !filepath.IsAbs(path) {
		return "", fmt.Errorf("path %q is not absolute", path)
	}
	dir, err := filepath.EvalSymlinks(filepath.Dir(path))
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, filepath.Base(path)), nil
}

// bind shows at to what is mounted at from, read-only from its first moment if ro says so. What is at to is covered: who
// sees it through a mount that follows this one goes on with the new one.
func bind(from, to string, ro bool) error {
	tree, err := unix.OpenTree(unix.AT_FDCWD, from, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_SYMLINK_NOFOLLOW)
	if err != nil {
		return fmt.Errorf("take hold of the mount at %s: %w", from, err)
	}
	defer func() { _ = unix.Close(tree) }() // what is attached stays
	if ro {
		attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}
		if err := unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH, &attr); err != nil {
			return fmt.Errorf("make the mount for %s read-only (Linux 5.12 or newer does it): %w", to, err)
		}
	}
	if err := unix.MoveMount(tree, "", unix.AT_FDCWD, to, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return fmt.Errorf("mount at %s: %w", to, err)
	}
	return nil
}

// unmountAll takes away all that is mounted at path, without waiting for a daemon, and then the directory.
func unmountAll(path string) error {
	for {
		t, err := readMounts()
		if err != nil {
			return err
		}
		m := t.at(path)
		if m == nil {
			break
		}
		if m.FSType != fsType {
			return fmt.Errorf("%s is a mount of type %s, not of pailfs: unmount it", path, m.FSType)
		}
		if err := unix.Unmount(path, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil {
			return fmt.Errorf("unmount %s: %w", path, err)
		}
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove the directory of the pod: %w", err)
	}
	return nil
}
