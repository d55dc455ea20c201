package doctor

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pailfs/pailfs/cmd/pailfs/internal/machine"
)

// host returns the checks of this host, with the facts as they are.
func host(cacheDir string) []check {
	k := kernel{release()}
	checks := []check{k, fuse{machine.CheckFUSE(false)}, passthrough{k, capable(unix.CAP_SYS_ADMIN)}, openFiles(), ioLimits("/proc/self/cgroup", "/sys/fs/cgroup")}
	if cacheDir != "" {
		checks = append(checks, measure(cacheDir))
	}
	return checks
}

// release returns the kernel's, "" if it does not say.
func release() string {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return ""
	}
	return unix.ByteSliceToString(u.Release[:])
}

// capable reports whether this process has a capability.
func capable(capability int) bool {
	var sets [2]unix.CapUserData
	if err := unix.Capget(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &sets[0]); err != nil {
		return false
	}
	return sets[capability/32].Effective&(1<<(capability%32)) != 0
}

func openFiles() files {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return files{}
	}
	return files{most: limit.Max, raise: capable(unix.CAP_SYS_RESOURCE)}
}

// ioLimits reads io.max of the control group that the file at path names and of those above it,
// below root.
func ioLimits(path, root string) (l ioLimit) {
	text, err := os.ReadFile(path)
	if err != nil {
		return l
	}
	for line := range strings.Lines(string(text)) {
		group, unified := strings.CutPrefix(strings.TrimSpace(line), "0::")
		if !unified {
			continue
		}
		for group = filepath.Clean(group); ; group = filepath.Dir(group) {
			limits, err := os.ReadFile(filepath.Join(root, group, "io.max"))
			for limit := range strings.Lines(string(limits)) {
				if err == nil && strings.TrimSpace(limit) != "" {
					l.lines = append(l.lines, strings.TrimSpace(limit))
				}
			}
			if group == "/" || group == "." {
				break
			}
		}
	}
	return l
}

// fileSystems are the names of those that are told apart.
var fileSystems = map[int64]string{
	unix.EXT4_SUPER_MAGIC: "ext4", unix.XFS_SUPER_MAGIC: "xfs", unix.BTRFS_SUPER_MAGIC: "btrfs", unix.TMPFS_MAGIC: "tmpfs",
	unix.NFS_SUPER_MAGIC: "nfs", unix.OVERLAYFS_SUPER_MAGIC: "overlay", unix.FUSE_SUPER_MAGIC: "fuse", unix.SMB2_SUPER_MAGIC: "smb",
}

// testBytes is how much is written to see how fast a disk is, testPiece how much of it at once, and
// testTime when that ends on a slow one.
const (
	testBytes = 64 << 20
	testPiece = 1 << 20
	testTime  = 2 * time.Second
)

// measure looks at the disk of dir, or of the directory that it would be made in, and writes a file
// there, which has no name.
func measure(dir string) cacheDisk {
	d := cacheDisk{dir: dir}
	on := dir
	if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
		on = filepath.Dir(filepath.Clean(dir))
	}
	var st unix.Statfs_t
	if d.err = unix.Statfs(on, &st); d.err != nil {
		return d
	}
	d.free, d.total = int64(st.Bavail)*st.Bsize, int64(st.Blocks)*st.Bsize
	if d.kind = fileSystems[st.Type]; d.kind == "" {
		d.kind = "a file system"
	}
	f, err := os.CreateTemp(on, ".pailfs-doctor-")
	if err != nil {
		d.err = err
		return d
	}
	defer f.Close()
	if d.err = os.Remove(f.Name()); d.err != nil {
		return d
	}
	piece := make([]byte, testPiece)
	for i := range piece {
		piece[i] = byte(i * i >> 3) // what cannot be left out as zeros
	}
	begun := time.Now()
	for d.written < min(testBytes, d.free/2) && time.Since(begun) < testTime {
		n, err := f.Write(piece)
		d.written += int64(n)
		if err != nil {
			d.err = err
			return d
		}
	}
	d.err = unix.Fdatasync(int(f.Fd()))
	d.took = time.Since(begun)
	return d
}
