package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pailfs/pailfs/fs/mounttest"
	"github.com/pailfs/pailfs/oss/ossemu"
)

// patience bounds every wait; nothing is asserted on time.
const patience = 90 * time.Second

// The keys of the emulated bucket.
const (
	keyID  = "LTAItestkeyid000000"
	secret = "a-secret-of-the-test"
)

// bin holds pailfs-gpu, pailfs and the fake NVML, built by TestMain.
var bin string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "pailfs-gpu")
	if err != nil {
		panic(err)
	}
	bin = dir
	for name, value := range map[string]string{"OSS_ACCESS_KEY_ID": keyID, "OSS_ACCESS_KEY_SECRET": secret} {
		if err := os.Setenv(name, value); err != nil {
			panic(err)
		}
	}
	for _, build := range [][]string{
		{"go", "build", "-o", bin + "/", ".", "../pailfs"},
		{"gcc", "-Wall", "-Werror", "-shared", "-fPIC", "-O1", "-o", bin + "/libfakenvml.so", "../../deploy/gpu/testdata/fakenvml.c"},
	} {
		if out, err := exec.Command(build[0], build[1:]...).CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n%s", strings.Join(build, " "), err, out)
			os.Exit(1)
		}
	}
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// host is a host with GPUs that a test describes, see deploy/gpu/testdata.
type host struct {
	t   *testing.T
	dir string
}

// newHost returns a host with n well GPUs, each with extra lines.
func newHost(t *testing.T, n int, extra ...string) *host {
	t.Helper()
	h := &host{t: t, dir: t.TempDir()}
	h.say(n, extra...)
	return h
}

// say changes what the driver answers.
func (h *host) say(n int, extra ...string) {
	h.t.Helper()
	state := "driver 550.54\n"
	if n == 0 {
		state = "driver none\n"
	}
	for i := range n {
		state += fmt.Sprintf("gpu GPU-%d\nset pci %d\nset mem_total 80000000000\n", i, i+1)
		if i < len(extra) {
			state += extra[i] + "\n"
		}
	}
	if err := os.WriteFile(h.dir+"/new", []byte(state), 0o600); err != nil {
		h.t.Fatal(err)
	}
	if err := os.Rename(h.dir+"/new", h.dir+"/state"); err != nil {
		h.t.Fatal(err)
	}
}

func (h *host) environ() []string {
	return append(os.Environ(), "FAKENVML_STATE="+h.dir+"/state", "PAILFS_NVML_LIBRARY="+bin+"/libfakenvml.so", "PAILFS_GPU_STATE_DIR="+h.dir+"/run")
}

// process is pailfs or pailfs-gpu while it runs.
type process struct {
	*exec.Cmd
	t           *testing.T
	out, errOut mounttest.Output
	ended       chan struct{}
}

// start runs a program of bin on the host, for patience at most.
func (h *host) start(name string, args ...string) *process {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	return h.launch(ctx, cancel, name, args...)
}

// launch runs a program of bin until ctx or the test ends.
func (h *host) launch(ctx context.Context, cancel context.CancelFunc, name string, args ...string) *process {
	h.t.Helper()
	p := &process{Cmd: exec.CommandContext(ctx, filepath.Join(bin, name), args...), t: h.t, ended: make(chan struct{})}
	p.Env, p.Stdout, p.Stderr = h.environ(), &p.out, &p.errOut
	// A command that cannot be ended outlives the run, with its output open.
	p.WaitDelay = 10 * time.Second
	if err := p.Start(); err != nil {
		h.t.Fatal(err)
	}
	go func() {
		_ = p.Wait()
		close(p.ended)
	}()
	h.t.Cleanup(func() {
		cancel()
		<-p.ended
	})
	return p
}

// code waits for the end and returns the exit code.
func (p *process) code() int {
	<-p.ended
	return p.ProcessState.ExitCode()
}

// kill kills a process and waits until all of it has ended. Others see its mount end before that,
// while it holds its cache directory still.
func (p *process) kill() {
	p.t.Helper()
	if err := p.Process.Kill(); err != nil {
		p.t.Fatal(err)
	}
	<-p.ended
}

// run runs pailfs-gpu run with the host's own locks.
func (h *host) run(args ...string) *process {
	return h.start("pailfs-gpu", append([]string{"run", "--lock-dir", h.dir + "/locks"}, args...)...)
}

// eventually waits for what another process does.
func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !done(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

func exists(path string) func() bool {
	return func() bool { _, err := os.Stat(path); return err == nil }
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// bucket serves an emulated bucket and returns the arguments that mount it.
func bucket(t *testing.T) []string {
	t.Helper()
	_, args := store(t)
	return args
}

// store is bucket with the server.
func store(t *testing.T) (server *ossemu.Server, args []string) {
	t.Helper()
	server, err := ossemu.Open(ossemu.Config{
		Dir: t.TempDir(), Buckets: []string{"test-bucket"},
		Credentials: []ossemu.Credential{{AccessKeyID: keyID, AccessKeySecret: secret}},
	})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- server.Serve(l) }()
	t.Cleanup(func() {
		if err := errors.Join(server.Close(), <-done); err != nil {
			t.Error(err)
		}
	})
	return server, []string{"oss://test-bucket", "--endpoint", "http://" + l.Addr().String(), "--cache-dir", t.TempDir(), "--cache-size", "256MiB"}
}

// mounted mounts a bucket and returns the mount point.
func (h *host) mounted(args []string) (at string, daemon *process) {
	h.t.Helper()
	at = filepath.Join(h.dir, "mnt")
	if err := os.MkdirAll(at, 0o755); err != nil {
		h.t.Fatal(err)
	}
	return at, h.mount(at, args)
}

func (h *host) mount(at string, args []string) *process {
	h.t.Helper()
	ctx, cancel := context.WithCancel(context.Background()) // a daemon may live as long as the test
	daemon := h.launch(ctx, cancel, "pailfs", append([]string{"mount", args[0], at}, args[1:]...)...)
	h.t.Cleanup(func() {
		_ = daemon.Process.Kill()
		<-daemon.ended
		_ = syscall.Unmount(at, syscall.MNT_DETACH) // it may not be mounted
	})
	eventually(h.t, "the mount", func() bool {
		select {
		case <-daemon.ended:
			h.t.Fatalf("the daemon ended: %s", &daemon.errOut)
		default:
		}
		status := exec.Command(filepath.Join(bin, "pailfs"), "status", at)
		return status.Run() == nil
	})
	return daemon
}
