package fs

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pailfs/pailfs/oss/ossemu/ossemutest"
)

// labels are what every operation finds in its directory: ".", and names in it.
var labels = []string{".", "f", "victim", "empty", "link", "d", "d/x", "e", "full", "full/y"}

// populate makes the names of labels below dir.
func populate(t testing.TB, dir string) {
	t.Helper()
	for _, name := range []string{"d", "e", "full"} {
		must(t, os.MkdirAll(filepath.Join(dir, name), 0o755))
	}
	for i, name := range []string{"f", "victim", "d/x", "full/y"} {
		must(t, os.WriteFile(filepath.Join(dir, name), random(uint64(i+1), 10_000), 0o644))
	}
	must(t, os.WriteFile(filepath.Join(dir, "empty"), nil, 0o644))
	must(t, os.Symlink("f", filepath.Join(dir, "link")))
}

// put puts the same into a bucket.
func put(e *ossemutest.Emulator, dir string) {
	e.Put(dir+"/e/", nil)
	for i, name := range []string{"f", "victim", "d/x", "full/y"} {
		e.Put(dir+"/"+name, random(uint64(i+1), 10_000))
	}
	e.Put(dir+"/empty", nil)
}

// timed is an operation on the names of labels in dir.
type timed struct {
	name string
	// attrs says that it needs a mount that keeps attributes.
	attrs bool
	do    func(dir string) error
}

// with opens a name, does something with it and closes it.
func with(name string, flags int, do func(fd int) error) func(dir string) error {
	return func(dir string) error {
		fd, err := unix.Open(filepath.Join(dir, name), flags, 0o644)
		if err != nil {
			return err
		}
		err = do(fd)
		if failed := unix.Close(fd); err == nil {
			err = failed
		}
		return err
	}
}

// on does something with the path of a name.
func on(name string, do func(path string) error) func(dir string) error {
	return func(dir string) error { return do(filepath.Join(dir, name)) }
}

func nothing(int) error { return nil }

func writes(p []byte) func(fd int) error {
	return func(fd int) error {
		n, err := unix.Write(fd, p)
		if err == nil && n != len(p) {
			err = unix.EIO
		}
		return err
	}
}

func renames(from, to string, flags uint) func(dir string) error {
	return func(dir string) error {
		return unix.Renameat2(unix.AT_FDCWD, filepath.Join(dir, from), unix.AT_FDCWD, filepath.Join(dir, to), flags)
	}
}

func touches(name string, atime, mtime unix.Timespec) func(dir string) error {
	return func(dir string) error {
		return unix.UtimesNanoAt(unix.AT_FDCWD, filepath.Join(dir, name), []unix.Timespec{atime, mtime}, unix.AT_SYMLINK_NOFOLLOW)
	}
}

// mapped does something with a mapping in another process.
func mapped(how string) func(dir string) error {
	return func(dir string) error {
		out, err := exec.Command("python3", "-c", storeHow, filepath.Join(dir, "f"), how).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	}
}

// storeHow maps the beginning of a file and stores into it, or reads it: Python's own module
// would keep a descriptor.
const storeHow = `import ctypes,os,sys
path,how=sys.argv[1:]
libc=ctypes.CDLL(None,use_errno=True)
libc.mmap.restype=ctypes.c_void_p
libc.mmap.argtypes=[ctypes.c_void_p,ctypes.c_size_t,ctypes.c_int,ctypes.c_int,ctypes.c_int,ctypes.c_long]
libc.munmap.argtypes=[ctypes.c_void_p,ctypes.c_size_t]
libc.msync.argtypes=[ctypes.c_void_p,ctypes.c_size_t,ctypes.c_int]
fd=os.open(path,os.O_RDWR)
m=libc.mmap(None,4096,1 if how=="read" else 3,2 if how=="private" else 1,fd,0)
if m==ctypes.c_void_p(-1).value: sys.exit("mmap: %d"%ctypes.get_errno())
if how=="closed": os.close(fd)
if how=="read": ctypes.string_at(m,10)
else: ctypes.memmove(m,b"new",3)
if how=="synced" and libc.msync(m,4096,4): sys.exit("msync: %d"%ctypes.get_errno())
if how!="exit": libc.munmap(m,4096)`

var (
	longAgo   = unix.Timespec{Sec: 1_000_000_000, Nsec: 123_456_789}
	untouched = unix.Timespec{Nsec: unix.UTIME_OMIT}
	present   = unix.Timespec{Nsec: unix.UTIME_NOW}
)

// timedOperations are the operations of the table.
var timedOperations = []timed{
	{name: "write", do: with("f", unix.O_WRONLY, writes([]byte("new")))},
	{name: "write nothing", do: with("f", unix.O_WRONLY, writes(nil))},
	{name: "append", do: with("f", unix.O_WRONLY|unix.O_APPEND, writes([]byte("new")))},
	{name: "write synchronously", do: with("f", unix.O_WRONLY|unix.O_SYNC, writes([]byte("new")))},
	{name: "write directly", do: with("f", unix.O_WRONLY|unix.O_DIRECT, writes(aligned(4096)))},
	{name: "write beyond the end", do: with("f", unix.O_WRONLY, func(fd int) error {
		_, err := unix.Pwrite(fd, []byte("new"), 50_000)
		return err
	})},
	{name: "write and fsync", do: with("f", unix.O_WRONLY, func(fd int) error {
		_ = writes([]byte("new"))(fd)
		return unix.Fsync(fd)
	})},
	{name: "open to read", do: with("f", unix.O_RDONLY, nothing)},
	{name: "open to write", do: with("f", unix.O_WRONLY, nothing)},
	{name: "open and fsync", do: with("f", unix.O_RDWR, unix.Fsync)},
	{name: "open with O_CREAT", do: with("f", unix.O_RDWR|unix.O_CREAT, nothing)},
	{name: "open with O_TRUNC", do: with("f", unix.O_WRONLY|unix.O_TRUNC, nothing)},
	{name: "open an empty file with O_TRUNC", do: with("empty", unix.O_WRONLY|unix.O_TRUNC, nothing)},
	{name: "open with O_TRUNC beside a reader", do: with("f", unix.O_RDONLY, func(fd int) error {
		other, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", fd), unix.O_WRONLY|unix.O_TRUNC, 0)
		if err != nil {
			return err
		}
		return unix.Close(other)
	})},
	{name: "truncate to less", do: on("f", func(p string) error { return unix.Truncate(p, 100) })},
	{name: "truncate to more", do: on("f", func(p string) error { return unix.Truncate(p, 100_000) })},
	{name: "truncate to the same", do: on("f", func(p string) error { return unix.Truncate(p, 10_000) })},
	{name: "truncate to nothing", do: on("f", func(p string) error { return unix.Truncate(p, 0) })},
	{name: "truncate an empty file", do: on("empty", func(p string) error { return unix.Truncate(p, 0) })},
	{name: "ftruncate to less", do: with("f", unix.O_RDWR, func(fd int) error { return unix.Ftruncate(fd, 100) })},
	{name: "ftruncate to more", do: with("f", unix.O_RDWR, func(fd int) error { return unix.Ftruncate(fd, 100_000) })},
	{name: "ftruncate to the same", do: with("f", unix.O_RDWR, func(fd int) error { return unix.Ftruncate(fd, 10_000) })},
	{name: "fallocate", do: with("f", unix.O_RDWR, func(fd int) error { return unix.Fallocate(fd, 0, 0, 100_000) })},
	{name: "punch a hole", do: with("f", unix.O_RDWR, func(fd int) error {
		return unix.Fallocate(fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, 4096)
	})},
	{name: "zero a range", do: with("f", unix.O_RDWR, func(fd int) error {
		return unix.Fallocate(fd, unix.FALLOC_FL_ZERO_RANGE|unix.FALLOC_FL_KEEP_SIZE, 0, 4096)
	})},
	{name: "copy_file_range", do: func(dir string) error {
		return with("f", unix.O_RDWR, func(to int) error {
			return with("victim", unix.O_RDONLY, func(from int) error {
				_, err := unix.CopyFileRange(from, nil, to, nil, 5000, 0)
				return err
			})(dir)
		})(dir)
	}},
	{name: "sendfile", do: func(dir string) error {
		return with("f", unix.O_RDWR, func(to int) error {
			return with("victim", unix.O_RDONLY, func(from int) error {
				_, err := unix.Sendfile(to, from, nil, 5000)
				return err
			})(dir)
		})(dir)
	}},
	{name: "read", do: with("f", unix.O_RDONLY, func(fd int) error {
		_, err := unix.Read(fd, make([]byte, 20_000))
		return err
	})},
	{name: "read directly", do: with("f", unix.O_RDONLY|unix.O_DIRECT, func(fd int) error {
		_, err := unix.Read(fd, aligned(8192))
		return err
	})},
	{name: "seek", do: with("f", unix.O_RDONLY, func(fd int) error {
		_, err := unix.Seek(fd, 0, unix.SEEK_END)
		return err
	})},
	{name: "flock", do: with("f", unix.O_RDWR, func(fd int) error { return unix.Flock(fd, unix.LOCK_EX) })},
	{name: "store through a mapping", do: mapped("")},
	{name: "store through a mapping and msync", do: mapped("synced")},
	{name: "store through a mapping after the close", do: mapped("closed")},
	{name: "store through a mapping and exit", do: mapped("exit")},
	{name: "store into a private mapping", do: mapped("private")},
	{name: "read through a mapping", do: mapped("read")},
	{name: "chmod", attrs: true, do: on("f", func(p string) error { return unix.Chmod(p, 0o600) })},
	{name: "chmod to the same", do: on("f", func(p string) error { return unix.Chmod(p, 0o644) })},
	{name: "fchmod", attrs: true, do: with("f", unix.O_RDONLY, func(fd int) error { return unix.Fchmod(fd, 0o640) })},
	{name: "chown", attrs: true, do: on("f", func(p string) error { return unix.Chown(p, 7, 8) })},
	{name: "chown to the same", do: on("f", func(p string) error { return unix.Chown(p, 0, 0) })},
	{name: "chown of nothing", do: on("f", func(p string) error { return unix.Chown(p, -1, -1) })},
	{name: "fchown", attrs: true, do: with("f", unix.O_RDONLY, func(fd int) error { return unix.Fchown(fd, -1, 9) })},
	{name: "lchown of a link", attrs: true, do: on("link", func(p string) error { return unix.Lchown(p, 7, 8) })},
	{name: "utimens", attrs: true, do: touches("f", longAgo, longAgo)},
	{name: "utimens now", attrs: true, do: touches("f", present, present)},
	{name: "utimens of the access alone", do: touches("f", longAgo, untouched)},
	{name: "utimens of the write alone", attrs: true, do: touches("f", untouched, longAgo)},
	{name: "futimens", attrs: true, do: with("f", unix.O_RDWR, func(fd int) error {
		return unix.UtimesNanoAt(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", fd), []unix.Timespec{longAgo, longAgo}, 0)
	})},
	{name: "setxattr", attrs: true, do: on("f", func(p string) error { return unix.Setxattr(p, "user.a", []byte("1"), 0) })},
	{name: "fsetxattr", attrs: true, do: with("f", unix.O_RDONLY, func(fd int) error { return unix.Fsetxattr(fd, "user.a", []byte("1"), 0) })},
	{name: "setxattr and removexattr", attrs: true, do: on("f", func(p string) error {
		if err := unix.Setxattr(p, "user.a", []byte("1"), 0); err != nil {
			return err
		}
		return unix.Removexattr(p, "user.a")
	})},
	{name: "removexattr of none", attrs: true, do: on("f", func(p string) error { return unix.Removexattr(p, "user.none") })},
	{name: "listxattr", do: on("f", func(p string) error {
		_, err := unix.Listxattr(p, nil)
		return err
	})},
	{name: "create", do: with("new", unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL, writes([]byte("new")))},
	{name: "create what is there", do: with("f", unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL, nothing)},
	{name: "create below", do: with("d/new", unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL, nothing)},
	{name: "mknod", do: on("new", func(p string) error { return unix.Mknod(p, unix.S_IFREG|0o644, 0) })},
	{name: "mkdir", do: on("new", func(p string) error { return unix.Mkdir(p, 0o755) })},
	{name: "mkdir of what is there", do: on("d", func(p string) error { return unix.Mkdir(p, 0o755) })},
	{name: "mkdir below", do: on("e/new", func(p string) error { return unix.Mkdir(p, 0o755) })},
	{name: "symlink", do: on("new", func(p string) error { return unix.Symlink("f", p) })},
	{name: "unlink", do: on("f", unix.Unlink)},
	{name: "unlink what is open", do: func(dir string) error {
		return with("f", unix.O_RDWR, func(int) error { return unix.Unlink(filepath.Join(dir, "f")) })(dir)
	}},
	{name: "unlink a link", do: on("link", unix.Unlink)},
	{name: "unlink below", do: on("d/x", unix.Unlink)},
	{name: "unlink nothing", do: on("none", unix.Unlink)},
	{name: "rmdir", do: on("e", unix.Rmdir)},
	{name: "rmdir of one that is not empty", do: on("full", unix.Rmdir)},
	{name: "rename", do: renames("f", "new", 0)},
	{name: "rename over a file", do: renames("f", "victim", 0)},
	{name: "rename with NOREPLACE", do: renames("f", "new", unix.RENAME_NOREPLACE)},
	{name: "rename with NOREPLACE over a file", do: renames("f", "victim", unix.RENAME_NOREPLACE)},
	{name: "rename to itself", do: renames("f", "f", 0)},
	{name: "rename to another directory", do: renames("f", "d/new", 0)},
	{name: "rename over a file of another directory", do: renames("f", "d/x", 0)},
	{name: "rename from another directory", do: renames("d/x", "new", 0)},
	{name: "rename between directories below", do: renames("d/x", "e/new", 0)},
	{name: "rename a link", do: renames("link", "new", 0)},
	{name: "rename a directory", do: renames("full", "new", 0)},
	{name: "rename a directory into another", do: renames("full", "e/new", 0)},
	{name: "rename a directory over another", do: renames("full", "e", 0)},
	{name: "rename a directory over one that is not empty", do: renames("e", "full", 0)},
	{name: "chmod of a directory", attrs: true, do: on("d", func(p string) error { return unix.Chmod(p, 0o700) })},
	{name: "chmod of a directory to the same", do: on("d", func(p string) error { return unix.Chmod(p, 0o755) })},
	{name: "chown of a directory", attrs: true, do: on("d", func(p string) error { return unix.Chown(p, 7, 8) })},
	{name: "utimens of a directory", do: touches("d", longAgo, longAgo)},
	{name: "utimens of a directory now", do: touches("d", present, present)},
	{name: "fsync of a directory", do: with("d", unix.O_RDONLY|unix.O_DIRECTORY, unix.Fsync)},
	{name: "list", do: on(".", func(p string) error {
		_, err := os.ReadDir(p)
		return err
	})},
	{name: "readlink", do: on("link", func(p string) error {
		_, err := unix.Readlink(p, make([]byte, 10))
		return err
	})},
	{name: "access", do: on("f", func(p string) error { return unix.Access(p, unix.R_OK|unix.W_OK) })},
}

// watchedTimes are the times of the labels of one directory, through descriptors that follow
// them wherever they go.
type watchedTimes struct {
	names []string
	fds   []int
}

// observe begins to watch the labels of dir that are there.
func observe(t testing.TB, dir string) *watchedTimes {
	t.Helper()
	o := &watchedTimes{}
	for _, name := range labels {
		fd, err := unix.Open(filepath.Join(dir, name), unix.O_PATH|unix.O_NOFOLLOW, 0)
		if err == unix.ENOENT && name == "link" {
			continue // a bucket has none of those
		}
		must(t, err)
		o.names, o.fds = append(o.names, name), append(o.fds, fd)
	}
	return o
}

// times returns the times now.
func (o *watchedTimes) times(t testing.TB) map[string][2]int64 {
	t.Helper()
	times := make(map[string][2]int64)
	for i, fd := range o.fds {
		var st unix.Stat_t
		must(t, unix.Fstat(fd, &st))
		times[o.names[i]] = [2]int64{st.Mtim.Nano(), st.Ctim.Nano()}
	}
	return times
}

func (o *watchedTimes) close() {
	for _, fd := range o.fds {
		_ = unix.Close(fd) // it was only looked at
	}
}

// timesMoved says which times differ, in the order of labels.
func timesMoved(before, after map[string][2]int64) string {
	var moved []string
	for _, name := range labels {
		for i, which := range []string{"mtime", "ctime"} {
			if before[name][i] != after[name][i] {
				moved = append(moved, which+" of "+name)
			}
		}
	}
	return strings.Join(moved, ", ")
}

// awaitTick waits until what the kernel stamps now differs from all that it has stamped.
func awaitTick(t testing.TB) {
	t.Helper()
	coarse := func() unix.Timespec {
		var now unix.Timespec
		must(t, unix.ClockGettime(unix.CLOCK_REALTIME_COARSE, &now))
		return now
	}
	for range 2 {
		before := coarse()
		eventually(t, "the clock of the kernel moves", func() bool { return coarse() != before })
	}
}

// published waits until no file of the mount is a staged one.
func (w *written) published(t testing.TB, paths ...string) {
	t.Helper()
	w.drain(t)
	for _, path := range paths {
		eventually(t, path+" is an object", func() bool {
			value := make([]byte, 100)
			n, err := unix.Lgetxattr(w.path(path), xattrTier, value)
			return err == nil && string(value[:n]) != "staged"
		})
	}
}

// TestTimesMoveAsOnALocalDisk does some ninety operations on a mount and on the local disk,
// and compares which times of the file, of others and of the directories move.
func TestTimesMoveAsOnALocalDisk(t *testing.T) {
	for _, attrs := range []bool{false, true} {
		for _, state := range []string{"written", "published", "of the bucket"} {
			for _, mode := range []Choice{On, Off} {
				if mode == Off && (state == "of the bucket" || !attrs) || testing.Short() && (mode == Off || attrs == (state == "written")) {
					continue // what is in it is in the others, too
				}
				t.Run(fmt.Sprintf("attributes %t, %s, passthrough %v", attrs, state, mode), func(t *testing.T) {
					timesMove(t, attrs, state, mode)
				})
			}
		}
	}
}

func timesMove(t *testing.T, attrs bool, state string, mode Choice) {
	e := startStore(t)
	local := tempDir(t)
	var operations []timed
	for _, o := range timedOperations {
		if attrs || !o.attrs {
			operations = append(operations, o)
		}
	}
	name := func(i int) string { return fmt.Sprintf("op%03d", i) }
	if state == "of the bucket" {
		for i := range operations {
			put(e, name(i))
		}
	}
	config := Config{Attrs: attrs, Passthrough: mode, PassthroughMin: 1, FileMode: 0o644, DirMode: 0o755}
	w := mountWritten(t, e, writtenOptions{config: config})
	var files []string
	for i := range operations {
		must(t, os.Mkdir(filepath.Join(local, name(i)), 0o755))
		populate(t, filepath.Join(local, name(i)))
		if state == "of the bucket" {
			continue
		}
		must(t, os.Mkdir(w.path(name(i)), 0o755))
		populate(t, w.path(name(i)))
		for _, file := range []string{"f", "victim", "empty", "d/x", "full/y"} {
			files = append(files, name(i)+"/"+file)
		}
	}
	if state == "published" {
		w.published(t, files...)
	}
	const together = 25
	for first := 0; first < len(operations); first += together {
		batch := operations[first:min(first+together, len(operations))]
		roots := []string{w.dir, local}
		watched := make([][2]*watchedTimes, len(batch))
		before := make([][2]map[string][2]int64, len(batch))
		for i := range batch {
			for side, root := range roots {
				watched[i][side] = observe(t, filepath.Join(root, name(first+i)))
				before[i][side] = watched[i][side].times(t)
			}
		}
		awaitTick(t)
		for i, o := range batch {
			if strings.Contains(o.name, "link") && !slices.Contains(watched[i][0].names, "link") {
				continue
			}
			var moved [2]string
			var errs [2]error
			for side, root := range roots {
				errs[side] = o.do(filepath.Join(root, name(first+i)))
				moved[side] = timesMoved(before[i][side], watched[i][side].times(t))
			}
			if cannot(o.name, errs[1]) {
				continue
			}
			if errorNumber(errs[0]) != errorNumber(errs[1]) || errs[1] != nil && errorNumber(errs[1]) == 0 {
				t.Errorf("%s: %v, on the local disk %v", o.name, errs[0], errs[1])
			}
			if moved[0] != moved[1] {
				t.Errorf("%s moves %q, on the local disk %q", o.name, moved[0], moved[1])
			}
		}
		for i := range watched {
			watched[i][0].close()
			watched[i][1].close()
		}
	}
}

// cannot reports whether the local disk is one that does not know an operation.
func cannot(operation string, err error) bool {
	errno := errorNumber(err)
	return errno == unix.EOPNOTSUPP || errno == unix.EINVAL && strings.Contains(operation, "directly")
}

// told are the times of names of a mount.
func (w *written) told(t testing.TB, names ...string) map[string][2]time.Time {
	t.Helper()
	told := make(map[string][2]time.Time)
	for _, name := range names {
		var st syscall.Stat_t
		must(t, syscall.Lstat(w.path(name), &st))
		told[name] = [2]time.Time{time.Unix(st.Mtim.Unix()), time.Unix(st.Ctim.Unix())}
	}
	return told
}

// stays fails where a name has other times than it was told to have.
func (w *written) stays(t testing.TB, when string, want map[string][2]time.Time) {
	t.Helper()
	got := w.told(t, slices.Collect(maps.Keys(want))...)
	for name, times := range want {
		for i, which := range []string{"mtime", "ctime"} {
			if !got[name][i].Equal(times[i]) {
				t.Errorf("%s the %s of %s is %v, and was %v", when, which, name, got[name][i], times[i])
			}
		}
	}
}

// forgets makes the kernel forget all inodes of the mount.
func (w *written) forgets(t testing.TB) {
	t.Helper()
	eventually(t, "the kernel forgets", func() bool {
		must(t, unix.Mount("", w.dir, "", unix.MS_REMOUNT|unix.MS_NOSUID|unix.MS_NODEV, ""))
		return w.mount.Status().Inodes == 1
	})
}
