package mountpoint

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// ErrBusy means that something still uses the mount.
var ErrBusy = errors.New("in use")

// Unmount takes the mount at path away. Lazy takes the name away at once, even
// if the mount is in use or dead, and leaves the rest to its last user.
//
// Who may not call umount2(2) goes through fusermount3, which lets users unmount
// what they mounted.
func Unmount(path string, lazy bool) error {
	flags := unix.UMOUNT_NOFOLLOW
	if lazy {
		flags |= unix.MNT_DETACH
	}
	err := retry(func() error { return unix.Unmount(path, flags) })
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.EBUSY):
		return fmt.Errorf("unmount %s: %w", path, ErrBusy)
	case errors.Is(err, unix.EPERM):
		return fusermount(path, lazy)
	}
	return fmt.Errorf("unmount %s: %w", path, err)
}

// fusermount lets the set-user-id helper unmount path.
func fusermount(path string, lazy bool) error {
	args := []string{"-u"}
	if lazy {
		args = append(args, "-z")
	}
	program, err := exec.LookPath("fusermount3")
	if err != nil {
		return fmt.Errorf("unmount %s: %w, and fusermount3 is not installed: install the package fuse3, or unmount as root", path, unix.EPERM)
	}
	helper := exec.Command(program, append(args, "--", path)...)
	helper.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C"} // nothing of ours is its business
	out, err := helper.CombinedOutput()
	if err == nil {
		return nil
	}
	text := strings.Join(strings.Fields(string(out)), " ")
	if strings.Contains(text, "busy") {
		return fmt.Errorf("unmount %s: %w", path, ErrBusy)
	}
	return fmt.Errorf("unmount %s: fusermount3: %w: %s", path, err, text)
}

// ForbidPrograms makes the kernel refuse to run programs from the mount at path,
// which must be read-only.
func ForbidPrograms(path string) error {
	const flags = unix.MS_REMOUNT | unix.MS_BIND | unix.MS_RDONLY | unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	if err := unix.Mount("", path, "", flags, ""); err != nil {
		return fmt.Errorf("remount %s without programs: %w: mount as root, or leave the setting out", path, err)
	}
	return nil
}

// Abort ends the connection between the kernel and the daemon of m: every call
// that waits for the daemon fails. It frees what no signal can free, and is for
// root and the user who mounted.
func Abort(m Mount) error {
	const dir = "/sys/fs/fuse/connections"
	err := abortIn(dir, m)
	if errors.Is(err, os.ErrNotExist) {
		// The control file system is mounted by the system's own start, which a
		// container may not have gone through.
		err = abortInOwn(m)
	}
	if err != nil {
		return fmt.Errorf("abort mount %s: %w", m.Path, err)
	}
	return nil
}

// abortIn aborts m through the control file system mounted at dir.
func abortIn(dir string, m Mount) error {
	return os.WriteFile(filepath.Join(dir, strconv.FormatUint(m.Dev(), 10), "abort"), []byte("1"), 0)
}

// abortInOwn aborts m through a control file system that is mounted for that.
func abortInOwn(m Mount) (err error) {
	dir, err := os.MkdirTemp("", "pailfs-fusectl-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.Remove(dir)) }()
	if err := unix.Mount("fusectl", dir, "fusectl", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount the FUSE control file system: %w", err)
	}
	defer func() { err = errors.Join(err, unix.Unmount(dir, unix.MNT_DETACH)) }()
	return abortIn(dir, m)
}
