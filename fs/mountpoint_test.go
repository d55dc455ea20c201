package fs

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pailfs/pailfs/cache"
)

func TestMountingWhereItCannotBeSaysWhy(t *testing.T) {
	w := newWorld()
	s := mounted(t, w, Config{}, cache.Config{})
	base := tempDir(t)
	must(t, os.WriteFile(base+"/file", nil, 0o644))
	must(t, os.Mkdir(base+"/full", 0o755))
	must(t, os.WriteFile(base+"/full/x", nil, 0o644))
	must(t, os.Mkdir(base+"/ok", 0o755))
	for _, c := range []struct {
		name string
		cfg  Config
		want []string
	}{
		{"no mount point", Config{}, []string{"no mount point"}},
		{"relative path", Config{Mountpoint: "mnt"}, []string{"mnt", "absolute"}},
		{"missing", Config{Mountpoint: base + "/none"}, []string{base + "/none", "does not exist", "create"}},
		{"below a file", Config{Mountpoint: base + "/file/x"}, []string{base + "/file/x"}},
		{"a file", Config{Mountpoint: base + "/file"}, []string{base + "/file", "not a directory"}},
		{"not empty", Config{Mountpoint: base + "/full"}, []string{base + "/full", "not empty"}},
		{"mounted already", Config{Mountpoint: s.dir}, []string{s.dir, "busy", "unmount"}},
		{"no-open that is not immutable", Config{Mountpoint: base + "/ok", NoOpen: On}, []string{"no-open", "immutable"}},
		{"no-open with passthrough", Config{Mountpoint: base + "/ok", Immutable: true, NoOpen: On, Passthrough: On}, []string{"exclude"}},
		{"odd modes", Config{Mountpoint: base + "/ok", FileMode: 0o4755}, []string{"permission bits"}},
		{"negative", Config{Mountpoint: base + "/ok", ReadAheadKiB: -1}, []string{"negative"}},
	} {
		m, err := Mount(c.cfg, w, s.cache, nil, testLog(t))
		if err == nil {
			must(t, m.Unmount())
			t.Errorf("%s: was mounted", c.name)
			continue
		}
		if strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: more than one line: %v", c.name, err)
		}
		for _, part := range c.want {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s: %v does not say %q", c.name, err, part)
			}
		}
	}
	m, err := Mount(Config{Mountpoint: base + "/full", AllowNonEmpty: true}, w, s.cache, nil, testLog(t))
	must(t, err)
	must(t, m.Unmount())
}

func TestStaleMountIsRecognised(t *testing.T) {
	dir := tempDir(t)
	mnt := filepath.Join(dir, "mnt")
	must(t, os.Mkdir(mnt, 0o755))
	var r struct{}
	must(t, tryReader("abandon", mountArgs{Mountpoint: mnt, Dir: dir}, &r))
	defer func() { must(t, unix.Unmount(mnt, unix.MNT_DETACH)) }()
	s := mounted(t, newWorld(), Config{}, cache.Config{})
	_, err := Mount(Config{Mountpoint: mnt}, newWorld(), s.cache, nil, testLog(t))
	if err == nil || !strings.Contains(err.Error(), "umount -l "+mnt) {
		t.Errorf("%v, want the remedy", err)
	}
}

// TestMountingWithoutMeansSaysWhy takes away from a process of its own what
// mounting needs.
func TestMountingWithoutMeansSaysWhy(t *testing.T) {
	for _, c := range []struct {
		name string
		args mountArgs
		want []string
	}{
		{"no device", mountArgs{Without: "device"}, []string{"/dev/fuse", "modprobe"}},
		{"no capability", mountArgs{Without: "capability"}, []string{"CAP_SYS_ADMIN"}},
		{"no fusermount3", mountArgs{Without: "fusermount3", UID: 65534}, []string{"fuse3", "root"}},
		{"no right to the device", mountArgs{Without: "access", UID: 65534}, []string{"/dev/fuse", "permission", "root"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.args.Dir = tempDir(t)
			must(t, os.Chmod(c.args.Dir, 0o777))
			c.args.Mountpoint = filepath.Join(c.args.Dir, "mnt")
			must(t, os.Mkdir(c.args.Mountpoint, 0o777))
			var got string
			mode := uint32(0o666)
			if c.args.Without == "access" {
				mode = 0o600
			}
			c.args.Device = c.args.Dir + "/fuse"
			must(t, unix.Mknod(c.args.Device, unix.S_IFCHR|mode, int(unix.Mkdev(10, 229))))
			must(t, tryReader("mount", c.args, &got, ownMountNamespace))
			for _, part := range c.want {
				if !strings.Contains(got, part) {
					t.Errorf("%q does not say %q", got, part)
				}
			}
			if strings.Contains(got, "\n") {
				t.Errorf("more than one line: %q", got)
			}
		})
	}
}

func TestOrdinaryUsersMountThroughFusermount(t *testing.T) {
	dir := tempDir(t)
	must(t, os.Chmod(dir, 0o777))
	mnt := filepath.Join(dir, "mnt")
	must(t, os.Mkdir(mnt, 0o777))
	must(t, os.Chown(mnt, 65534, 65534))
	var got string
	// Distributions give everybody the device; this machine may not.
	must(t, unix.Mknod(dir+"/fuse", unix.S_IFCHR|0o666, int(unix.Mkdev(10, 229))))
	must(t, tryReader("mount", mountArgs{Mountpoint: mnt, Dir: dir, UID: 65534, Device: dir + "/fuse"}, &got, ownMountNamespace))
	if got != "read 1000 bytes; passthrough: the kernel refused: the daemon lacks CAP_SYS_ADMIN" {
		t.Errorf("%q", got)
	}
}

func ownMountNamespace(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS}
}

// mountArgs say how a process of its own mounts.
type mountArgs struct {
	Mountpoint, Dir string
	UID             int
	Without         string
	Device          string
}

// mountAs mounts, reads a file and unmounts, or returns why it could not.
func mountAs(a mountArgs) (string, error) {
	runtime.LockOSThread()
	if a.Device != "" {
		if err := unix.Mount(a.Device, "/dev/fuse", "", unix.MS_BIND, ""); err != nil {
			return "", err
		}
	}
	switch a.Without {
	case "device":
		if err := hide("/dev"); err != nil {
			return "", err
		}
	case "fusermount3":
		if err := os.Setenv("PATH", "/nowhere"); err != nil {
			return "", err
		}
		if err := hide("/usr/bin"); err != nil {
			return "", err
		}
	case "capability":
		if err := dropSysAdmin(); err != nil {
			return "", err
		}
	}
	if a.UID != 0 {
		if err := syscall.Setgid(a.UID); err != nil {
			return "", err
		}
		if err := syscall.Setuid(a.UID); err != nil {
			return "", err
		}
	}
	m, path, err := mountWorld(a)
	if err != nil {
		return err.Error(), nil
	}
	got, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	reason := m.Status().Passthrough.Reason
	if err := m.Unmount(); err != nil {
		return "", err
	}
	return fmt.Sprintf("read %d bytes; passthrough: %s", len(got), reason), nil
}

// mountWorld mounts a world with one file and returns its path.
func mountWorld(a mountArgs) (*Mounted, string, error) {
	w := newWorld()
	w.put("file", 1000)
	dir := filepath.Join(a.Dir, "cache")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, "", err
	}
	c, err := cache.Open(cache.Config{Dir: dir, Bucket: "test", MinFreeBytes: 1 << 20}, w, w, nil, quiet())
	if err != nil {
		return nil, "", err
	}
	m, err := Mount(Config{Mountpoint: a.Mountpoint}, w, c, nil, quiet())
	return m, filepath.Join(a.Mountpoint, "file"), err
}

// abandon leaves a mount behind that nobody serves.
func abandon(a mountArgs) (struct{}, error) {
	_, _, err := mountWorld(a)
	return struct{}{}, err
}

// hide covers a directory in this process's mount namespace.
func hide(dir string) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	return unix.Mount("none", dir, "tmpfs", 0, "")
}

// dropSysAdmin takes CAP_SYS_ADMIN from this thread.
func dropSysAdmin() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return err
	}
	for _, set := range []*uint32{&data[0].Effective, &data[0].Permitted, &data[0].Inheritable} {
		*set &^= 1 << unix.CAP_SYS_ADMIN
	}
	return unix.Capset(&header, &data[0])
}
