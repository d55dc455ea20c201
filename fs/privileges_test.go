package fs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/pailfs/pailfs/fs/internal/callers"
	"github.com/pailfs/pailfs/fs/writeback"
)

// TestSetIDBitsAsOnALocalDisk changes files with all sorts of modes in all sorts of
// ways, as several users, and compares what is left of set-user-ID and set-group-ID with
// what is left on ext4.
func TestSetIDBitsAsOnALocalDisk(t *testing.T) {
	for _, mode := range []Choice{On, Off} {
		t.Run("passthrough "+mode.String(), func(t *testing.T) {
			w := mountWritten(t, startStore(t), writtenOptions{config: Config{Attrs: true, AllowOther: true, Passthrough: mode, PassthroughMin: 1}})
			compareTable(t, "privileges", w.dir, tableEvery(9), nil)
		})
	}
}

// TestSetIDBitsOfObjectsAsOnALocalDisk does so to files that are in the bucket.
func TestSetIDBitsOfObjectsAsOnALocalDisk(t *testing.T) {
	disk := tempDir(t)
	w := mountWritten(t, startStore(t), writtenOptions{config: Config{Attrs: true, AllowOther: true}})
	for _, row := range objectPrivilegeRows() {
		for _, root := range []string{w.dir, disk} {
			must(t, makeFile(filepath.Join(root, objectName(row.name)), 1001, 2001, objectMode(row.name)))
		}
	}
	w.drain(t)
	must(t, os.WriteFile(w.path("source"), []byte("content"), 0o644))
	must(t, os.WriteFile(filepath.Join(disk, "source"), []byte("content"), 0o644))
	compareTableWith(t, "privileges of objects", w.dir, disk, 1, nil)
}

// objectName is the file of a row, next to the directory of the table.
func objectName(row string) string { return "object " + row }

// objectMode is the mode that the file of a row has at first.
func objectMode(row string) (mode uint32) {
	_, _ = fmt.Sscanf(row[strings.Index(row, "mode ")+5:], "%o", &mode) // all rows have one
	return mode
}

func objectPrivilegeRows() []tableRow {
	var rows []tableRow
	for _, change := range privilegeChanges {
		switch change.name {
		case "write", "append", "open O_TRUNC", "truncate to nothing", "truncate to more", "fallocate", "copy_file_range",
			"chown to nobody else", "chown of nothing", "chgrp to another group", "chmod 2666":
		default:
			continue
		}
		for _, mode := range []uint32{0o6777, 0o2666} {
			for _, caller := range []string{"root", "owner outside of group", "stranger"} {
				name := fmt.Sprintf("%s, mode %04o, by %s", change.name, mode, caller)
				rows = append(rows, tableRow{
					name:   name,
					caller: caller,
					setUp: func() error {
						return errors.Join(os.Symlink("../source", "source"), os.Symlink("../"+objectName(name), "f"))
					},
					act: func() string {
						err := change.do(mode)
						var st unix.Stat_t
						return fmt.Sprintf("%s %s %o %d:%d %d", errnoName(err), errnoName(unix.Stat("f", &st)), st.Mode, st.Uid, st.Gid, st.Size)
					},
				})
			}
		}
	}
	return rows
}

// privilegeModes are the modes that files have before they are changed.
func privilegeModes() []uint32 {
	var modes []uint32
	for _, bits := range []uint32{0, 0o1000, 0o2000, 0o4000, 0o6000, 0o7000} {
		for _, permissions := range []uint32{0o666, 0o676, 0o766, 0o777} {
			modes = append(modes, bits|permissions)
		}
	}
	return modes
}

// privilegeChanges are what is done to the file f, whose mode is mode.
var privilegeChanges = []struct {
	name string
	do   func(mode uint32) error
}{
	{"read", func(uint32) error {
		return withFD("f", unix.O_RDONLY, func(fd int) error { return second(unix.Read(fd, make([]byte, 10))) })
	}},
	{"open to write", func(uint32) error { return withFD("f", unix.O_WRONLY, func(int) error { return nil }) }},
	{"write", func(uint32) error {
		return withFD("f", unix.O_WRONLY, func(fd int) error { return second(unix.Write(fd, []byte("new"))) })
	}},
	{"write nothing", func(uint32) error {
		return withFD("f", unix.O_WRONLY, func(fd int) error { return second(unix.Write(fd, nil)) })
	}},
	{"write beyond the end", func(uint32) error {
		return withFD("f", unix.O_RDWR, func(fd int) error { return second(unix.Pwrite(fd, []byte("new"), 100)) })
	}},
	{"append", func(uint32) error {
		return withFD("f", unix.O_WRONLY|unix.O_APPEND, func(fd int) error { return second(unix.Write(fd, []byte("new"))) })
	}},
	{"write directly", func(uint32) error {
		return withFD("f", unix.O_WRONLY|unix.O_DIRECT, func(fd int) error { return second(unix.Pwrite(fd, aligned(4096), 0)) })
	}},
	{"write synchronously", func(uint32) error {
		return withFD("f", unix.O_WRONLY|unix.O_DSYNC, func(fd int) error { return second(unix.Write(fd, []byte("new"))) })
	}},
	{"write after a chmod beside it", func(mode uint32) error {
		return withFD("f", unix.O_WRONLY, func(fd int) error {
			_ = unix.Chmod("f", 0o600|mode&callers.SetIDs) // refused to all but the owner
			return second(unix.Write(fd, []byte("new")))
		})
	}},
	{"open O_TRUNC", func(uint32) error { return withFD("f", unix.O_WRONLY|unix.O_TRUNC, func(int) error { return nil }) }},
	{"open O_CREAT O_TRUNC", func(uint32) error {
		return withFD("f", unix.O_WRONLY|unix.O_CREAT|unix.O_TRUNC, func(int) error { return nil })
	}},
	{"truncate to nothing", func(uint32) error { return unix.Truncate("f", 0) }},
	{"truncate to what it has", func(uint32) error { return unix.Truncate("f", 7) }},
	{"truncate to more", func(uint32) error { return unix.Truncate("f", 100) }},
	{"ftruncate", func(uint32) error {
		return withFD("f", unix.O_WRONLY, func(fd int) error { return unix.Ftruncate(fd, 3) })
	}},
	{"fallocate", func(uint32) error {
		return withFD("f", unix.O_WRONLY, func(fd int) error { return unix.Fallocate(fd, 0, 0, 100) })
	}},
	{"punch a hole", func(uint32) error {
		return withFD("f", unix.O_WRONLY, func(fd int) error {
			return unix.Fallocate(fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, 4)
		})
	}},
	{"copy_file_range", func(uint32) error {
		return withFD("f", unix.O_WRONLY, func(to int) error {
			return withFD("source", unix.O_RDONLY, func(from int) error { return second(unix.CopyFileRange(from, nil, to, nil, 5, 0)) })
		})
	}},
	{"sendfile", func(uint32) error {
		return withFD("f", unix.O_WRONLY, func(to int) error {
			return withFD("source", unix.O_RDONLY, func(from int) error { return second(unix.Sendfile(to, from, nil, 5)) })
		})
	}},
	{"store through a mapping", func(uint32) error {
		return withFD("f", unix.O_RDWR, func(fd int) error {
			m, err := unix.Mmap(fd, 0, 7, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
			if err != nil {
				return err
			}
			m[0] = 'C'
			return errors.Join(unix.Msync(m, unix.MS_SYNC), unix.Munmap(m))
		})
	}},
	{"chown to nobody else", func(uint32) error { return unix.Chown("f", 1001, -1) }},
	{"chown of nothing", func(uint32) error { return unix.Chown("f", -1, -1) }},
	{"chown to another", func(uint32) error { return unix.Chown("f", 1002, -1) }},
	{"chgrp to its group", func(uint32) error { return unix.Chown("f", -1, 2001) }},
	{"chgrp to another group", func(uint32) error { return unix.Chown("f", -1, 2002) }},
	{"chgrp to a group of others", func(uint32) error { return unix.Chown("f", -1, 2003) }},
	{"chown and chgrp", func(uint32) error { return unix.Chown("f", 1001, 2002) }},
	{"fchown", func(uint32) error {
		return withFD("f", unix.O_RDONLY, func(fd int) error { return unix.Fchown(fd, 1001, 2001) })
	}},
	{"lchown", func(uint32) error { return unix.Lchown("f", 1001, 2001) }},
	{"lchown of a link", func(uint32) error { return unix.Lchown("link", 1001, 2002) }},
	{"chmod to what it has", func(mode uint32) error { return unix.Chmod("f", mode) }},
	{"chmod 6777", func(uint32) error { return unix.Chmod("f", 0o6777) }},
	{"chmod 2666", func(uint32) error { return unix.Chmod("f", 0o2666) }},
	{"chmod 755", func(uint32) error { return unix.Chmod("f", 0o755) }},
	{"fchmod 2755", func(uint32) error {
		return withFD("f", unix.O_RDONLY, func(fd int) error { return unix.Fchmod(fd, 0o2755) })
	}},
	{"utimens", func(uint32) error {
		return unix.UtimesNanoAt(unix.AT_FDCWD, "f", []unix.Timespec{{Sec: 1000}, {Sec: 2000}}, 0)
	}},
	{"setxattr", func(uint32) error { return unix.Setxattr("f", "user.x", []byte("x"), 0) }},
	{"rename", func(uint32) error { return unix.Rename("f", "g") }},
}

func privilegeRows() []tableRow {
	var rows []tableRow
	for _, change := range privilegeChanges {
		for _, mode := range privilegeModes() {
			for caller := range tableCallers {
				rows = append(rows, tableRow{
					name:   fmt.Sprintf("%s, mode %04o, by %s", change.name, mode, caller),
					caller: caller,
					setUp: func() error {
						return errors.Join(makeFile("f", 1001, 2001, mode), makeFile("source", 0, 0, 0o644), os.Symlink("f", "link"))
					},
					act: func() string { return errnoName(change.do(mode)) },
				})
			}
		}
	}
	return rows
}

// makeFile makes a file that holds 7 bytes.
func makeFile(name string, uid, gid int, mode uint32) error {
	return errors.Join(os.WriteFile(name, []byte("content"), 0o600), unix.Lchown(name, uid, gid), unix.Chmod(name, mode))
}

// withFD opens a file, uses it and closes it.
func withFD(name string, flags int, use func(fd int) error) error {
	fd, err := unix.Open(name, flags, 0o644)
	if err != nil {
		return err
	}
	return errors.Join(use(fd), unix.Close(fd))
}

func second(_ int, err error) error { return err }

// TestWhoCannotBeSeenClearsBitsOnlyOfWhatIsWritten: without the capability to look at a caller,
// or for one in another PID namespace, chown(-1, -1) looks like a write.
func TestWhoCannotBeSeenClearsBitsOnlyOfWhatIsWritten(t *testing.T) {
	w := mountWritten(t, startStore(t), writtenOptions{config: Config{Attrs: true, AllowOther: true}})
	must(t, os.WriteFile(w.path("file"), []byte("content"), 0o644))
	must(t, unix.Chmod(w.path("file"), 0o6777))
	var st unix.Stat_t
	must(t, unix.Stat(w.path("file"), &st))
	f := w.mount.fs
	n := f.inodes.nodes.get(st.Ino)
	changes := func(uid uint32) (change writeback.SetAttr, err error) {
		var now fuse.Attr
		f.inodes.attr(n, &now)
		in := &fuse.SetAttrIn{}
		in.Caller = fuse.Caller{Owner: fuse.Owner{Uid: uid, Gid: uid}} // without a PID
		err = losesPrivileges(n, in, &change, &now)
		return change, err
	}
	if change, err := changes(1004); !errors.Is(err, unix.EPERM) || change.Mode != nil {
		t.Errorf("a stranger: %+v, %v", change, err)
	}
	if change, err := changes(st.Uid); err != nil || change.Mode == nil || *change.Mode != 0o777 {
		t.Errorf("the owner: %+v, %v", change, err)
	}
	held, err := os.OpenFile(w.path("file"), os.O_WRONLY, 0)
	must(t, err)
	defer func() { must(t, held.Close()) }()
	if change, err := changes(1004); err != nil || change.Mode == nil || *change.Mode != 0o777 {
		t.Errorf("a stranger while it is written: %+v, %v", change, err)
	}
}

// A file is removed and made again with the same bytes and another mode: its object is the same
// version but for its metadata, and that of the one before is not shown.
func TestAFileThatIsMadeAgainOfTheSameBytesHasItsOwnMode(t *testing.T) {
	w := mountWritten(t, startStore(t), writtenOptions{config: Config{Attrs: true, AllowOther: true}})
	for i, mode := range []uint32{0o666, 0o766, 0o600, 0o755} {
		must(t, makeFile(w.path("f"), 1001, 2001, mode))
		w.drain(t)
		eventually(t, "the name is the bucket's", func() bool {
			e, _, err := w.space.Lookup(t.Context(), "", "f")
			return err == nil && e.File == nil
		})
		var st unix.Stat_t
		must(t, unix.Stat(w.path("f"), &st))
		if st.Mode&0o7777 != mode {
			t.Errorf("the file number %d has mode %o, want %o", i, st.Mode&0o7777, mode)
		}
		e, _, err := w.space.Lookup(t.Context(), "", "f")
		if err != nil || e.Attr == nil || e.Attr.Mode&0o7777 != mode {
			t.Errorf("the bucket's file number %d has mode %+v, %v, want %o", i, e.Attr, err, mode)
		}
		must(t, os.Remove(w.path("f")))
		w.drain(t)
	}
}
