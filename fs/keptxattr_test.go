package fs

import (
	"bytes"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pailfs/pailfs/fs/writeback"
	"github.com/pailfs/pailfs/oss"
)

// xattrsOf returns the extended attributes of a file.
func xattrsOf(t *testing.T, path string) map[string]string {
	t.Helper()
	list := make([]byte, 64<<10)
	n, err := unix.Llistxattr(path, list)
	must(t, err)
	all := make(map[string]string)
	for name := range strings.SplitSeq(strings.TrimSuffix(string(list[:n]), "\x00"), "\x00") {
		if name == "" {
			continue
		}
		value := make([]byte, 64<<10)
		n, err := unix.Lgetxattr(path, name, value)
		must(t, err)
		all[name] = string(value[:n])
	}
	return all
}

// metaOf returns the user metadata of an object.
func (w *written) metaOf(t *testing.T, key string) map[string]string {
	t.Helper()
	client := writtenClient(t, w.Emulator, testLog(t))
	defer func() { must(t, client.Close()) }()
	info, err := client.As(oss.Demand).Head(t.Context(), key)
	must(t, err)
	return info.Meta
}

// Extended attributes of a file behave as on a local file system, and stay when it is
// renamed, truncated and written.
func TestExtendedAttributesAreKept(t *testing.T) {
	w := mountWritten(t, startStore(t), writtenOptions{config: Config{Attrs: true}})
	path := w.path("file")
	must(t, os.WriteFile(path, []byte("content"), 0o644))
	binary := "\x00\xff\"+/% \n"
	must(t, unix.Setxattr(path, "user.one", []byte("1"), 0))
	must(t, unix.Setxattr(path, "user.binary \"name\" ä+%2B", []byte(binary), unix.XATTR_CREATE))
	must(t, unix.Setxattr(path, "user.empty", nil, 0))
	must(t, unix.Setxattr(path, "user.one", []byte("one"), unix.XATTR_REPLACE))
	want := map[string]string{"user.one": "one", "user.binary \"name\" ä+%2B": binary, "user.empty": ""}
	same := func(path, when string) {
		t.Helper()
		got := xattrsOf(t, path)
		if len(got) != len(want) {
			t.Errorf("%s: %q, want %q", when, got, want)
		}
		for name, value := range want {
			if v, ok := got[name]; !ok || v != value {
				t.Errorf("%s: %s is %q, want %q", when, name, v, value)
			}
		}
	}
	same(path, "just set")
	w.drain(t)
	same(path, "published")
	must(t, os.Rename(path, w.path("moved")))
	path = w.path("moved")
	same(path, "renamed")
	must(t, os.Truncate(path, 3))
	same(path, "truncated")
	w.drain(t)
	must(t, os.WriteFile(path, []byte("other content"), 0o644))
	must(t, unix.Removexattr(path, "user.empty"))
	delete(want, "user.empty")
	same(path, "written anew")
	w.drain(t)
	w.holds(t, "moved", []byte("other content"))
	text := w.metaOf(t, "moved")["xattr"]
	if names := writeback.XAttrNames(text); len(names) != 2 || !slices.Contains(names, "user.one") {
		t.Errorf("the object has %q: %q", text, names)
	}
	must(t, unix.Removexattr(path, "user.one"))
	must(t, unix.Removexattr(path, "user.binary \"name\" ä+%2B"))
	w.drain(t)
	if meta := w.metaOf(t, "moved"); meta["xattr"] != "" || meta["mode"] == "" {
		t.Errorf("without any the object has %q", meta)
	}
}

func TestErrnosOfExtendedAttributes(t *testing.T) {
	w := mountWritten(t, startStore(t), writtenOptions{config: Config{Attrs: true}})
	file, dir, link := w.path("file"), w.path("dir"), w.path("link")
	must(t, os.WriteFile(file, []byte("content"), 0o644))
	must(t, os.Mkdir(dir, 0o755))
	must(t, os.Symlink("file", link))
	must(t, unix.Setxattr(file, "user.there", []byte("value"), 0))
	set := func(path, name string, size, flags int) error {
		return unix.Lsetxattr(path, name, bytes.Repeat([]byte{'x'}, size), flags)
	}
	for what, c := range map[string]struct {
		got  error
		want unix.Errno
	}{
		"one that is there":         {set(file, "user.there", 1, unix.XATTR_CREATE), unix.EEXIST},
		"one that is not there":     {set(file, "user.none", 1, unix.XATTR_REPLACE), unix.ENODATA},
		"removing none":             {unix.Removexattr(file, "user.none"), unix.ENODATA},
		"more than metadata holds":  {set(file, "user.large", 7000, 0), unix.ENOSPC},
		"more than one may have":    {set(file, "user.large", 64<<10+1, 0), unix.E2BIG},
		"ours":                      {set(file, "user.pailfs.etag", 1, 0), unix.EPERM},
		"another namespace":         {set(file, "trusted.x", 1, 0), unix.EOPNOTSUPP},
		"security":                  {set(file, "security.x", 1, 0), unix.EOPNOTSUPP},
		"a symbolic link":           {set(link, "user.x", 1, 0), unix.EPERM},
		"a directory":               {set(dir, "user.x", 1, 0), unix.EOPNOTSUPP},
		"a name that JSON has not":  {set(file, "user.\xff", 1, 0), unix.EILSEQ},
		"asking for none":           {getxattr(file, "user.none", 10), unix.ENODATA},
		"too small a buffer":        {getxattr(file, "user.there", 2), unix.ERANGE},
		"too small a buffer (list)": {listxattr(file, 3), unix.ERANGE},
	} {
		if !errors.Is(c.got, c.want) {
			t.Errorf("%s: %v, want %v", what, c.got, c.want)
		}
	}
	if got := xattrsOf(t, file); len(got) != 1 || got["user.there"] != "value" {
		t.Errorf("the file has %q", got)
	}
	must(t, set(file, "user.large", 5000, 0))
	w.drain(t)
	if got := xattrsOf(t, file); len(got["user.large"]) != 5000 {
		t.Errorf("the file has %q", got)
	}
}

func getxattr(path, name string, size int) error {
	_, err := unix.Getxattr(path, name, make([]byte, size))
	return err
}

func listxattr(path string, size int) error {
	_, err := unix.Listxattr(path, make([]byte, size))
	return err
}

// Without --attrs nothing keeps them.
func TestExtendedAttributesNeedAttributes(t *testing.T) {
	w := mountWritten(t, startStore(t), writtenOptions{})
	must(t, os.WriteFile(w.path("file"), []byte("content"), 0o644))
	if err := unix.Setxattr(w.path("file"), "user.x", []byte("1"), 0); !errors.Is(err, unix.EOPNOTSUPP) {
		t.Errorf("%v, want EOPNOTSUPP", err)
	}
	if err := unix.Removexattr(w.path("file"), "user.x"); !errors.Is(err, unix.EOPNOTSUPP) {
		t.Errorf("%v, want EOPNOTSUPP", err)
	}
}
