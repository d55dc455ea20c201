package main

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
	"github.com/pailfs/pailfs/oss/ossemu"
)

// The keys that the emulator knows.
const (
	testKeyID  = "LTAItestkeyid000000"
	testSecret = "this-secret-must-never-be-shown"
	testBucket = "test-bucket"
	testRegion = "cn-hangzhou"
)

// patience bounds every wait of these tests. Nothing is asserted on time.
const patience = 2 * time.Minute

// store is an emulated object store.
type store struct {
	*ossemu.Server
	endpoint string
}

// startStore serves an emulator for the test, with one bucket.
func startStore(t *testing.T, change ...func(*ossemu.Config)) *store {
	t.Helper()
	cfg := ossemu.Config{
		Dir:         t.TempDir(),
		Credentials: []ossemu.Credential{{AccessKeyID: testKeyID, AccessKeySecret: testSecret}},
		Buckets:     []string{testBucket},
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
	return &store{Server: server, endpoint: "http://" + l.Addr().String()}
}

// put stores an object.
func (s *store) put(t *testing.T, key string, content []byte) {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	credentials, err := oss.OpenCredentials(oss.CredentialsConfig{
		Kind: oss.CredentialsStatic, AccessKeyID: testKeyID, AccessKeySecret: testSecret,
	}, log)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = credentials.Close() }()
	client, err := oss.Open(oss.Config{Endpoint: s.endpoint, Bucket: testBucket, Credentials: credentials}, nil, nil, log)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	if _, err := client.As(oss.Upload).Put(t.Context(), key, bytes.NewReader(content), oss.PutOptions{}); err != nil {
		t.Fatal(err)
	}
}

// environ is a clean environment with the test's keys and more.
func environ(more ...string) []string {
	return append([]string{
		"PATH=" + os.Getenv("PATH"),
		"HOME=/nonexistent",
		"OSS_ACCESS_KEY_ID=" + testKeyID,
		"OSS_ACCESS_KEY_SECRET=" + testSecret,
	}, more...)
}

// outcome is how a run of the program ended.
type outcome struct {
	stdout, stderr string
	code           int
}

// run runs the program to its end, in the environment env.
func run(t *testing.T, env []string, args ...string) outcome {
	t.Helper()
	return runAs(t, nil, env, binary, args...)
}

// runAs runs any program to its end.
func runAs(t *testing.T, attr *syscall.SysProcAttr, env []string, name string, args ...string) outcome {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
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
	if strings.Contains(stdout.String()+stderr.String(), testSecret) {
		t.Errorf("%s shows the secret", strings.Join(args, " "))
	}
	return outcome{stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()}
}

// mustRun runs the program and expects success.
func mustRun(t *testing.T, args ...string) outcome {
	t.Helper()
	o := run(t, environ(), args...)
	if o.code != 0 {
		t.Fatalf("pailfs %s: exit code %d: %s", strings.Join(args, " "), o.code, o.stderr)
	}
	return o
}

// newMountPoint returns an empty directory from which whatever is mounted there
// is removed when the test ends. The daemons that served it end first: they write
// to directories that are removed next.
func newMountPoint(t *testing.T) string {
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
		killDaemons(t, at)
	})
	return at
}

// isMounted reports whether something is mounted at the path.
func isMounted(t *testing.T, at string) bool {
	t.Helper()
	_, mounted, err := mountpoint.At(at)
	if err != nil {
		t.Fatal(err)
	}
	return mounted
}

// eventually waits until a condition holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !holds(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain until %s", what)
		}
	}
}

// foreground is a mount that runs in the foreground.
type foreground struct {
	*exec.Cmd
	log  *mounttest.Output
	done chan struct{}
}

// startForeground mounts and waits until the mount answers.
func startForeground(t *testing.T, env []string, at string, args ...string) *foreground {
	t.Helper()
	f := &foreground{Cmd: exec.Command(binary, args...), log: new(mounttest.Output), done: make(chan struct{})}
	f.Env, f.Stdout, f.Stderr = env, f.log, f.log
	if err := f.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = f.Wait()
		close(f.done)
	}()
	t.Cleanup(func() {
		_ = f.Process.Kill()
		<-f.done
		if strings.Contains(f.log.String(), testSecret) {
			t.Error("the log shows the secret")
		}
		if t.Failed() {
			t.Logf("log of %v:\n%s", args, f.log)
		}
	})
	eventually(t, "the mount is ready", func() bool {
		select {
		case <-f.done:
			t.Fatalf("the daemon ended: %s", f.log)
		default:
		}
		return strings.Contains(f.log.String(), "msg=ready")
	})
	return f
}

// code waits for the end of the daemon and returns its exit code.
func (f *foreground) code(t *testing.T) int {
	t.Helper()
	select {
	case <-f.done:
		return f.ProcessState.ExitCode()
	case <-time.After(patience):
		t.Fatalf("the daemon did not end: %s", f.log)
		return -1
	}
}

// running reports whether the daemon has not ended yet.
func (f *foreground) running() bool {
	select {
	case <-f.done:
		return false
	default:
		return true
	}
}

// freeze stops the daemon and returns when none of its threads runs any more.
func (f *foreground) freeze(t *testing.T) {
	t.Helper()
	if err := f.Process.Signal(unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	eventually(t, "every thread is stopped", func() bool {
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

// daemonsOf returns the processes whose command line names the path.
func daemonsOf(t *testing.T, at string) []int {
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

// killDaemons ends the daemons of a mount point without mercy.
func killDaemons(t *testing.T, at string) {
	t.Helper()
	for _, pid := range daemonsOf(t, at) {
		_ = unix.Kill(pid, unix.SIGKILL)
	}
	eventually(t, "the daemons are gone", func() bool { return len(daemonsOf(t, at)) == 0 })
}
