package fs

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// localDir is a directory on the disk of the tests with which a mount is compared.
func localDir(t *testing.T) string {
	t.Helper()
	dir := tempDir(t)
	t.Logf("compared with %s", comparedWith(t, dir))
	return dir
}

// comparedWith says which file system a directory is on, with which a mount is to be compared. On
// one that is not the kernel's own the comparison would hold nothing: the test fails.
func comparedWith(t *testing.T, dir string) string {
	t.Helper()
	kind, err := fileSystemOf(dir)
	if err != nil {
		t.Fatalf("file system of %s: %v", dir, err)
	}
	name, err := localFileSystem(kind)
	if err != nil {
		t.Fatalf("%s: %v: set TMPDIR to a directory on ext4", dir, err)
	}
	return name
}

// fileSystemOf is the type of the mount that a directory is on. By statfs ext2 and ext3 would be
// ext4 as well.
func fileSystemOf(dir string) (string, error) {
	var st unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, dir, 0, unix.STATX_MNT_ID, &st); err != nil {
		return "", err
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(mounts)) {
		if mount, kind, found := strings.Cut(line, " - "); found && strings.HasPrefix(mount, fmt.Sprint(st.Mnt_id, " ")) {
			kind, _, _ = strings.Cut(kind, " ")
			return kind, nil
		}
	}
	// The mount that the root directory of these processes lies in may not be told to them.
	var disk unix.Statfs_t
	if err := unix.Statfs(dir, &disk); err != nil {
		return "", err
	}
	if disk.Type == unix.EXT4_SUPER_MAGIC {
		return "ext4", nil
	}
	return "", fmt.Errorf("no mount has the number %d, and the file system's is %#x", st.Mnt_id, disk.Type)
}

// localFileSystem says what a type of file systems is good for, beside a mount: ext4 where the
// tests are to hold.
func localFileSystem(kind string) (string, error) {
	switch base, _, _ := strings.Cut(kind, "."); base {
	case "ext4":
		return kind, nil
	case "overlay":
		return "overlay, which does as the file system below it", nil
	case "fuse", "fuseblk", "virtiofs", "nfs", "nfs4", "cifs", "smb3", "9p", "ceph", "afs", "lustre", "":
		return "", fmt.Errorf("a mount cannot be compared with file system %q: it is not the kernel's own", kind)
	default:
		return kind + ", which is not ext4: where it differs from ext4, so do the wants", nil
	}
}

func TestWhatAMountIsComparedWith(t *testing.T) {
	for kind, want := range map[string]string{"ext4": "ext4", "overlay": "overlay, ", "xfs": "xfs, which is not ext4", "ext3": "ext3, which is not ext4"} {
		if got, err := localFileSystem(kind); err != nil || !strings.HasPrefix(got, want) {
			t.Errorf("%s: %q, %v", kind, got, err)
		}
	}
	for _, kind := range []string{"fuse", "fuse.pailfs", "fuseblk", "nfs4", "9p", ""} {
		if got, err := localFileSystem(kind); err == nil {
			t.Errorf("%q was taken for %q", kind, got)
		}
	}
	w := mountWritten(t, startStore(t), writtenOptions{})
	if kind, err := fileSystemOf(w.dir); err != nil || !strings.HasPrefix(kind, "fuse") {
		t.Errorf("the mount is %q, %v", kind, err)
	}
	if got, want := comparedWith(t, tempDir(t)), "ext4"; got != want {
		fmt.Fprintf(os.Stderr, "NOT COMPARED WITH ext4: %s is on %s\n", os.TempDir(), got)
	}
}
