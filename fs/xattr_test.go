package fs

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pailfs/pailfs/cache"
)

func TestExtendedAttributes(t *testing.T) {
	w := newWorld()
	o := w.put("dir/file", 3<<20)
	w.symlink("dir/link", "file")
	s := mounted(t, w, Config{}, cache.Config{})
	get := func(path, name string) (string, error) {
		buf := make([]byte, 300)
		n, err := unix.Lgetxattr(s.path(path), name, buf)
		if err != nil {
			return "", err
		}
		return string(buf[:n]), nil
	}
	for _, c := range []struct {
		path, name, want string
		err              error
	}{
		{"dir/file", "user.pailfs.etag", o.ETag, nil},
		{"dir/file", "user.pailfs.key", "dir/file", nil},
		{"dir", "user.pailfs.key", "dir/", nil},
		{"dir", "user.pailfs.etag", "", unix.ENODATA},
		{"", "user.pailfs.key", "", unix.ENODATA},
		{"dir/file", "user.other", "", unix.ENODATA},
		{"dir/file", "user.pailfs.none", "", unix.ENODATA},
		{"dir/file", "security.selinux", "", unix.EOPNOTSUPP},
		{"dir/file", "security.capability", "", unix.EOPNOTSUPP},
		{"dir/file", "system.posix_acl_access", "", unix.EOPNOTSUPP},
		{"dir/file", "trusted.overlay.opaque", "", unix.EOPNOTSUPP},
	} {
		if got, err := get(c.path, c.name); got != c.want || !errors.Is(err, c.err) {
			t.Errorf("%s of %q: %q, %v; want %q, %v", c.name, c.path, got, err, c.want, c.err)
		}
	}
	for path, want := range map[string][]string{
		"dir/file": nil, // who copies it would copy them
		"dir":      nil,
		"":         nil,
	} {
		buf := make([]byte, 300)
		n, err := unix.Listxattr(s.path(path), buf)
		must(t, err)
		var got []string
		for name := range strings.SplitSeq(strings.TrimSuffix(string(buf[:n]), "\x00"), "\x00") {
			if name != "" {
				got = append(got, name)
			}
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%q lists %q, want %q", path, got, want)
		}
	}
}

func TestTierFollowsTheBytes(t *testing.T) {
	w := newWorld()
	o := w.put("file", 3<<20)
	s := mounted(t, w, Config{}, cache.Config{})
	tier := func() string {
		buf := make([]byte, 300)
		n, err := unix.Getxattr(s.path("file"), "user.pailfs.tier", buf)
		must(t, err)
		return string(buf[:n])
	}
	if got, want := tier(), fmt.Sprintf("memory=0 ssd=0 oss=%d whole=false", o.Size); got != want {
		t.Errorf("before reading: %q, want %q", got, want)
	}
	makeWhole(t, s, o)
	if got := tier(); !strings.Contains(got, fmt.Sprintf("ssd=%d oss=%d whole=true", o.Size, o.Size)) {
		t.Errorf("when it is whole on SSD: %q", got)
	}
}

func TestExtendedAttributeSizes(t *testing.T) {
	w := newWorld()
	o := w.put("file", 1)
	s := mounted(t, w, Config{}, cache.Config{})
	if n, err := unix.Getxattr(s.path("file"), "user.pailfs.etag", nil); n != len(o.ETag) || err != nil {
		t.Errorf("asking for the size: %d, %v", n, err)
	}
	if _, err := unix.Getxattr(s.path("file"), "user.pailfs.etag", make([]byte, 5)); !errors.Is(err, unix.ERANGE) {
		t.Errorf("into too small a buffer: %v, want ERANGE", err)
	}
}

func TestStatfs(t *testing.T) {
	w := newWorld()
	s := mounted(t, w, Config{StatfsBytes: 10 << 40}, cache.Config{})
	var st unix.Statfs_t
	must(t, unix.Statfs(s.dir, &st))
	if st.Bsize != 4096 || st.Frsize != 4096 || st.Blocks*4096 != 10<<40 || st.Bavail != st.Blocks || st.Namelen != 255 {
		t.Errorf("%+v", st)
	}
	if st.Files == 0 || st.Type != unix.FUSE_SUPER_MAGIC {
		t.Errorf("%+v", st)
	}
	if st.Flags&unix.ST_RDONLY == 0 {
		t.Error("the mount is not shown read-only")
	}
}
