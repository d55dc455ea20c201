package mountpoint

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// ErrStale means that a mount whose daemon is gone covers the mount point.
var ErrStale = errors.New("the mount of a daemon that is gone is in the way")

// Check says why nothing can be mounted at path, with the remedy. A directory that has
// entries can be had only where that is allowed.
func Check(path string, nonEmpty bool) error {
	// The root of a dead mount may answer stat from what the kernel remembers, but
	// not statfs.
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); errors.Is(err, unix.ENOTCONN) || errors.Is(err, unix.ECONNABORTED) {
		return fmt.Errorf("mount point %s: %w: run umount -l %s", path, ErrStale, path)
	}
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, unix.ENOENT):
		return fmt.Errorf("mount point %s does not exist: create the directory", path)
	case err != nil:
		return fmt.Errorf("mount point %s cannot be used: %w", path, err)
	case !info.IsDir():
		return fmt.Errorf("mount point %s is not a directory: give a directory", path)
	}
	if mounted, err := isMounted(path); err != nil {
		return err
	} else if mounted && st.Type == unix.FUSE_SUPER_MAGIC {
		return fmt.Errorf("mount point %s is busy: pailfs is mounted there already; unmount it first", path)
	}
	if err := empty(path); err != nil && !nonEmpty {
		return err
	}
	return checkDevice()
}

// isMounted reports whether path is the root of a mount.
func isMounted(path string) (bool, error) {
	var here, above unix.Stat_t
	if err := unix.Stat(path, &here); err != nil {
		return false, fmt.Errorf("stat mount point %s: %w", path, err)
	}
	if err := unix.Stat(path+"/..", &above); err != nil {
		return false, fmt.Errorf("stat above mount point %s: %w", path, err)
	}
	return here.Dev != above.Dev, nil
}

// Gone reports whether the mount at path does not live any more: nothing is mounted there, or the
// kernel has ended its connection. A mount that lives is asked nothing that waits for a store.
func Gone(path string) bool {
	var st unix.Statfs_t
	err := unix.Statfs(path, &st)
	return errors.Is(err, unix.ENOTCONN) || err == nil && st.Type != unix.FUSE_SUPER_MAGIC
}

// empty says that the directory has entries, if it has.
func empty(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("open mount point %s: %w", path, err)
	}
	defer func() { _ = d.Close() }() // only read
	switch _, err := d.Readdirnames(1); {
	case errors.Is(err, io.EOF):
		return nil
	case err != nil:
		return fmt.Errorf("read mount point %s: %w", path, err)
	}
	return fmt.Errorf("mount point %s is not empty: mounting would hide what is in it; choose an empty directory", path)
}

// checkDevice says why /dev/fuse cannot be used, which fusermount3 opens with the
// rights of its caller.
func checkDevice() error {
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	switch {
	case err == nil:
		return unix.Close(fd)
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		return fmt.Errorf("/dev/fuse cannot be opened: %w: run as root, or give the user, or the container, the device", err)
	}
	return fmt.Errorf("/dev/fuse cannot be opened: %w: load the kernel module (modprobe fuse), or give the container the device", err)
}

// Explain says in one line why mounting failed and what helps.
func Explain(path string, direct bool, err error) error {
	switch {
	case direct && errors.Is(err, syscall.EPERM):
		return fmt.Errorf("mount %s: not permitted: the daemon lacks CAP_SYS_ADMIN; give its container that capability (privileged) or run it on the host", path)
	case direct && errors.Is(err, syscall.EBUSY):
		return fmt.Errorf("mount %s: the mount point is busy: unmount what is there or choose another directory", path)
	case direct && errors.Is(err, syscall.ENODEV):
		return fmt.Errorf("mount %s: the kernel has no FUSE: load its module (modprobe fuse)", path)
	case !direct:
		if _, lookErr := exec.LookPath("fusermount3"); lookErr != nil {
			return fmt.Errorf("mount %s: only root may mount without fusermount3: install the package fuse3 or run as root", path)
		}
		return fmt.Errorf("mount %s: fusermount3 refused, its own message stands above: %s", path, strings.TrimSpace(err.Error()))
	}
	return fmt.Errorf("mount %s: %w", path, err)
}

// Detach unmounts path lazily.
func Detach(path string, direct bool) error {
	if direct {
		return unix.Unmount(path, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
	}
	out, err := exec.Command("fusermount3", "-u", "-z", "--", path).CombinedOutput()
	if err != nil {
		return fmt.Errorf("fusermount3: %w: %s", err, bytes.TrimSpace(out))
	}
	return nil
}
