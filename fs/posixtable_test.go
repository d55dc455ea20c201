package fs

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// posixDifferences are what a bucket, or this mount, does not do as ext4 does.
var posixDifferences = []tableDifference{
	{"^link", "EPERM", "ok", "link to new, a file, by root", "an object has one key"},
	{"^mknod of a device", "EPERM", "ok", "mknod of a device, nothing, by root", "devices have no place in a bucket, and the mount is nodev"},
	{"^open .*O_TMPFILE", "ENOTSUP", "ok .*", "open O_RDWR|O_TMPFILE, the directory itself, by root", "a file without a name could only be linked to one"},
	{"^(set|remove)xattr, (an? (empty |full )?directory|a link to a directory|the directory itself)", "ENOTSUP", "ok|ENODATA", "setxattr, the directory itself, by root", "directories keep no extended attributes"},
	{"^setxattr of root", "ENOTSUP", "ok", "setxattr of root, a file, by root", "no file keeps extended attributes of other namespaces than user"},
	{"^rename RENAME_EXCHANGE of", "EINVAL", "ok", "rename RENAME_EXCHANGE of a file, a fifo, by root", "two objects cannot change places at once"},
}

// TestSystemCallsAsOnALocalDisk does system calls on all kinds of names, as several users,
// and compares what they return, and what is there afterwards, with ext4.
func TestSystemCallsAsOnALocalDisk(t *testing.T) {
	w := mountWritten(t, startStore(t), writtenOptions{config: Config{Attrs: true, AllowOther: true}})
	compareTable(t, "posix", w.dir, tableEvery(10), posixDifferences)
}

// tableTarget is a name that calls are made with.
type tableTarget struct {
	name, path string
	setUp      func() error
}

// Most belong to 1001:2001.
func ownedDir(name string, mode uint32) error {
	return errors.Join(os.Mkdir(name, 0o700), unix.Chown(name, 1001, 2001), unix.Chmod(name, mode))
}

func ownedFile(name string, mode uint32) error { return makeFile(name, 1001, 2001, mode) }

func ownedLink(target, name string) error {
	return errors.Join(os.Symlink(target, name), unix.Lchown(name, 1001, 2001))
}

func ownedNode(name string, kind, mode uint32) error {
	return errors.Join(unix.Mknod(name, kind|0o600, 0), unix.Chown(name, 1001, 2001), unix.Chmod(name, mode))
}

func both(a, b func() error) func() error { return func() error { return errors.Join(a(), b()) } }

func tableTargets() []tableTarget {
	nothing := func() error { return nil }
	file := func() error { return ownedFile("f", 0o644) }
	dir := func() error { return ownedDir("d", 0o755) }
	full := both(dir, func() error { return ownedFile("d/x", 0o644) })
	fifo := func() error { return ownedNode("p", unix.S_IFIFO, 0o644) }
	link := func(to string) func() error { return func() error { return ownedLink(to, "l") } }
	chain := func(n int) func() error {
		return func() error {
			err := ownedFile("l0", 0o644)
			for i := range n {
				err = errors.Join(err, ownedLink(fmt.Sprint("l", i), fmt.Sprint("l", i+1)))
			}
			return err
		}
	}
	within := func(mode uint32, uid, gid int) func() error {
		return func() error {
			return errors.Join(os.Mkdir("in", 0o700), ownedFile("in/f", 0o666), unix.Chown("in", uid, gid), unix.Chmod("in", mode))
		}
	}
	dirWithin := func(mode uint32) func() error {
		return func() error {
			return errors.Join(os.Mkdir("in", 0o700), ownedDir("in/d", 0o777), unix.Chmod("in", mode))
		}
	}
	n255 := strings.Repeat("n", 255)
	return []tableTarget{
		{"a file", "f", file},
		{"a file for its owner", "f", func() error { return ownedFile("f", 0o600) }},
		{"a file for its group", "f", func() error { return ownedFile("f", 0o070) }},
		{"a file for others", "f", func() error { return ownedFile("f", 0o007) }},
		{"a file for all", "f", func() error { return ownedFile("f", 0o777) }},
		{"a file for nobody", "f", func() error { return ownedFile("f", 0) }},
		{"an empty file", "f", func() error { return errors.Join(ownedFile("f", 0o666), os.Truncate("f", 0)) }},
		{"an empty directory", "d", dir},
		{"a full directory", "d", full},
		{"a directory for all", "d", func() error { return ownedDir("d", 0o777) }},
		{"a directory for nobody", "d", func() error { return ownedDir("d", 0) }},
		{"a link to a file", "l", both(file, link("f"))},
		{"a link to a directory", "l", both(full, link("d"))},
		{"a link to nothing", "l", link("m")},
		{"a link to itself", "l", link("l")},
		{"a link to a fifo", "l", both(fifo, link("p"))},
		{"a chain of 40 links", "l40", chain(40)},
		{"a chain of 41 links", "l41", chain(41)},
		{"a fifo", "p", fifo},
		{"a fifo for its owner", "p", func() error { return ownedNode("p", unix.S_IFIFO, 0o600) }},
		{"a socket", "s", func() error { return ownedNode("s", unix.S_IFSOCK, 0o666) }},
		{"nothing", "m", nothing},
		{"nothing in nothing", "m/x", nothing},
		{"below a file", "f/x", file},
		{"below a fifo", "p/x", fifo},
		{"below a link to a file", "l/x", both(file, link("f"))},
		{"below a link to a directory", "l/x", both(full, link("d"))},
		{"nothing below a directory for all", "d/m", func() error { return ownedDir("d", 0o777) }},
		{"a file with a slash", "f/", file},
		{"a directory with a slash", "d/", dir},
		{"a link to a file with a slash", "l/", both(file, link("f"))},
		{"a link to a directory with a slash", "l/", both(full, link("d"))},
		{"a link to nothing with a slash", "l/", link("m")},
		{"a fifo with a slash", "p/", fifo},
		{"nothing with a slash", "m/", nothing},
		{"the directory itself", ".", nothing},
		{"a directory's dot", "d/.", dir},
		{"a directory's dot dot", "d/..", dir},
		{"no path", "", nothing},
		{"a file of a name of 255 bytes", n255, func() error { return ownedFile(n255, 0o644) }},
		{"nothing of a name of 255 bytes", n255, nothing},
		{"a name of 256 bytes", n255 + "n", nothing},
		{"a path of 4095 bytes", strings.Repeat("./", 2047) + "f", file},
		{"a path of 4096 bytes", strings.Repeat("./", 2047) + "/f", file},
		{"a file in a directory without search", "in/f", within(0o666, 1001, 2001)},
		{"a file in a directory for its owner", "in/f", within(0o700, 1001, 2001)},
		{"a file in a directory for its group", "in/f", within(0o770, 0, 2001)},
		{"a file in a directory without writing", "in/f", within(0o555, 1001, 2001)},
		{"a file in a sticky directory", "in/f", within(0o1777, 0, 0)},
		{"a file in a sticky directory of a member", "in/f", within(0o1777, 1002, 2001)},
		{"a directory in a sticky directory", "in/d", dirWithin(0o1777)},
		{"nothing in a sticky directory", "in/m", within(0o1777, 0, 0)},
		{"nothing in a set-group-ID directory", "in/m", within(0o2777, 0, 2005)},
		{"a file in a set-group-ID directory", "in/f", within(0o2777, 0, 2005)},
		{"nothing in a directory without writing", "in/m", within(0o555, 1001, 2001)},
		{"nothing in a directory without search", "in/m", within(0o666, 1001, 2001)},
	}
}

// tableCall is a system call on a path.
type tableCall struct {
	name string
	do   func(path string) string
}

// tableOpens are flags of open(2). All have O_NONBLOCK, or a fifo would wait.
var tableOpens = []struct {
	name  string
	flags int
}{
	{"O_RDONLY", unix.O_RDONLY},
	{"O_WRONLY", unix.O_WRONLY},
	{"O_RDWR", unix.O_RDWR},
	{"O_WRONLY|O_APPEND", unix.O_WRONLY | unix.O_APPEND},
	{"O_WRONLY|O_TRUNC", unix.O_WRONLY | unix.O_TRUNC},
	{"O_RDONLY|O_TRUNC", unix.O_RDONLY | unix.O_TRUNC},
	{"O_WRONLY|O_CREAT", unix.O_WRONLY | unix.O_CREAT},
	{"O_RDONLY|O_CREAT", unix.O_RDONLY | unix.O_CREAT},
	{"O_RDWR|O_CREAT|O_EXCL", unix.O_RDWR | unix.O_CREAT | unix.O_EXCL},
	{"O_RDWR|O_CREAT|O_TRUNC", unix.O_RDWR | unix.O_CREAT | unix.O_TRUNC},
	{"O_RDONLY|O_CREAT|O_DIRECTORY", unix.O_RDONLY | unix.O_CREAT | unix.O_DIRECTORY},
	{"O_RDWR|O_CREAT|O_NOFOLLOW", unix.O_RDWR | unix.O_CREAT | unix.O_NOFOLLOW},
	{"O_RDONLY|O_DIRECTORY", unix.O_RDONLY | unix.O_DIRECTORY},
	{"O_RDWR|O_DIRECTORY", unix.O_RDWR | unix.O_DIRECTORY},
	{"O_RDONLY|O_NOFOLLOW", unix.O_RDONLY | unix.O_NOFOLLOW},
	{"O_PATH", unix.O_PATH},
	{"O_PATH|O_NOFOLLOW", unix.O_PATH | unix.O_NOFOLLOW},
	{"O_PATH|O_DIRECTORY", unix.O_PATH | unix.O_DIRECTORY},
	{"O_RDONLY|O_NOATIME", unix.O_RDONLY | unix.O_NOATIME},
	{"O_RDWR|O_SYNC", unix.O_RDWR | unix.O_SYNC},
	{"O_RDONLY|O_DIRECT", unix.O_RDONLY | unix.O_DIRECT},
	{"O_RDWR|O_TMPFILE", unix.O_RDWR | unix.O_TMPFILE},
}

// opening opens a path, reads and writes, and says what it got.
func opening(path string, flags int, mode uint32) string {
	fd, err := unix.Open(path, flags|unix.O_NONBLOCK, mode)
	if err != nil {
		return errnoName(err)
	}
	var st unix.Stat_t
	did := "ok " + errnoName(unix.Fstat(fd, &st)) + fmt.Sprintf(" %o", st.Mode)
	if kind := st.Mode & unix.S_IFMT; kind == unix.S_IFREG || kind == unix.S_IFDIR {
		buf := make([]byte, 10)
		if flags&unix.O_DIRECT != 0 {
			buf = aligned(4096)
		}
		n, err := unix.Read(fd, buf)
		did += fmt.Sprintf(" read %q %s", buf[:max(n, 0)], errnoName(err))
		_, err = unix.Write(fd, []byte("written"))
		did += " write " + errnoName(err)
		off, err := unix.Seek(fd, 0, unix.SEEK_CUR)
		if kind == unix.S_IFREG {
			did += fmt.Sprintf(" at %d %s", off, errnoName(err))
		}
		if kind == unix.S_IFREG {
			did += " ftruncate " + errnoName(unix.Ftruncate(fd, 5))
		}
	}
	return did + " close " + errnoName(unix.Close(fd))
}

// under sets the umask for a call.
func under(mask int, do func() error) string {
	before := unix.Umask(mask)
	err := do()
	unix.Umask(before)
	return errnoName(err)
}

func plain(do func(path string) error) func(string) string {
	return func(path string) string { return errnoName(do(path)) }
}

func tableCalls() []tableCall {
	at := unix.AT_FDCWD
	calls := []tableCall{
		{"stat", func(path string) string {
			var st unix.Stat_t
			return errnoName(unix.Stat(path, &st)) + describeStat(&st)
		}},
		{"lstat", func(path string) string {
			var st unix.Stat_t
			return errnoName(unix.Lstat(path, &st)) + describeStat(&st)
		}},
		{"statx", func(path string) string {
			var st unix.Statx_t
			err := unix.Statx(at, path, unix.AT_SYMLINK_NOFOLLOW, unix.STATX_BASIC_STATS, &st)
			return fmt.Sprintf("%s %o %d:%d %t %t", errnoName(err), st.Mode, st.Uid, st.Gid, st.Mtime.Sec > 0, st.Ctime.Sec > 0)
		}},
		{"statfs", plain(func(path string) error { var st unix.Statfs_t; return unix.Statfs(path, &st) })},
		{"readlink", func(path string) string {
			buf := make([]byte, 5000)
			n, err := unix.Readlink(path, buf)
			return fmt.Sprintf("%s %d", errnoName(err), n)
		}},
		{"readlink into 1 byte", func(path string) string {
			buf := make([]byte, 1)
			n, err := unix.Readlink(path, buf)
			return fmt.Sprintf("%s %q", errnoName(err), buf[:max(n, 0)])
		}},
		{"chdir", func(path string) string {
			back, err := unix.Open(".", unix.O_PATH, 0)
			if err != nil {
				return "open . " + errnoName(err)
			}
			err = unix.Chdir(path)
			return errnoName(err) + errnoName(unix.Fchdir(back)) + errnoName(unix.Close(back))
		}},
		{"list", func(path string) string {
			fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY, 0)
			if err != nil {
				return errnoName(err)
			}
			entries, err := listRaw(fd, 4096)
			return fmt.Sprintf("%s %d %s", errnoName(err), len(entries), errnoName(unix.Close(fd)))
		}},
		{"unlink", plain(unix.Unlink)},
		{"rmdir", plain(unix.Rmdir)},
		{"unlinkat AT_REMOVEDIR", plain(func(path string) error { return unix.Unlinkat(at, path, unix.AT_REMOVEDIR) })},
		{"mkdir", plain(func(path string) error { return unix.Mkdir(path, 0o755) })},
		{"mkdir of all bits", plain(func(path string) error { return unix.Mkdir(path, 0o7777) })},
		{"mkdir under a umask", func(path string) string { return under(0o027, func() error { return unix.Mkdir(path, 0o777) }) }},
		{"create under a umask", func(path string) string { return under(0o077, func() error { return create(path, unix.O_EXCL) }) }},
		{"create set-group-ID", func(path string) string { return opening(path, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL, 0o2775) }},
		{"create for nobody", func(path string) string { return opening(path, unix.O_RDWR|unix.O_CREAT, 0) }},
		{"mkfifo", plain(func(path string) error { return unix.Mkfifo(path, 0o644) })},
		{"mkfifo under a umask", func(path string) string { return under(0o077, func() error { return unix.Mkfifo(path, 0o666) }) }},
		{"mknod of a file", plain(func(path string) error { return unix.Mknod(path, unix.S_IFREG|0o640, 0) })},
		{"mknod of a socket", plain(func(path string) error { return unix.Mknod(path, unix.S_IFSOCK|0o6770, 0) })},
		{"mknod of a device", plain(func(path string) error { return unix.Mknod(path, unix.S_IFCHR|0o640, int(unix.Mkdev(1, 3))) })},
		{"mknod of a directory", plain(func(path string) error { return unix.Mknod(path, unix.S_IFDIR|0o640, 0) })},
		{"truncate to 0", plain(func(path string) error { return unix.Truncate(path, 0) })},
		{"truncate to 100", plain(func(path string) error { return unix.Truncate(path, 100) })},
		{"truncate to less than nothing", plain(func(path string) error { return unix.Truncate(path, -1) })},
		{"chmod 0", plain(func(path string) error { return unix.Chmod(path, 0) })},
		{"chmod 7777", plain(func(path string) error { return unix.Chmod(path, 0o7777) })},
		{"fchmodat2 of a link", plain(func(path string) error { return unix.Fchmodat(at, path, 0o600, unix.AT_SYMLINK_NOFOLLOW) })},
		{"chown to its owner", plain(func(path string) error { return unix.Chown(path, 1001, 2001) })},
		{"chown to another", plain(func(path string) error { return unix.Chown(path, 1005, -1) })},
		{"chgrp to another", plain(func(path string) error { return unix.Chown(path, -1, 2002) })},
		{"lchown", plain(func(path string) error { return unix.Lchown(path, -1, 2002) })},
		{"lchown of nothing", plain(func(path string) error { return unix.Lchown(path, -1, -1) })},
		{"utimens to now", plain(func(path string) error { return unix.UtimesNanoAt(at, path, nil, 0) })},
		{"utimens", plain(func(path string) error {
			return unix.UtimesNanoAt(at, path, []unix.Timespec{{Sec: 1000}, {Sec: 2000}}, 0)
		})},
		{"utimens of a link", plain(func(path string) error {
			return unix.UtimesNanoAt(at, path, []unix.Timespec{{Sec: 1000}, {Sec: 2000}}, unix.AT_SYMLINK_NOFOLLOW)
		})},
		{"utimens of nothing", plain(func(path string) error {
			return unix.UtimesNanoAt(at, path, []unix.Timespec{{Nsec: unix.UTIME_OMIT}, {Nsec: unix.UTIME_OMIT}}, 0)
		})},
		{"utimens of what is no time", plain(func(path string) error {
			return unix.UtimesNanoAt(at, path, []unix.Timespec{{Sec: 1000, Nsec: 2e9}, {Sec: 2000}}, 0)
		})},
		{"setxattr", plain(func(path string) error { return unix.Setxattr(path, "user.x", []byte("x"), 0) })},
		{"setxattr of root", plain(func(path string) error { return unix.Setxattr(path, "security.x", []byte("x"), 0) })},
		{"getxattr", plain(func(path string) error { return second(unix.Getxattr(path, "user.x", make([]byte, 10))) })},
		{"listxattr", func(path string) string {
			n, err := unix.Listxattr(path, make([]byte, 1000))
			return fmt.Sprint(errnoName(err), n)
		}},
		{"removexattr", plain(func(path string) error { return unix.Removexattr(path, "user.x") })},
		{"symlink", plain(func(path string) error { return unix.Symlink("target", path) })},
		{"symlink to nothing", plain(func(path string) error { return unix.Symlink("", path) })},
		{"symlink of 4095 bytes", plain(func(path string) error { return unix.Symlink(strings.Repeat("t", 4095), path) })},
		{"symlink of 4096 bytes", plain(func(path string) error { return unix.Symlink(strings.Repeat("t", 4096), path) })},
		{"link to new", plain(func(path string) error { return unix.Link(path, "new") })},
		{"link from old", func(path string) string {
			if err := ownedByCaller("old"); err != nil {
				return "make old " + errnoName(err)
			}
			return errnoName(unix.Link("old", path))
		}},
		{"linkat of what a link leads to", plain(func(path string) error { return unix.Linkat(at, path, at, "new", unix.AT_SYMLINK_FOLLOW) })},
		{"rename to new", plain(func(path string) error { return unix.Rename(path, "new") })},
		{"rename onto itself", plain(func(path string) error { return unix.Rename(path, path) })},
		{"rename into itself", plain(func(path string) error { return unix.Rename(path, path+"/below") })},
		{"rename to a name of 256 bytes", plain(func(path string) error { return unix.Rename(path, strings.Repeat("n", 256)) })},
		{"rename to nowhere", plain(func(path string) error { return unix.Rename(path, "nowhere/x") })},
	}
	for _, o := range tableOpens {
		calls = append(calls, tableCall{"open " + o.name, func(path string) string { return opening(path, o.flags, 0o640) }})
	}
	for name, mode := range map[string]uint32{"exists": 0, "reads": unix.R_OK, "writes": unix.W_OK, "runs": unix.X_OK, "all": unix.R_OK | unix.W_OK | unix.X_OK, "what is not": 64} {
		calls = append(calls,
			tableCall{"access " + name, plain(func(path string) error { return unix.Access(path, mode) })},
			tableCall{"faccessat2 of a link " + name, plain(func(path string) error {
				return unix.Faccessat2(at, path, mode, unix.AT_EACCESS|unix.AT_SYMLINK_NOFOLLOW)
			})})
	}
	return append(calls, renameCalls()...)
}

// renameCalls move each kind of name to a path.
func renameCalls() []tableCall {
	var calls []tableCall
	for _, source := range []struct {
		name string
		make func() error
	}{
		{"a file", func() error { return ownedByCaller("old") }},
		{"an empty directory", func() error { return unix.Mkdir("old", 0o755) }},
		{"a full directory", func() error { return errors.Join(unix.Mkdir("old", 0o755), ownedByCaller("old/y")) }},
		{"a link", func() error { return unix.Symlink("target", "old") }},
		{"a fifo", func() error { return unix.Mkfifo("old", 0o644) }},
		{"a socket", func() error { return unix.Mknod("old", unix.S_IFSOCK|0o644, 0) }},
		{"nothing", func() error { return nil }},
	} {
		for flags, name := range map[uint]string{0: "", unix.RENAME_NOREPLACE: " RENAME_NOREPLACE", unix.RENAME_EXCHANGE: " RENAME_EXCHANGE", unix.RENAME_EXCHANGE | unix.RENAME_NOREPLACE: " RENAME_EXCHANGE|NOREPLACE"} {
			calls = append(calls, tableCall{"rename" + name + " of " + source.name, func(path string) string {
				if err := source.make(); err != nil {
					return "make old " + errnoName(err)
				}
				return errnoName(unix.Renameat2(unix.AT_FDCWD, "old", unix.AT_FDCWD, path, flags))
			}})
		}
	}
	return calls
}

// ownedByCaller makes a file that belongs to whoever calls.
func ownedByCaller(name string) error { return os.WriteFile(name, []byte("moved here"), 0o644) }

// describeStat says what is the same on all file systems.
func describeStat(st *unix.Stat_t) string {
	if st.Mode == 0 {
		return ""
	}
	links := st.Nlink
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		return fmt.Sprintf(" %o %d:%d %t", st.Mode, st.Uid, st.Gid, st.Mtim.Sec > 0 && st.Ctim.Sec > 0 && st.Atim.Sec > 0)
	}
	return fmt.Sprintf(" %o %d:%d %d x%d %t", st.Mode, st.Uid, st.Gid, st.Size, links, st.Mtim.Sec > 0 && st.Ctim.Sec > 0 && st.Atim.Sec > 0)
}

func posixRows() []tableRow {
	var rows []tableRow
	targets := tableTargets()
	for _, call := range tableCalls() {
		for _, target := range targets {
			for _, caller := range []string{"root", "owner", "member of the group", "stranger"} {
				rows = append(rows, tableRow{
					name:   fmt.Sprintf("%s, %s, by %s", call.name, target.name, caller),
					caller: caller,
					setUp:  target.setUp,
					act:    func() string { return call.do(target.path) },
				})
			}
		}
	}
	return rows
}
