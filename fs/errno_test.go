package fs

import (
	"context"
	"errors"
	"fmt"
	iofs "io/fs"
	"os"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pailfs/pailfs/cache"
	"github.com/pailfs/pailfs/fs/internal/errnos"
	"github.com/pailfs/pailfs/oss"
)

// TestEveryErrorHasItsErrno makes the tree and the store fail with each error and
// looks at what a program gets.
func TestEveryErrorHasItsErrno(t *testing.T) {
	unknown := errors.New("something nobody thought of")
	cases := []struct {
		err           error
		name, version syscall.Errno
	}{
		{context.Canceled, unix.EINTR, unix.EINTR},
		{context.DeadlineExceeded, unix.ETIMEDOUT, unix.ETIMEDOUT},
		{oss.ErrChanged, unix.ESTALE, unix.ESTALE},
		{oss.ErrNotFound, unix.ENOENT, unix.ESTALE},
		{iofs.ErrNotExist, unix.ENOENT, unix.ESTALE},
		{iofs.ErrPermission, unix.EACCES, unix.EACCES},
		{oss.ErrAccessDenied, unix.EACCES, unix.EACCES},
		{oss.ErrCorrupted, unix.EIO, unix.EIO},
		{oss.ErrBadAnswer, unix.EIO, unix.EIO},
		{oss.ErrUnavailable, unix.ETIMEDOUT, unix.ETIMEDOUT},
		{oss.ErrNoBucket, unix.EIO, unix.EIO},
		{oss.ErrInvalid, unix.EIO, unix.EIO},
		{unknown, unix.EIO, unix.EIO},
		// An errno from below, of the cache's disk say, is not the file's.
		{unix.ENOENT, unix.EIO, unix.EIO},
		{unix.EACCES, unix.EIO, unix.EIO},
	}
	tested := map[error]bool{}
	for _, c := range cases {
		tested[c.err] = true
	}
	for _, row := range errnos.Table {
		if !tested[row.Err] {
			t.Errorf("the row of %v is not tested", row.Err)
		}
	}
	for _, c := range cases {
		t.Run(c.err.Error(), func(t *testing.T) {
			w := newWorld()
			w.ttl, w.negativeTTL = 0, 0
			w.put("dir/file", 1<<20)
			w.symlink("dir/link", "file")
			s := mounted(t, w, Config{Passthrough: Off}, cache.Config{})
			// Package os tries again after EINTR, for ever; so no package os.
			fd, err := unix.Open(s.path("dir/file"), unix.O_RDONLY, 0)
			must(t, err)
			defer closeFD(t, fd)
			dir := openDir(t, s.path("dir"))
			defer closeFD(t, dir)

			wrapped := fmt.Errorf("ask the store: %w", fmt.Errorf("request 7: %w", c.err))
			w.reading(func(context.Context, oss.RangeRequest) error { return wrapped })
			buf := make([]byte, 4096)
			if _, err := unix.Pread(fd, buf, 1000); !errors.Is(err, c.version) {
				t.Errorf("read: %v, want %v", err, c.version)
			}
			w.failing(func(_ context.Context, op, path string) error {
				if path == "dir/other" || op == "readlink" || op == "readdir" {
					return wrapped
				}
				return nil
			})
			var st unix.Stat_t
			if err := unix.Stat(s.path("dir/other"), &st); !errors.Is(err, c.name) {
				t.Errorf("stat: %v, want %v", err, c.name)
			}
			if _, err := unix.Readlink(s.path("dir/link"), buf); !errors.Is(err, c.version) {
				t.Errorf("readlink: %v, want %v", err, c.version)
			}
			if _, err := unix.Getdents(dir, buf); !errors.Is(err, c.name) {
				t.Errorf("readdir: %v, want %v", err, c.name)
			}
			// And when the store is well again, so is the file, unless it is gone.
			w.reading(nil)
			w.failing(nil)
			same(t, readAll(t, s.path("dir/file")), all(mustLookup(t, w, "dir", "file")))
		})
	}
}

func mustLookup(t testing.TB, w *world, dir, name string) oss.Object {
	t.Helper()
	e, _, err := w.Lookup(context.Background(), dir, name)
	must(t, err)
	return e.Object
}

func TestFailuresAreLoggedWithPathAndBounded(t *testing.T) {
	w := newWorld()
	w.put("dir/file", 1<<20)
	logged := &lines{}
	s := mountedWithLog(t, w, Config{Passthrough: Off}, cache.Config{}, logged.logger())
	w.reading(func(context.Context, oss.RangeRequest) error { return oss.ErrUnavailable })
	for range 300 {
		if _, err := os.ReadFile(s.path("dir/file")); err == nil {
			t.Fatal("reading worked")
		}
	}
	n := logged.count("request failed", "path=/dir/file", "err=")
	if n == 0 || n > 100 {
		t.Errorf("300 failures were logged %d times with their path, want some and not all", n)
	}
	if st := s.mount.Status(); st.Errors < 300 {
		t.Errorf("status counts %d errors", st.Errors)
	}
	w.reading(nil)
	before := logged.count("request failed")
	_, err := os.Stat(s.path("dir/none"))
	if !os.IsNotExist(err) || logged.count("request failed") != before {
		t.Error("a name that does not exist is logged as a failure")
	}
}
