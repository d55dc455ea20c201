package fs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// fsType is the subtype of the mount: the kernel shows fuse.pailfs.
const fsType = "pailfs"

// ErrStaleMount means that a mount whose daemon is gone covers the mount point.
var ErrStaleMount = errors.New("the mount of a daemon that is gone is in the way")

// check says why nothing can be mounted at cfg.Mountpoint, with the remedy.
func check(cfg Config) error {
	path := cfg.Mountpoint
	// The root of a dead mount may answer stat from what the kernel remembers, but
	// not statfs.
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); errors.Is(err, unix.ENOTCONN) || errors.Is(err, unix.ECONNABORTED) {
		return fmt.Errorf("mount point %s: %w: run umount -l %s", path, ErrStaleMount, path)
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
	if err := empty(path); err != nil && !cfg.AllowNonEmpty {
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

// mountError says in one line why mounting failed and what helps.
func mountError(path string, direct bool, err error) error {
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

// detach unmounts path lazily.
func detach(path string, direct bool) error {
	if direct {
		return unix.Unmount(path, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
	}
	out, err := exec.Command("fusermount3", "-u", "-z", "--", path).CombinedOutput()
	if err != nil {
		return fmt.Errorf("fusermount3: %w: %s", err, bytes.TrimSpace(out))
	}
	return nil
}

// The queue of the kernel. Readahead and close are background requests: 128 of
// them keep four sequential readers with 16 MiB of readahead each busy and leave
// room to release files; more would only be memory in flight.
const (
	maxRead       = 1 << 20
	maxBackground = 128
)

// requestMemory bounds the buffers of the requests that are being read or served, in bytes. go-fuse
// reads each request into a buffer of maxRead, and keeps that until the answer where the request
// has 128 bytes or more: a WRITE, an ioctl, a long name. A request beyond waits in the kernel.
const requestMemory = 40 << 20

// largestRead is the size that the kernel allows a READ to have: maxRead, unless
// the machine is set to less.
func largestRead() int {
	const ofOldKernels = 256
	pages := ofOldKernels
	if text, err := os.ReadFile("/proc/sys/fs/fuse/max_pages_limit"); err == nil {
		if n, err := strconv.Atoi(string(bytes.TrimSpace(text))); err == nil {
			pages = n
		}
	}
	return min(maxRead, pages*os.Getpagesize())
}

// mountOptions are what the library gets to know of cfg.
func mountOptions(cfg Config, direct bool) *fuse.MountOptions {
	o := &fuse.MountOptions{
		FsName:        cfg.Source,
		Name:          fsType,
		AllowOther:    cfg.AllowOther,
		Options:       []string{"default_permissions"},
		MaxWrite:      maxRead,
		MaxBackground: maxBackground,

		MaxInflightRequestBytes: requestMemory,
		// A reply of 1 MiB and its header do not fit into a pipe.
		DisableSplice: true,
		// An inode's content never changes, so the kernel need not ask for its size
		// before it reads from the page cache.
		ExplicitDataCacheControl: true,
		// The first page of a directory comes with attributes, further ones if the
		// reader asked for some.
		ExtraCapabilities: fuse.CAP_READDIRPLUS_AUTO,
		DirectMountStrict: direct,
		DirectMountFlags:  unix.MS_RDONLY | unix.MS_NOSUID | unix.MS_NODEV,
	}
	if cfg.Space != nil {
		// O_TRUNC comes with OPEN, or overwriting would look like editing. Asking for
		// the duty to clear set-user-id bits spares a request before every write.
		o.ExtraCapabilities |= fuse.CAP_ATOMIC_O_TRUNC | fuse.CAP_HANDLE_KILLPRIV_V2
		o.DirectMountFlags &^= unix.MS_RDONLY
		return o
	}
	// Where files are written it would leave old pages in the page cache: what is read while
	// a direct write is under way is dropped only after one that somebody waits for.
	o.ExtraCapabilities |= fuse.CAP_ASYNC_DIO
	if !direct {
		o.Options = append(o.Options, "ro")
	}
	return o
}
