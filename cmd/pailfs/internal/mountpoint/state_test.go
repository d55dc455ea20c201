package mountpoint

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// mounted mounts a small memory file system for the test: this package does not
// care what is mounted.
func mounted(t *testing.T) Mount {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("test", dir, "tmpfs", 0, "size=1m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	m, ok, err := At(dir)
	if err != nil || !ok {
		t.Fatalf("own mount is not in the table: %v", err)
	}
	return m
}

func TestResolveFollowsLinksToAMount(t *testing.T) {
	m := mounted(t)
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(m.Path, link); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{m.Path, m.Path + "/", link, filepath.Join(m.Path, "..", filepath.Base(m.Path))} {
		if got, err := Resolve(path); err != nil || got != m.Path {
			t.Errorf("%s resolves to %s, %v", path, got, err)
		}
	}
	if _, err := Resolve(filepath.Join(m.Path, "missing")); !Missing(err) {
		t.Errorf("missing path: %v", err)
	}
}

func TestProbeOfALivingMount(t *testing.T) {
	m := mounted(t)
	if s, err := Probe(m.Path, time.Minute); s != Alive || err != nil {
		t.Errorf("state %d, error %v", s, err)
	}
	if _, err := Probe(filepath.Join(m.Path, "missing"), time.Minute); !Missing(err) {
		t.Errorf("missing path: %v", err)
	}
}

func TestEmpty(t *testing.T) {
	dir := t.TempDir()
	if empty, err := Empty(dir); !empty || err != nil {
		t.Errorf("new directory: %t, %v", empty, err)
	}
	if err := os.WriteFile(filepath.Join(dir, ".hidden"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if empty, err := Empty(dir); empty || err != nil {
		t.Errorf("directory with a hidden file: %t, %v", empty, err)
	}
	if _, err := Empty(filepath.Join(dir, ".hidden")); err == nil {
		t.Error("a file was taken for a directory")
	}
}

func TestHoldersAreFoundByWhatTheyHold(t *testing.T) {
	m := mounted(t)
	if h := Holders(m); len(h) != 0 {
		t.Fatalf("new mount is held by %v", h)
	}
	file := filepath.Join(m.Path, "file")
	if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	hold := func(dir, script string) *exec.Cmd {
		cmd := exec.Command("sh", "-c", script)
		cmd.Dir = dir
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if _, err := out.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = in.Close()
			_ = cmd.Wait()
		})
		return cmd
	}
	byDir := hold(m.Path, "echo; read x")
	byFile := hold("/", "exec 5<"+file+"; echo; read x")

	got := map[int]string{}
	for _, h := range Holders(m) {
		got[h.PID] = h.How
	}
	if !strings.HasPrefix(got[byDir.Process.Pid], "working directory") {
		t.Errorf("holder by working directory is shown as %q", got[byDir.Process.Pid])
	}
	if !strings.HasPrefix(got[byFile.Process.Pid], "open file "+file) {
		t.Errorf("holder by open file is shown as %q", got[byFile.Process.Pid])
	}
	if len(got) != 2 {
		t.Errorf("holders are %v", got)
	}
}

func TestMappingHoldsAMountWithoutADescriptor(t *testing.T) {
	m := mounted(t)
	f, err := os.Create(filepath.Join(m.Path, "mapped"))
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Truncate(4096); err != nil {
		t.Fatal(err)
	}
	data, err := unix.Mmap(int(f.Fd()), 0, 4096, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Munmap(data) })
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if how := holds("/proc/self", m, make(boundSockets)); !strings.HasPrefix(how, "mapped file ") {
		t.Errorf("this process holds the mount by %q", how)
	}
}

func TestUnmountOfABusyMountSaysSoAndLazyTakesTheName(t *testing.T) {
	m := mounted(t)
	f, err := os.Create(filepath.Join(m.Path, "open"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if err := Unmount(m.Path, false); err == nil || !strings.Contains(err.Error(), ErrBusy.Error()) {
		t.Errorf("busy mount: %v", err)
	}
	if err := Unmount(m.Path, true); err != nil {
		t.Errorf("lazy: %v", err)
	}
	mounts, err := List()
	if err != nil {
		t.Fatal(err)
	}
	if slices.ContainsFunc(mounts, func(x Mount) bool { return x.Path == m.Path }) {
		t.Error("the name is still mounted")
	}
	if _, err := f.WriteString("still open"); err != nil {
		t.Errorf("its user lost the file: %v", err)
	}
}
