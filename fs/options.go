package fs

import (
	"bytes"
	"os"
	"strconv"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// fsType is the subtype of the mount: the kernel shows fuse.pailfs.
const fsType = "pailfs"

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
