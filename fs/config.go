package fs

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"syscall"
	"time"

	"github.com/pailfs/pailfs/fs/internal/callers"
	"github.com/pailfs/pailfs/fs/internal/pagecache"
	"github.com/pailfs/pailfs/fs/writeback"
)

// Choice says when a feature of the kernel is used.
type Choice uint8

// The choices.
const (
	// Auto uses the feature where it can work and pays.
	Auto Choice = iota
	// On uses it, or refuses to mount.
	On
	// Off never uses it.
	Off
)

// String returns auto, on or off.
func (c Choice) String() string {
	switch c {
	case On:
		return "on"
	case Off:
		return "off"
	}
	return "auto"
}

// MarshalText implements [encoding.TextMarshaler].
func (c Choice) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (c *Choice) UnmarshalText(text []byte) error {
	for _, known := range []Choice{Auto, On, Off} {
		if string(text) == known.String() {
			*c = known
			return nil
		}
	}
	return fmt.Errorf("unknown choice %q: want auto, on or off", text)
}

// ProcessOf returns the process that the thread tid belongs to and the supplementary groups of
// the thread, 0 and none if unknown. It reads a file of /proc, which takes longer than many a
// request.
func ProcessOf(tid uint32) (pid uint32, groups []uint32) { return callers.ProcessOf(tid) }

// Caller is who made a request.
type Caller struct {
	// UID and GID are its effective ids, as the daemon's user namespace sees them.
	UID, GID uint32
	// TID is the id of the thread that waits for the answer, 0 if it lives outside the
	// daemon's PID namespace. [ProcessOf] tells its process.
	TID uint32
	// Dir is the directory on which the request was made, as a path relative to the
	// root of the mount: "" is the root.
	Dir string
	// DirID is the ID of that directory (see [Shown]).
	DirID uint64
	// Handle is the open description of that directory, a number that is never used again,
	// or 0 where the kernel opens directories by itself.
	Handle uint64
}

// Control answers the ioctls that programs make on directories of the mount. It
// must answer ENOTTY to commands it does not know, and must not keep input or
// output after it has returned. ctx ends when the caller is interrupted.
//
// Released says that a Handle with which it was called is closed, in all processes that
// had it: whoever was killed, too, calls no more by that.
type Control interface {
	ServeControl(ctx context.Context, caller Caller, cmd uint32, input, output []byte) (n int32, errno syscall.Errno)
	Released(handle uint64)
}

// Config describes a mount. Every zero value but that of Mountpoint is a usable
// default.
type Config struct {
	// Mountpoint is the absolute path of a directory that exists.
	Mountpoint string
	// Source is shown as the mounted device, for example oss://bucket/prefix.
	Source string
	// Immutable promises that neither names nor objects change while mounted. The
	// kernel then keeps names and attributes without a time limit.
	Immutable bool
	// NoOpen lets the kernel open and close files without asking. It needs
	// Immutable, holds for the whole mount and excludes passthrough.
	NoOpen Choice
	// MeanSize is how many bytes the files have on average, as far as is known, and 0
	// if nothing is: it chooses where NoOpen does not.
	MeanSize int64
	// Passthrough lets the kernel read files that are whole on SSD without us.
	Passthrough Choice
	// PassthroughMin is the smallest size, in bytes, that is passed through; 0
	// means DefaultPassthroughMin.
	PassthroughMin int64
	// pages takes the place of what is known of the kernel's page cache, in tests.
	pages *pagecache.Pages
	// lateAge is for how long what lost its name is kept at most, in tests; 0 is as ever.
	lateAge time.Duration
	// AllowOther lets users other than the one who mounts use the mount.
	AllowOther bool
	// AllowNonEmpty permits a mount point that has entries, which it hides.
	AllowNonEmpty bool
	// UID and GID own every file.
	UID, GID uint32
	// FileMode and DirMode are the permission bits of files and directories; 0
	// means 0644 and 0755.
	FileMode, DirMode uint32
	// ReadAheadKiB is how far the kernel reads ahead of a sequential reader; 0 means
	// DefaultReadAheadKiB. It takes effect where sysfs may be written.
	ReadAheadKiB int
	// StatfsBytes is the size that statfs reports; 0 means 1 PiB.
	StatfsBytes uint64
	// Changes tells when names come to mean something else, which the kernel is told
	// then; nil means never but when they expire. It needs a mount that is not
	// immutable.
	Changes Changes
	// Space keeps what is changed through the mount. It must have been opened over the
	// tree that is mounted. nil makes the mount read-only.
	Space *writeback.Space
	// Attrs says that Space keeps modes, owners, times and extended attributes; otherwise
	// a change of them is EPERM, or EOPNOTSUPP.
	Attrs bool
	// Control answers ioctls on directories; nil answers ENOTTY.
	Control Control
	// Audit is told what programs do; nil means nobody is. It excludes NoOpen, without which
	// the kernel opens files unseen.
	Audit Auditor
}

// Defaults of [Config]. DESIGN.md has the measurements behind them.
const (
	// DefaultPassthroughMin is the size from which an open in passthrough, which
	// costs more, is repaid by the reading.
	DefaultPassthroughMin = 512 << 10
	// DefaultReadAheadKiB is the readahead of the mount in the kernel.
	DefaultReadAheadKiB = 1 << 10
)

const defaultStatfsBytes = 1 << 50

// withDefaults returns c with every zero value replaced, or says what is wrong
// with it.
func (c Config) withDefaults() (Config, error) {
	switch {
	case c.Mountpoint == "":
		return c, errors.New("no mount point given")
	case !filepath.IsAbs(c.Mountpoint):
		return c, fmt.Errorf("mount point %q is not an absolute path", c.Mountpoint)
	case c.NoOpen == On && !c.Immutable:
		return c, errors.New("no-open needs an immutable mount: without OPEN a new version of a file would never be seen")
	case c.Immutable && c.Space != nil:
		return c, errors.New("an immutable mount cannot be written")
	case c.NoOpen == On && c.Passthrough == On:
		return c, errors.New("no-open and passthrough exclude each other: there is no OPEN in which to offer a file")
	case c.NoOpen == On && c.Audit != nil:
		return c, errors.New("no-open and an audit exclude each other: the kernel would open files unseen")
	case c.Changes != nil && c.Immutable:
		return c, errors.New("an immutable mount follows no changes")
	case c.FileMode&^0o777 != 0 || c.DirMode&^0o777 != 0:
		return c, fmt.Errorf("modes %#o and %#o hold more than permission bits", c.FileMode, c.DirMode)
	case c.PassthroughMin < 0 || c.ReadAheadKiB < 0:
		return c, errors.New("negative size")
	}
	c.Mountpoint = filepath.Clean(c.Mountpoint)
	if c.FileMode == 0 {
		c.FileMode = 0o644
	}
	if c.DirMode == 0 {
		c.DirMode = 0o755
	}
	if c.PassthroughMin == 0 {
		c.PassthroughMin = DefaultPassthroughMin
	}
	if c.ReadAheadKiB == 0 {
		c.ReadAheadKiB = DefaultReadAheadKiB
	}
	if c.StatfsBytes == 0 {
		c.StatfsBytes = defaultStatfsBytes
	}
	if c.Source == "" {
		c.Source = fsType
	}
	return c, nil
}
