package mountpoint

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// Type is the file system type under which pailfs mounts.
const Type = "fuse.pailfs"

// Mount is one line of the mount table.
type Mount struct {
	// Path is where it is mounted.
	Path string
	// Type is the file system's type, for example fuse.pailfs.
	Type string
	// Source is what is mounted, for example oss://bucket/prefix.
	Source string
	// ReadOnly says that the mount or its file system is read-only.
	ReadOnly bool
	// Major and Minor number the file system's device.
	Major, Minor uint32
}

// Dev returns the device number as stat(2) reports it.
func (m Mount) Dev() uint64 { return unix.Mkdev(m.Major, m.Minor) }

// List returns the mounts that this process sees, in the order of mounting. That the table is not
// there is no [Missing] path of the caller's.
func List() ([]Mount, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errors.New("read mount table: /proc/self/mountinfo is not there: pailfs needs /proc, mount it with mount -t proc proc /proc")
	}
	if err != nil {
		return nil, fmt.Errorf("read mount table: %w", err)
	}
	defer func() { _ = f.Close() }() // only read
	return parse(f)
}

// At returns what is mounted at exactly path, the topmost if there are several.
func At(path string) (Mount, bool, error) {
	mounts, err := List()
	if err != nil {
		return Mount{}, false, err
	}
	for _, m := range slices.Backward(mounts) {
		if m.Path == path {
			return m, true, nil
		}
	}
	return Mount{}, false, nil
}

// parse reads a mount table as proc_pid_mountinfo(5) describes it.
func parse(r io.Reader) ([]Mount, error) {
	table, err := mountinfo.GetMountsFromReader(r, nil)
	if err != nil {
		return nil, fmt.Errorf("read mount table: %w", err)
	}
	mounts := make([]Mount, len(table))
	for i, m := range table {
		mounts[i] = Mount{
			Path:     m.Mountpoint,
			Type:     m.FSType,
			Source:   m.Source,
			ReadOnly: hasOption(m.Options, "ro") || hasOption(m.VFSOptions, "ro"),
			Major:    uint32(m.Major),
			Minor:    uint32(m.Minor),
		}
	}
	return mounts, nil
}

// hasOption reports whether the comma-separated options have the given one.
func hasOption(options, option string) bool {
	for o := range strings.SplitSeq(options, ",") {
		if o == option {
			return true
		}
	}
	return false
}
