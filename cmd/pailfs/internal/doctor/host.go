package doctor

import (
	"fmt"
	"time"

	"github.com/pailfs/pailfs/cmd/pailfs/internal/machine"
	"github.com/pailfs/pailfs/cmd/terminal"
)

// kernel judges the kernel's release, as uname says it.
type kernel struct{ release string }

// version returns its first two numbers.
func (k kernel) version() (major, minor int) {
	_, _ = fmt.Sscanf(k.release, "%d.%d", &major, &minor) // 0.0 is too old
	return major, minor
}

// atLeast reports whether the kernel is that new.
func (k kernel) atLeast(major, minor int) bool {
	a, b := k.version()
	return a > major || a == major && b >= minor
}

func (k kernel) find() Finding {
	const remedy = "use a kernel of 6.9 or later for reads that do not pass through the daemon"
	switch {
	case k.atLeast(6, 9):
		return ok("Linux %s", k.release).named("kernel")
	case k.atLeast(5, 4):
		return warn(remedy, "Linux %s: mounts work, without passthrough", k.release).named("kernel")
	}
	return fail(remedy, "Linux %s is too old: 5.4 is needed", k.release).named("kernel")
}

// fuse judges whether this process can mount; refused says why not, with the remedy.
type fuse struct{ refused error }

func (f fuse) find() Finding {
	if f.refused != nil {
		return fail("see the text", "%v", f.refused).named("fuse")
	}
	return ok("/dev/fuse can be opened, and this user can mount").named("fuse")
}

// passthrough judges whether the kernel can read the cache's files itself.
type passthrough struct {
	kernel kernel
	// admin says that this process has CAP_SYS_ADMIN.
	admin bool
}

func (p passthrough) find() Finding {
	const name = "passthrough"
	switch {
	case !p.kernel.atLeast(6, 9):
		return warn("use a kernel of 6.9 or later", "off: Linux %s has none", p.kernel.release).named(name)
	case !p.admin:
		return warn("mount as root, or give the container --cap-add SYS_ADMIN", "off: the capability CAP_SYS_ADMIN is missing").named(name)
	}
	return ok("on: the kernel reads whole files of the cache itself").named(name)
}

// files judges how many files the daemon may have open.
type files struct {
	// most is the hard limit; raise says that this process may go beyond it.
	most  uint64
	raise bool
}

func (f files) find() Finding {
	if f.most >= machine.WantedFiles || f.raise {
		return ok("%d files may be open at once, or more", min(f.most, machine.WantedFiles)).named("open files")
	}
	return warn(fmt.Sprintf("raise the hard limit: ulimit -Hn %d, or LimitNOFILE=%d in the unit", machine.WantedFiles, machine.WantedFiles),
		"at most %d files may be open at once", f.most).named("open files")
}

// ioLimit judges what the control group lets this process do with disks.
type ioLimit struct {
	// lines are those of io.max, or none.
	lines []string
}

func (l ioLimit) find() Finding {
	if len(l.lines) == 0 {
		return ok("the control group does not limit input and output").named("io limits")
	}
	return warn("raise io.max of the control group, or know that the cache is no faster", "the control group limits disks: %s", l.lines[0]).named("io limits")
}

// cacheDisk judges the disk of the cache directory.
type cacheDisk struct {
	dir string
	// kind is the file system's, "" where it has no name here.
	kind        string
	free, total int64
	// written is how many bytes were written and synced in took.
	written int64
	took    time.Duration
	err     error
}

const (
	// leastFree is the room without which a cache is none.
	leastFree = 1 << 30
	// slowDisk is the speed in bytes a second at which the object store is faster.
	slowDisk = 100e6
)

func (d cacheDisk) find() Finding {
	const name = "cache disk"
	if d.err != nil {
		return fail("choose a directory that can be written, on a local disk: --cache-dir", "%s cannot be used: %v", d.dir, d.err).named(name)
	}
	speed := float64(d.written) / max(d.took.Seconds(), 1e-9)
	text := fmt.Sprintf("%s: %s, %s of %s free, writes %s/s", d.dir, d.kind, terminal.Size(d.free), terminal.Size(d.total), terminal.Size(int64(speed)))
	switch {
	case d.kind == "nfs" || d.kind == "fuse" || d.kind == "smb":
		return warn("choose a local disk: --cache-dir", "%s: that is another machine's disk", text).named(name)
	case d.kind == "tmpfs":
		return warn("choose a disk: --cache-dir; memory has a tier of its own, --memory", "%s: that is memory, and what was not uploaded goes with it", text).named(name)
	case d.free < leastFree:
		return warn("make room, or choose another disk: --cache-dir", "%s: there is hardly any room", text).named(name)
	case speed < slowDisk:
		return warn("choose a local SSD: --cache-dir", "%s: that is slower than the object store", text).named(name)
	}
	return ok("%s", text).named(name)
}
