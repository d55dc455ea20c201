package systemtest

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// Extended attributes are told with the rest of an object's metadata: neither they nor those
// that programs ask for, and that no file has, cost a request, on a read-only mount either. They
// outlive a kill of the daemon.
func TestExtendedAttributesCostNoRequest(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.mount("--attrs=oss")
	path := filepath.Join(w.at, "file")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.WriteFile(path, []byte("content"), 0o644))
	must(unix.Setxattr(path, "user.comment", []byte("of ours"), 0))
	must(os.WriteFile(filepath.Join(w.at, "plain"), []byte("content"), 0o644))
	d.kill()
	_ = unix.Unmount(w.at, unix.MNT_DETACH) // what the killed daemon has left
	d = w.mount("--attrs=oss")
	buf := make([]byte, 100)
	if n, err := unix.Getxattr(path, "user.comment", buf); err != nil || string(buf[:n]) != "of ours" {
		t.Errorf("after a kill: %q, %v", buf[:max(n, 0)], err)
	}
	d.stop()
	w.cache = filepath.Join(t.TempDir(), "fresh")
	d = w.mount("--attrs=oss", "--read-only")
	plain := filepath.Join(w.at, "plain")
	for _, name := range []string{path, plain} {
		if _, err := os.Stat(name); err != nil {
			t.Fatal(err)
		}
	}
	before := w.Requests("HeadObject") + w.Requests("GetObject") + w.Requests("ListObjectsV2")
	if n, err := unix.Getxattr(path, "user.comment", buf); err != nil || string(buf[:n]) != "of ours" {
		t.Errorf("on a read-only mount: %q, %v", buf[:max(n, 0)], err)
	}
	for name, want := range map[string]int{path: len("user.comment\x00"), plain: 0} {
		if n, err := unix.Listxattr(name, buf); err != nil || n != want {
			t.Errorf("%s lists %q, %v", name, buf[:max(n, 0)], err)
		}
		for _, asked := range []string{"security.capability", "security.selinux", "system.posix_acl_access", "trusted.x"} {
			if _, err := unix.Getxattr(name, asked, buf); !errors.Is(err, unix.EOPNOTSUPP) {
				t.Errorf("%s: %v", asked, err)
			}
		}
		if _, err := unix.Getxattr(name, "user.none", buf); !errors.Is(err, unix.ENODATA) {
			t.Errorf("one that is not there: %v", err)
		}
		if err := unix.Setxattr(name, "user.x", nil, 0); !errors.Is(err, unix.EROFS) {
			t.Errorf("a change: %v", err)
		}
	}
	if after := w.Requests("HeadObject") + w.Requests("GetObject") + w.Requests("ListObjectsV2"); after != before {
		t.Errorf("%d requests for attributes that were told", after-before)
	}
	d.stop()
}
