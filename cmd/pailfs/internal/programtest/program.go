package programtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pailfs/pailfs/cmd/pailfs/internal/mountpoint"
	"github.com/pailfs/pailfs/fs/mounttest"
	"github.com/pailfs/pailfs/oss"
	"github.com/pailfs/pailfs/oss/credentials"
	"github.com/pailfs/pailfs/oss/ossemu"
)

// The keys that the emulator knows.
const (
	TestKeyID  = "LTAItestkeyid000000"
	TestSecret = "this-secret-must-never-be-shown"
	TestBucket = "test-bucket"
	TestRegion = "cn-hangzhou"
)

// Patience bounds every wait of these tests. Nothing is asserted on time.
const Patience = 2 * time.Minute

// Store is an emulated object store.
type Store struct {
	*ossemu.Server
	Endpoint string
}

// StartStore serves an emulator for the test, with one bucket.
func StartStore(t *testing.T, change ...func(*ossemu.Config)) *Store {
	t.Helper()
	cfg := ossemu.Config{
		Dir:         t.TempDir(),
		Credentials: []ossemu.Credential{{AccessKeyID: TestKeyID, AccessKeySecret: TestSecret}},
		Buckets:     []string{TestBucket},
	}
	for _, c := range change {
		c(&cfg)
	}
	server, err := ossemu.Open(cfg)
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
		if err := server.Close(); err != nil {
			t.Errorf("close emulator: %v", err)
		}
		if err := <-done; err != nil {
			t.Errorf("emulator: %v", err)
		}
	})
	return &Store{Server: server, Endpoint: "http://" + l.Addr().String()}
}

// Put stores an object.
func (s *Store) Put(t *testing.T, key string, content []byte) {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	source, err := credentials.Open(credentials.Config{
		Kind: credentials.Static, AccessKeyID: TestKeyID, AccessKeySecret: TestSecret,
	}, log)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = source.Close() }()
	client, err := oss.Open(oss.Config{Endpoint: s.Endpoint, Bucket: TestBucket, Credentials: source}, nil, nil, log)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	if _, err := client.As(oss.Upload).Put(t.Context(), key, bytes.NewReader(content), oss.PutOptions{}); err != nil {
		t.Fatal(err)
	}
}

// Environ is a clean environment with the test's keys and more.
func Environ(more ...string) []string {
	return append([]string{
		"PATH=" + os.Getenv("PATH"),
		"HOME=/nonexistent",
		"OSS_ACCESS_KEY_ID=" + TestKeyID,
		"OSS_ACCESS_KEY_SECRET=" + TestSecret,
	}, more...)
}

// Outcome is how a run of the program ended.
type Outcome struct {
	Stdout, Stderr string
	Code           int
}

// Run runs the program to its end, in the environment env.
func Run(t *testing.T, env []string, args ...string) Outcome {
	t.Helper()
	return RunAs(t, nil, env, Binary, args...)
}

// RunAs runs any program to its end.
func RunAs(t *testing.T, attr *syscall.SysProcAttr, env []string, name string, args ...string) Outcome {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env, cmd.SysProcAttr = env, attr
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("run %s %s: %v", name, strings.Join(args, " "), err)
	}
	if ctx.Err() != nil {
		t.Fatalf("%s %s did not end: %s%s", name, strings.Join(args, " "), &stdout, &stderr)
	}
	if strings.Contains(stdout.String()+stderr.String(), TestSecret) {
		t.Errorf("%s shows the secret", strings.Join(args, " "))
	}
	return Outcome{stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()}
}

// MustRun runs the program and expects success.
func MustRun(t *testing.T, args ...string) Outcome {
	t.Helper()
	o := Run(t, Environ(), args...)
	if o.Code != 0 {
		t.Fatalf("pailfs %s: exit code %d: %s", strings.Join(args, " "), o.Code, o.Stderr)
	}
	return o
}

// NewMountPoint returns an empty directory from which whatever is mounted there
// is removed when the test ends. The daemons that served it end first: they write
// to directories that are removed next.
func NewMountPoint(t *testing.T) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	at := filepath.Join(dir, "mount point")
	if err := os.Mkdir(at, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for {
			m, mounted, err := mountpoint.At(at)
			if err != nil || !mounted {
				break
			}
			_ = mountpoint.Abort(m)
			if mountpoint.Unmount(at, true) != nil {
				break
			}
		}
		KillDaemons(t, at)
	})
	return at
}

// IsMounted reports whether something is mounted at the path.
func IsMounted(t *testing.T, at string) bool {
	t.Helper()
	_, mounted, err := mountpoint.At(at)
	if err != nil {
		t.Fatal(err)
	}
	return mounted
}

// Eventually waits until a condition holds.
func Eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(Patience); !holds(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain until %s", what)
		}
	}
}

// Foreground is a mount that runs in the foreground.
type Foreground struct {
	*exec.Cmd
	Log  *mounttest.Output
	Done chan struct{}
}

// StartForeground mounts and waits until the mount answers.
func StartForeground(t *testing.T, env []string, at string, args ...string) *Foreground {
	t.Helper()
	f := &Foreground{Cmd: exec.Command(Binary, args...), Log: new(mounttest.Output), Done: make(chan struct{})}
	f.Env, f.Stdout, f.Stderr = env, f.Log, f.Log
	if err := f.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = f.Wait()
		close(f.Done)
	}()
	t.Cleanup(func() {
		_ = f.Process.Kill()
		<-f.Done
		if strings.Contains(f.Log.String(), TestSecret) {
			t.Error("the log shows the secret")
		}
		if t.Failed() {
			t.Logf("log of %v:\n%s", args, f.Log)
		}
	})
	Eventually(t, "the mount is ready", func() bool {
		select {
		case <-f.Done:
			t.Fatalf("the daemon ended: %s", f.Log)
		default:
		}
		return strings.Contains(f.Log.String(), "msg=ready")
	})
	return f
}

// Code waits for the end of the daemon and returns its exit code.
func (f *Foreground) Code(t *testing.T) int {
	t.Helper()
	select {
	case <-f.Done:
		return f.ProcessState.ExitCode()
	case <-time.After(Patience):
		t.Fatalf("the daemon did not end: %s", f.Log)
		return -1
	}
}

// Running reports whether the daemon has not ended yet.
func (f *Foreground) Running() bool {
	select {
	case <-f.Done:
		return false
	default:
		return true
	}
}

// Freeze stops the daemon and returns when none of its threads runs any more.
func (f *Foreground) Freeze(t *testing.T) {
	t.Helper()
	if err := f.Process.Signal(unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	Eventually(t, "every thread is stopped", func() bool {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", f.Process.Pid))
		if err != nil || len(threads) == 0 {
			t.Fatalf("threads of the daemon: %v, %v", threads, err)
		}
		for _, path := range threads {
			text, err := os.ReadFile(path)
			if err != nil || !strings.Contains(string(text), ") T ") {
				return false
			}
		}
		return true
	})
}

// DaemonsOf returns the processes whose command line names the path.
func DaemonsOf(t *testing.T, at string) []int {
	t.Helper()
	dirs, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	var pids []int
	for _, path := range dirs {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		if words := strings.Split(string(text), "\x00"); filepath.Base(words[0]) == "pailfs" && strings.Contains(string(text), at) {
			var pid int
			if _, err := fmt.Sscanf(path, "/proc/%d/", &pid); err != nil {
				t.Fatal(err)
			}
			pids = append(pids, pid)
		}
	}
	return pids
}

// KillDaemons ends the daemons of a mount point without mercy.
func KillDaemons(t *testing.T, at string) {
	t.Helper()
	for _, pid := range DaemonsOf(t, at) {
		fd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			continue // it has ended
		}
		_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
		// Its command line goes before it has given back what it has open, the cache's lock among that.
		Eventually(t, "the daemon has ended", func() bool {
			n, _ := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
			return n > 0
		})
		if err := unix.Close(fd); err != nil {
			t.Error(err)
		}
	}
	Eventually(t, "the daemons are gone", func() bool { return len(DaemonsOf(t, at)) == 0 })
}
