package programtest

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/pailfs/pailfs/cmd/pailfs/internal/wire"
	"github.com/pailfs/pailfs/fs/writeback"
)

// Content is what the test's object holds.
var Content = bytes.Repeat([]byte("the bytes of one version. "), 10_000)

// Scene is a store with one object, and a mount point for it.
type Scene struct {
	*Store
	T     *testing.T
	At    string
	Cache string
}

// NewScene returns a store that holds the object "dir/file".
func NewScene(t *testing.T) *Scene {
	t.Helper()
	s := &Scene{Store: StartStore(t), T: t, At: NewMountPoint(t), Cache: filepath.Join(t.TempDir(), "cache")}
	s.Put(t, "dir/file", Content)
	return s
}

// MountArgs are the arguments of a mount of the scene.
func (s *Scene) MountArgs(more ...string) []string {
	return append([]string{"mount", "oss://" + TestBucket, s.At, "--endpoint=" + s.Endpoint, "--cache-dir=" + s.Cache, "--memory=64MiB"}, more...)
}

// Reads reads the object through the mount and compares it.
func (s *Scene) Reads() {
	s.T.Helper()
	got, err := os.ReadFile(filepath.Join(s.At, "dir", "file"))
	if err != nil {
		s.T.Fatal(err)
	}
	if !bytes.Equal(got, Content) {
		s.T.Fatalf("read %d bytes that are not the object's %d", len(got), len(Content))
	}
}

// Clean checks that nothing of the mount is left and its cache can be used again.
func (s *Scene) Clean() {
	s.T.Helper()
	if IsMounted(s.T, s.At) {
		s.T.Error("still mounted")
	}
	Eventually(s.T, "no daemon is left", func() bool { return len(DaemonsOf(s.T, s.At)) == 0 })
}

// Hold makes a process whose working directory is the path, and returns its pid
// and the function that ends it.
func Hold(t *testing.T, path string) (pid int, release func()) {
	t.Helper()
	cmd := exec.Command("sh", "-c", "echo; read x")
	cmd.Dir = path
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
	release = func() {
		_ = in.Close()
		_ = cmd.Wait()
	}
	t.Cleanup(release)
	return cmd.Process.Pid, release
}

// OpenUp lets every user walk to the path.
func OpenUp(t *testing.T, path string) {
	t.Helper()
	for dir := filepath.Dir(path); dir != "/" && dir != os.TempDir(); dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
}

// StatusOf returns what the daemon says of itself.
func StatusOf(t *testing.T, at string) wire.Status {
	t.Helper()
	var r wire.Status
	if err := json.Unmarshal([]byte(MustRun(t, "status", "--json", at).Stdout), &r); err != nil {
		t.Fatal(err)
	}
	return r
}

// Get fetches a page, naming the host as given.
func Get(t *testing.T, address, path, host string) (int, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	request.Host = host
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(body)
}

// WritingStatus is what status says of what is written.
func WritingStatus(t *testing.T, at string) writeback.Status {
	t.Helper()
	var r struct {
		Writing writeback.Status `json:"writing"`
	}
	if err := json.Unmarshal([]byte(MustRun(t, "status", "--json", at).Stdout), &r); err != nil {
		t.Fatal(err)
	}
	return r.Writing
}
