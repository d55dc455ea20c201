package mountpoint

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

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

// List returns the mounts that this process sees, in the order of mounting.
func List() ([]Mount, error) {
	f, err := os.Open("/proc/self/mountinfo")
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
	var mounts []Mount
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		m, err := parseLine(lines.Text())
		if err != nil {
			return nil, err
		}
		mounts = append(mounts, m)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read mount table: %w", err)
	}
	return mounts, nil
}

// parseLine reads one line: six fields, optional ones, a dash, three fields.
func parseLine(line string) (Mount, error) {
	before, after, ok := strings.Cut(line, " - ")
	fields, tail := strings.Fields(before), strings.Fields(after)
	if !ok || len(fields) < 6 || len(tail) < 2 {
		return Mount{}, fmt.Errorf("mount table has the line %q, which is not understood", line)
	}
	major, minor, _ := strings.Cut(fields[2], ":")
	ma, err1 := strconv.ParseUint(major, 10, 32)
	mi, err2 := strconv.ParseUint(minor, 10, 32)
	if err1 != nil || err2 != nil {
		return Mount{}, fmt.Errorf("mount table has the device %q, which is not understood", fields[2])
	}
	super := ""
	if len(tail) > 2 {
		super = tail[2]
	}
	return Mount{
		Path:     unescape(fields[4]),
		Type:     unescape(tail[0]),
		Source:   unescape(tail[1]),
		ReadOnly: hasOption(fields[5], "ro") || hasOption(super, "ro"),
		Major:    uint32(ma),
		Minor:    uint32(mi),
	}, nil
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

// unescape undoes the kernel's octal escapes of blanks and backslashes.
func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}
