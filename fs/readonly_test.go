package fs

import (
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pailfs/pailfs/cache"
)

// TestEveryWriteIsRefused does so twice: as the kernel refuses it on a read-only
// mount, and as we do should somebody remount it for writing.
func TestEveryWriteIsRefused(t *testing.T) {
	w := newWorld()
	o := w.put("dir/file", 100)
	w.put("dir/other", 100)
	s := mounted(t, w, Config{}, cache.Config{})
	file, dir := s.path("dir/file"), s.path("dir")
	open := func(flags int) func() error {
		return func() error {
			fd, err := unix.Open(file, flags, 0o644)
			if err == nil {
				_ = unix.Close(fd) // reported as not refused
			}
			return err
		}
	}
	writes := map[string]func() error{
		"open for writing":   open(unix.O_WRONLY),
		"open for both":      open(unix.O_RDWR),
		"open and truncate":  open(unix.O_WRONLY | unix.O_TRUNC),
		"open for appending": open(unix.O_WRONLY | unix.O_APPEND),
		"create": func() error {
			f, err := os.OpenFile(dir+"/new", os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o644)
			if err == nil {
				_ = f.Close() // reported as not refused
			}
			return err
		},
		"nameless file": func() error {
			_, err := unix.Open(dir, unix.O_TMPFILE|unix.O_RDWR, 0o600)
			return err
		},
		"truncate":     func() error { return unix.Truncate(file, 1) },
		"chmod":        func() error { return unix.Chmod(file, 0o600) },
		"chown":        func() error { return unix.Chown(file, 5, 5) },
		"utimes":       func() error { return unix.Utimes(file, make([]unix.Timeval, 2)) },
		"unlink":       func() error { return unix.Unlink(file) },
		"mkdir":        func() error { return unix.Mkdir(dir+"/new", 0o755) },
		"rmdir":        func() error { return unix.Rmdir(dir) },
		"mknod":        func() error { return unix.Mknod(dir+"/new", unix.S_IFIFO|0o600, 0) },
		"rename":       func() error { return unix.Rename(file, dir+"/new") },
		"link":         func() error { return unix.Link(file, dir+"/new") },
		"symlink":      func() error { return unix.Symlink("file", dir+"/new") },
		"set xattr":    func() error { return unix.Setxattr(file, "user.x", []byte("y"), 0) },
		"remove xattr": func() error { return unix.Removexattr(file, "user.pailfs.etag") },
	}
	refused := func(who string) {
		for name, write := range writes {
			if err := write(); !errors.Is(err, unix.EROFS) {
				t.Errorf("%s, by %s: %v, want EROFS", name, who, err)
			}
		}
		same(t, readAll(t, file), all(o))
	}
	refused("the kernel")
	must(t, unix.Mount("", s.dir, "", unix.MS_REMOUNT|unix.MS_NOSUID|unix.MS_NODEV, ""))
	refused("us")
}
