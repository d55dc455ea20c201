package mounting

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pailfs/pailfs/cmd/internal/command"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/programtest"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/wire"
	"github.com/pailfs/pailfs/prefetch/control"
	"github.com/pailfs/pailfs/prefetch/residency"
	"github.com/pailfs/pailfs/prefetch/sessionstore"
)

// loaderMount is a mount with files of a dataset and a client on some directory of
// it.
type loaderMount struct {
	*programtest.Store
	at, cache string
}

func mountForLoader(t *testing.T, files int, args ...string) *loaderMount {
	t.Helper()
	s := programtest.StartStore(t)
	for i := range files {
		s.Put(t, fmt.Sprintf("train/%03d.jpg", i), bytes.Repeat([]byte{byte(i)}, 100_000))
	}
	m := &loaderMount{Store: s, at: programtest.NewMountPoint(t), cache: filepath.Join(t.TempDir(), "cache")}
	m.mount(t, args...)
	return m
}

func (m *loaderMount) mount(t *testing.T, args ...string) {
	t.Helper()
	programtest.MustRun(t, append([]string{
		"mount", "--detach", "oss://" + programtest.TestBucket, m.at, "--endpoint", m.Endpoint,
		"--cache-dir", m.cache, "--cache-size", "64MiB", "--memory", "64MiB", "--prefetch", "hints",
	}, args...)...)
}

func dial(t *testing.T, dir string) *control.Client {
	t.Helper()
	c, err := control.Dial(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func call(t *testing.T, c *control.Client, method string, params, result any) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), programtest.Patience)
	defer cancel()
	if err := c.Call(ctx, method, params, result); err != nil {
		t.Fatal(err)
	}
}

// sampleFiles announces the files on a directory, waits until they are ready and
// reads them.
func (m *loaderMount) sampleFiles(t *testing.T, c *control.Client, dir string, names []string) {
	t.Helper()
	var open control.OpenResult
	call(t, c, "loader.open", control.OpenParams{Task: "task", Buffer: 100, Instance: "one"}, &open)
	paths := control.PathsParams{Session: open.Session, Paths: names, Timeout: programtest.Patience.Milliseconds()}
	var preloaded control.PreloadResult
	call(t, c, "loader.preload", paths, &preloaded)
	if preloaded.Accepted != len(names) {
		t.Fatalf("preload: %+v", preloaded)
	}
	var waited control.WaitResult
	call(t, c, "loader.wait", paths, &waited)
	for _, f := range waited.Files {
		if f.State != "ready" || f.Bytes != 100_000 {
			t.Errorf("%+v", f)
		}
	}
	before := gets(m.Store)
	for _, name := range names {
		content, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || len(content) != 100_000 {
			t.Errorf("read %s: %d bytes, %v", name, len(content), err)
		}
	}
	// What follows in the directory may be guessed and fetched meanwhile.
	if n := gets(m.Store) - before; n >= int64(len(names)) {
		t.Errorf("%d requests for what was ready", n)
	}
	var released control.ReleaseResult
	call(t, c, "loader.release", paths, &released)
	if released.Released != len(names) || released.Unknown != 0 {
		t.Errorf("release: %+v", released)
	}
}

func TestWhatASamplerAnnouncesIsThereWhenItIsRead(t *testing.T) {
	m := mountForLoader(t, 30)
	m.sampleFiles(t, dial(t, m.at), m.at, []string{"train/003.jpg", "train/017.jpg", "train/005.jpg"})
	var status wire.Status
	call(t, dial(t, m.at), wire.MethodStatus, nil, &status)
	if l := status.Loader; len(l.Sessions) != 1 || l.Totals.Released != 3 || l.Charged != 0 {
		t.Errorf("status: %+v", l)
	}
	text := programtest.MustRun(t, "status", m.at).Stdout
	for _, want := range []string{"task worker 0", "released 3 (293 KiB)", "stream 0: 0 announced and not in use, quota 100 of 100"} {
		if !strings.Contains(text, want) {
			t.Errorf("status does not show %q:\n%s", want, text)
		}
	}
}

func TestLoaderWorksThroughAReadOnlyBindOfASubdirectory(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Log("run as root to bind mounts; the mount itself is tested instead")
	}
	m := mountForLoader(t, 8, "--immutable", "--read-only", "--no-open", "on")
	dir := filepath.Join(m.at, "train")
	if os.Geteuid() == 0 {
		bind := filepath.Join(t.TempDir(), "view")
		if err := os.Mkdir(bind, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := unix.Mount(dir, bind, "", unix.MS_BIND, ""); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := unix.Unmount(bind, unix.MNT_DETACH); err != nil {
				t.Error(err)
			}
		})
		if err := unix.Mount("", bind, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
			t.Fatal(err)
		}
		dir = bind
	}
	c := dial(t, dir)
	m.sampleFiles(t, c, dir, []string{"001.jpg", "002.jpg"})
	var open control.OpenResult
	call(t, c, "loader.open", control.OpenParams{Task: "task", Buffer: 10}, &open)
	for _, path := range []string{"../train/003.jpg", "/etc/passwd", "a//b", ".."} {
		err := c.Call(t.Context(), "loader.preload", control.PathsParams{Session: open.Session, Paths: []string{path}}, nil)
		if err == nil || !strings.Contains(err.Error(), "must be a name") {
			t.Errorf("%q: %v", path, err)
		}
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

func TestSessionOutlivesTheDaemon(t *testing.T) {
	m := mountForLoader(t, 8)
	c := dial(t, m.at)
	params := control.OpenParams{Persistence: ".persistence/task_1/", Worker: 3, Buffer: 10, Instance: "one"}
	var open control.OpenResult
	call(t, c, "loader.open", params, &open)
	if open.Persistence.Kind != "mount" || open.Persistence.Path != ".persistence/task_1/worker-3.session" {
		t.Errorf("persistence: %+v", open.Persistence)
	}
	paths := control.PathsParams{Session: open.Session, Paths: []string{"train/001.jpg", "train/002.jpg"}, Timeout: programtest.Patience.Milliseconds()}
	call(t, c, "loader.preload", paths, nil)
	call(t, c, "loader.wait", paths, nil)
	programtest.Eventually(t, "the session is saved", func() bool {
		files, err := filepath.Glob(filepath.Join(m.cache, sessionstore.Dir, "*.session"))
		if err != nil || len(files) != 1 {
			return false
		}
		content, err := os.ReadFile(files[0])
		return err == nil && strings.Contains(string(content), "002.jpg")
	})
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	programtest.KillDaemons(t, m.at)
	m.mount(t)
	before := gets(m.Store)
	c = dial(t, m.at)
	if err := c.Call(t.Context(), "loader.status", paths, nil); err == nil || !strings.Contains(err.Error(), "no such session") {
		t.Errorf("the old session: %v", err)
	}
	call(t, c, "loader.open", params, &open)
	if open.Adopted != 2 {
		t.Errorf("%d files were adopted, want 2", open.Adopted)
	}
	paths.Session = open.Session
	var waited control.WaitResult
	call(t, c, "loader.wait", paths, &waited)
	for _, f := range waited.Files {
		if f.State != "ready" {
			t.Errorf("%+v", f)
		}
	}
	t.Logf("%d requests to bring back what was held", gets(m.Store)-before)
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	programtest.MustRun(t, "umount", m.at) // it saves the sessions while its directory is removed
}

func TestAnotherNodeResumesWarm(t *testing.T) {
	m := mountForLoader(t, 8)
	c := dial(t, m.at)
	params := control.OpenParams{Persistence: ".persistence/task_1", Worker: 3, Buffer: 10, Instance: "one"}
	var open control.OpenResult
	call(t, c, "loader.open", params, &open)
	names := []string{"train/001.jpg", "train/002.jpg", "train/003.jpg"}
	paths := control.PathsParams{Session: open.Session, Paths: names, Timeout: programtest.Patience.Milliseconds()}
	call(t, c, "loader.preload", paths, nil)
	call(t, c, "loader.wait", paths, nil)
	call(t, c, "loader.release", control.PathsParams{Session: open.Session, Paths: names[:1]}, nil)
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	programtest.MustRun(t, "umount", m.at)

	other := &loaderMount{Store: m.Store, at: programtest.NewMountPoint(t), cache: filepath.Join(t.TempDir(), "cache")}
	other.mount(t)
	if _, err := os.Stat(filepath.Join(other.at, ".persistence/task_1/worker-3.session")); err != nil {
		t.Error(err)
	}
	c = dial(t, other.at)
	params.Instance = "two"
	call(t, c, "loader.open", params, &open)
	if open.Adopted != 2 || open.Persistence.Kind != "mount" {
		t.Errorf("%+v", open)
	}
	paths = control.PathsParams{Session: open.Session, Paths: names[1:], Timeout: programtest.Patience.Milliseconds()}
	var waited control.WaitResult
	call(t, c, "loader.wait", paths, &waited)
	before := gets(m.Store)
	for _, f := range waited.Files {
		content, err := os.ReadFile(filepath.Join(other.at, f.Path))
		if f.State != "ready" || err != nil || len(content) != 100_000 {
			t.Errorf("%+v: %d bytes, %v", f, len(content), err)
		}
	}
	if n := gets(m.Store) - before; n != 0 {
		t.Errorf("%d requests for what another node had announced", n)
	}
	call(t, c, "loader.close", control.CloseParams{Session: open.Session}, nil)
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	programtest.MustRun(t, "umount", other.at)
	third := &loaderMount{Store: m.Store, at: programtest.NewMountPoint(t), cache: filepath.Join(t.TempDir(), "cache")}
	third.mount(t)
	if _, err := os.Stat(filepath.Join(third.at, ".persistence")); !os.IsNotExist(err) {
		t.Errorf("of a session that was closed there is left: %v", err)
	}
	programtest.MustRun(t, "umount", third.at)
}

func TestStateIsKeptOnTheMountOnlyInADirectoryThatIsNamed(t *testing.T) {
	m := mountForLoader(t, 1, "--uid", "4711")
	var open control.OpenResult
	c := dial(t, m.at)
	call(t, c, "loader.open", control.OpenParams{Persistence: ".pailfs/manifests", Buffer: 1}, &open)
	if open.Persistence.Kind != "node" || open.Persistence.Reason == "" {
		t.Errorf("%+v", open.Persistence)
	}
	call(t, c, "loader.open", control.OpenParams{Task: "state", Buffer: 1}, &open)
	if open.Persistence.Kind != "node" {
		t.Errorf("%+v", open.Persistence)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	programtest.MustRun(t, "umount", m.at) // it saves the sessions while its directory is removed
}

func TestWarmAndEvict(t *testing.T) {
	m := mountForLoader(t, 20)
	if o := programtest.Run(t, programtest.Environ(), "warm", "--check", filepath.Join(m.at, "train")); o.Code != command.Failed || !strings.Contains(o.Stdout, "train: 0 B of") || !strings.Contains(o.Stdout, "0 of 20 files") {
		t.Errorf("exit code %d of warm --check before anything was read\n%s%s", o.Code, o.Stdout, o.Stderr)
	}
	o := programtest.MustRun(t, "warm", filepath.Join(m.at, "train"))
	if !strings.Contains(o.Stdout, "20 files") || !strings.Contains(o.Stdout, "0 failed") {
		t.Errorf("warm says\n%s", o.Stdout)
	}
	before := gets(m.Store)
	for i := range 20 {
		if _, err := os.ReadFile(filepath.Join(m.at, fmt.Sprintf("train/%03d.jpg", i))); err != nil {
			t.Error(err)
		}
	}
	o = programtest.MustRun(t, "warm", "--json", "--each", filepath.Join(m.at, "train"))
	if n := gets(m.Store) - before; n != 0 {
		t.Errorf("%d requests for what was warmed", n)
	}
	lines := strings.Split(strings.TrimSpace(o.Stdout), "\n")
	if len(lines) != 22 {
		t.Errorf("warm --each --json printed %d lines, want 20 files, the folder and the total", len(lines))
	}
	for _, line := range lines {
		if !json.Valid([]byte(line)) {
			t.Errorf("not JSON: %s", line)
		}
	}

	list := filepath.Join(t.TempDir(), "list")
	if err := os.WriteFile(list, []byte("003.jpg\n\nmissing.jpg\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	o = programtest.Run(t, programtest.Environ(), "warm", filepath.Join(m.at, "train"), "--from-file", list)
	if o.Code != command.Failed || !strings.Contains(o.Stdout, "train/003.jpg: ready") || !strings.Contains(o.Stdout, "train/missing.jpg: failed") {
		t.Errorf("exit code %d\n%s%s", o.Code, o.Stdout, o.Stderr)
	}

	// The kernel tells of a close when it comes to it; until then the file is in use.
	programtest.Eventually(t, "the file can be evicted", func() bool {
		o = programtest.Run(t, programtest.Environ(), "evict", filepath.Join(m.at, "train/003.jpg"))
		return o.Code == 0
	})
	if !strings.Contains(o.Stdout, "1 files") {
		t.Errorf("evict says %s", o.Stdout)
	}
	o = programtest.Run(t, programtest.Environ(), "warm", "--check", "--json", filepath.Join(m.at, "train"))
	var measured residency.Measured
	if err := json.Unmarshal([]byte(o.Stdout), &measured); err != nil || o.Code != command.Failed || measured.Files != 20 || measured.FilesWarm != 19 {
		t.Errorf("exit code %d of warm --check, %v\n%s%s", o.Code, err, o.Stdout, o.Stderr)
	}
	before = gets(m.Store)
	programtest.MustRun(t, "warm", filepath.Join(m.at, "train/003.jpg"))
	if n := gets(m.Store) - before; n != 1 {
		t.Errorf("%d requests for what was evicted, want 1", n)
	}
}

func TestPolicyWarmsAndKeepsAway(t *testing.T) {
	m := mountForLoader(t, 10, "--policy-warm", "train/001.jpg", "--policy-never", "train,*.tmp", "--policy-read", "train/002.jpg")
	var status wire.Status
	programtest.Eventually(t, "one file is warm", func() bool {
		call(t, dial(t, m.at), wire.MethodStatus, nil, &status)
		return status.Cache.SSD.Objects == 1
	})
	for _, name := range []string{"002.jpg", "003.jpg"} {
		if _, err := os.ReadFile(filepath.Join(m.at, "train", name)); err != nil {
			t.Error(err)
		}
	}
	programtest.Eventually(t, "the exception is kept", func() bool {
		call(t, dial(t, m.at), wire.MethodStatus, nil, &status)
		return status.Cache.SSD.Objects == 2
	})
}

// gets returns how many objects, or parts of them, were asked for.
func gets(s *programtest.Store) int64 { return s.Stats().Operations["GetObject"].Requests }
