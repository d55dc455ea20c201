package gpu

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// library is the fake NVML, built by TestMain.
var library string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "fakenvml")
	if err != nil {
		panic(err)
	}
	library = filepath.Join(dir, "libfakenvml.so")
	build := exec.Command("gcc", "-Wall", "-Werror", "-shared", "-fPIC", "-O1", "-o", library, "testdata/fakenvml.c")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build the fake NVML: %v\n%s", err, out)
		os.Exit(1)
	}
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// host is a host with GPUs that a test describes.
type host struct {
	t     *testing.T
	dir   string
	state string
	*Monitor
}

// newHost returns a host whose NVML answers what state says (testdata/fakenvml.c)
// and whose PCI bus has one card for each of addresses.
func newHost(t *testing.T, state string, addresses ...string) *host {
	t.Helper()
	h := &host{t: t, dir: t.TempDir()}
	h.state = filepath.Join(h.dir, "state")
	h.say(state)
	t.Setenv("FAKENVML_STATE", h.state)
	for _, a := range addresses {
		card := filepath.Join(h.dir, "sys/bus/pci/devices", a)
		h.file(card+"/vendor", "0x10de\n")
		h.file(card+"/class", "0x030200\n")
		h.file(card+"/numa_node", "0\n")
	}
	h.file(filepath.Join(h.dir, "sys/bus/pci/devices/0000:00:1f.0/vendor"), "0x8086\n")
	h.start()
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	return h
}

// start begins a new monitor on the same host, as another process would.
func (h *host) start() {
	h.Monitor = Open(Config{Library: library, StateDir: filepath.Join(h.dir, "run"), Sys: filepath.Join(h.dir, "sys")})
}

func (h *host) file(path, content string) {
	h.t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		h.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		h.t.Fatal(err)
	}
}

// say makes the driver answer something else from now on.
func (h *host) say(state string) {
	h.t.Helper()
	h.file(h.state+".new", state)
	if err := os.Rename(h.state+".new", h.state); err != nil {
		h.t.Fatal(err)
	}
}

// gpus describes n well GPUs, each with extra lines.
func gpus(n int, extra ...string) string {
	var b strings.Builder
	b.WriteString("driver 550.54\n")
	for i := range n {
		fmt.Fprintf(&b, "gpu GPU-%d\nset pci %d\nset mem_total 1000000000\nset mem_used 1000\nset temp 40\n", i, i+1)
		if i < len(extra) {
			b.WriteString(extra[i] + "\n")
		}
	}
	return b.String()
}

// verdict is what a test compares of a health.
func verdict(v Verdict) string {
	codes := make([]string, 0, len(v.Reasons))
	for _, r := range v.Reasons {
		codes = append(codes, r.Code)
	}
	return strings.TrimSpace(string(v.State) + " " + strings.Join(codes, " "))
}

// eventually waits for something that another goroutine does.
func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !done(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited a minute for %s", what)
		}
	}
}
