package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pailfs/pailfs/cmd/pailfs/internal/mountpoint"
	"github.com/pailfs/pailfs/fs/mounttest"
)

// content is what the test's object holds.
var content = bytes.Repeat([]byte("the bytes of one version. "), 10_000)

// scene is a store with one object, and a mount point for it.
type scene struct {
	*store
	t     *testing.T
	at    string
	cache string
}

// newScene returns a store that holds the object "dir/file".
func newScene(t *testing.T) *scene {
	t.Helper()
	s := &scene{store: startStore(t), t: t, at: newMountPoint(t), cache: filepath.Join(t.TempDir(), "cache")}
	s.put(t, "dir/file", content)
	return s
}

// mountArgs are the arguments of a mount of the scene.
func (s *scene) mountArgs(more ...string) []string {
	return append([]string{"mount", "oss://" + testBucket, s.at, "--endpoint=" + s.endpoint, "--cache-dir=" + s.cache, "--memory=64MiB"}, more...)
}

// reads reads the object through the mount and compares it.
func (s *scene) reads() {
	s.t.Helper()
	got, err := os.ReadFile(filepath.Join(s.at, "dir", "file"))
	if err != nil {
		s.t.Fatal(err)
	}
	if !bytes.Equal(got, content) {
		s.t.Fatalf("read %d bytes that are not the object's %d", len(got), len(content))
	}
}

// clean checks that nothing of the mount is left and its cache can be used again.
func (s *scene) clean() {
	s.t.Helper()
	if isMounted(s.t, s.at) {
		s.t.Error("still mounted")
	}
	eventually(s.t, "no daemon is left", func() bool { return len(daemonsOf(s.t, s.at)) == 0 })
}

func TestForegroundMountEndsWithEverySignal(t *testing.T) {
	t.Parallel()
	for _, sig := range []syscall.Signal{unix.SIGTERM, unix.SIGINT} {
		t.Run(sig.String(), func(t *testing.T) {
			s := newScene(t)
			f := startForeground(t, environ(), s.at, s.mountArgs()...)
			s.reads()
			if err := f.Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
			if code := f.code(t); code != 0 {
				t.Errorf("exit code %d", code)
			}
			s.clean()
			// The cache was let go: the next daemon takes it.
			next := startForeground(t, environ(), s.at, s.mountArgs()...)
			s.reads()
			mustRun(t, "umount", s.at)
			if code := next.code(t); code != 0 {
				t.Errorf("exit code %d", code)
			}
		})
	}
}

func TestDetachReturnsWhenTheMountAnswers(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	o := mustRun(t, s.mountArgs("--detach", "--log-file="+filepath.Join(t.TempDir(), "log"))...)
	if o.stdout+o.stderr != "" {
		t.Errorf("said %q", o.stdout+o.stderr)
	}
	s.reads() // at once
	pids := daemonsOf(t, s.at)
	if len(pids) != 1 {
		t.Fatalf("daemons: %v", pids)
	}
	pid := pids[0]
	if sid, err := unix.Getsid(pid); err != nil || sid != pid {
		t.Errorf("the daemon is in session %d, %v", sid, err)
	}
	if cwd, err := os.Readlink(fmt.Sprintf("/proc/%d/cwd", pid)); err != nil || cwd != "/" {
		t.Errorf("the daemon's working directory is %q, %v", cwd, err)
	}
	for fd := range 3 {
		if target, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", pid, fd)); err != nil || target != os.DevNull {
			t.Errorf("the daemon's descriptor %d is %q, %v", fd, target, err)
		}
	}
	mustRun(t, "umount", s.at)
	// umount returned, so the daemon has ended.
	if pids := daemonsOf(t, s.at); len(pids) != 0 {
		t.Errorf("umount returned before the daemon ended: %v", pids)
	}
	s.clean()
}

func TestDetachedDaemonHoldsNothingOfItsCaller(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = read.Close() }()
	cmd := exec.CommandContext(t.Context(), binary, s.mountArgs("--detach")...)
	cmd.Env = environ()
	cmd.ExtraFiles = []*os.File{nil, nil, write} // as 5; 3 and 4 are the program's own
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := write.Close(); err != nil {
		t.Fatal(err)
	}
	if err := read.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	if n, err := read.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("the daemon holds the caller's pipe: %d, %v", n, err)
	}
	mustRun(t, "umount", s.at)
}

func TestSecretsAreNotInTheDaemonsEnvironment(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	mustRun(t, s.mountArgs("--detach")...)
	s.reads() // it has the keys all the same
	for _, pid := range daemonsOf(t, s.at) {
		for _, file := range []string{"environ", "cmdline"} {
			text, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, file))
			if err != nil {
				t.Fatal(err)
			}
			if bytes.Contains(text, []byte(testSecret)) {
				t.Errorf("/proc/PID/%s shows the secret", file)
			}
		}
	}
	mustRun(t, "umount", s.at)
}

func TestUmountByOthersEndsTheDaemonCleanly(t *testing.T) {
	t.Parallel()
	for name, command := range map[string][]string{
		"umount(8)":   {"umount"},
		"umount -l":   {"umount", "-l"},
		"fusermount3": {"fusermount3", "-u"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			f := startForeground(t, environ(), s.at, s.mountArgs()...)
			s.reads()
			if o := runAs(t, nil, environ(), command[0], append(command[1:], s.at)...); o.code != 0 {
				t.Fatalf("%s: %s", name, o.stderr)
			}
			if code := f.code(t); code != 0 {
				t.Errorf("exit code %d", code)
			}
			s.clean()
		})
	}
}

func TestBusyMountIsLeftAloneAndItsUsersAreNamed(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	f := startForeground(t, environ(), s.at, s.mountArgs()...)
	user, release := hold(t, s.at)
	o := run(t, environ(), "umount", s.at)
	if o.code != 1 || !strings.Contains(o.stderr, fmt.Sprintf("(pid %d, working directory %s)", user, s.at)) || !strings.Contains(o.stderr, "--lazy") {
		t.Errorf("exit code %d: %s", o.code, o.stderr)
	}
	if strings.Count(o.stderr, "\n") != 1 {
		t.Errorf("more than one line: %s", o.stderr)
	}
	if n := strings.Count(o.stderr, "(pid "); n != 1 {
		t.Errorf("%d users, want the one that is not umount itself: %s", n, o.stderr)
	}
	s.reads() // goes on
	release()
	mustRun(t, "umount", s.at)
	if code := f.code(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
	s.clean()
}

func TestSignalOnABusyMountWaitsAndASecondForces(t *testing.T) {
	t.Parallel()
	t.Run("waits", func(t *testing.T) {
		s := newScene(t)
		f := startForeground(t, environ(), s.at, s.mountArgs()...)
		user, release := hold(t, s.at)
		if err := f.Process.Signal(unix.SIGTERM); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the log names the user", func() bool { return strings.Contains(f.log.String(), fmt.Sprintf("pid %d", user)) })
		s.reads() // goes on
		if !f.running() {
			t.Fatal("the daemon ended although the mount was in use")
		}
		release()
		if code := f.code(t); code != 0 {
			t.Errorf("exit code %d", code)
		}
		s.clean()
	})
	t.Run("forces", func(t *testing.T) {
		s := newScene(t)
		f := startForeground(t, environ(), s.at, s.mountArgs()...)
		open, err := os.Open(filepath.Join(s.at, "dir", "file"))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = open.Close() }()
		if err := f.Process.Signal(unix.SIGTERM); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the daemon waits", func() bool { return strings.Contains(f.log.String(), "waiting until it is not") })
		if err := f.Process.Signal(unix.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if code := f.code(t); code != 0 {
			t.Errorf("exit code %d", code)
		}
		if !strings.Contains(f.log.String(), "although the mount is in use") {
			t.Error("the log does not say that it forced")
		}
		if _, err := open.ReadAt(make([]byte, 1), 200_000); err == nil {
			t.Error("a read succeeded after the daemon ended")
		}
		s.clean()
	})
}

func TestLazyUmountKeepsItsUsers(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	f := startForeground(t, environ(), s.at, s.mountArgs()...)
	open, err := os.Open(filepath.Join(s.at, "dir", "file"))
	if err != nil {
		t.Fatal(err)
	}
	mustRun(t, "umount", "--lazy", s.at)
	if isMounted(t, s.at) {
		t.Error("the name is still there")
	}
	got := make([]byte, len(content))
	if n, err := open.ReadAt(got, 0); err != nil || !bytes.Equal(got, content) {
		t.Errorf("its user read %d bytes, %v", n, err)
	}
	if !f.running() {
		t.Error("the daemon ended before its last user")
	}
	if err := open.Close(); err != nil {
		t.Fatal(err)
	}
	if code := f.code(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
	s.clean()
}

func TestUmountOfABindMountLeavesTheMount(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	f := startForeground(t, environ(), s.at, s.mountArgs()...)
	bind := newMountPoint(t)
	if err := unix.Mount(filepath.Join(s.at, "dir"), bind, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	if o := mustRun(t, "status", bind); !strings.Contains(o.stdout, " at "+s.at) {
		t.Errorf("status: %s", o.stdout)
	}
	mustRun(t, "umount", bind)
	if isMounted(t, bind) {
		t.Error("the bind mount is still there")
	}
	s.reads()
	mustRun(t, "umount", s.at)
	if code := f.code(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
	s.clean()
}

func TestUmountEndsAMountThatAnotherNamespaceShows(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	f := startForeground(t, environ(), s.at, s.mountArgs()...)
	// The namespace gets a copy of every mount, and the root of these tests spreads
	// nothing, so that the copy outlives the original.
	shell := exec.Command("sh", "-c", "cat \"$0\" >/dev/null && echo seen && exec sleep 600", filepath.Join(s.at, "dir", "file"))
	shell.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS, Pdeathsig: unix.SIGKILL}
	seen, err := shell.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := shell.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = shell.Process.Kill()
		_ = shell.Wait() // killed, as it should be
	}()
	if line, err := bufio.NewReader(seen).ReadString('\n'); err != nil || line != "seen\n" {
		t.Fatalf("the namespace does not show the mount: %q, %v", line, err)
	}
	mustRun(t, "umount", s.at)
	if code := f.code(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
	s.clean()
}

func TestForceUmountEndsABusyMount(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	f := startForeground(t, environ(), s.at, s.mountArgs()...)
	_, release := hold(t, s.at)
	defer release()
	mustRun(t, "umount", "--force", s.at)
	if code := f.code(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
	s.clean()
}

func TestForceUmountEndsAStoppedDaemon(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	f := startForeground(t, environ(), s.at, s.mountArgs()...)
	f.freeze(t)
	for _, command := range []string{"status", "umount"} {
		if o := run(t, environ(), command, s.at); o.code != 1 || !strings.Contains(o.stderr, "does not answer") || !strings.Contains(o.stderr, "--force") {
			t.Errorf("%s: exit code %d: %s", command, o.code, o.stderr)
		}
	}
	o := run(t, environ(), s.mountArgs()...)
	if o.code != 1 || !strings.Contains(o.stderr, "does not answer") {
		t.Errorf("mount: exit code %d: %s", o.code, o.stderr)
	}
	mustRun(t, "umount", "--force", s.at)
	if isMounted(t, s.at) {
		t.Error("still mounted")
	}
	if err := f.Process.Signal(unix.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if code := f.code(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
	s.clean()
}

func TestStaleMountIsRecognisedAndReplaced(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	f := startForeground(t, environ(), s.at, s.mountArgs()...)
	s.reads()
	if err := f.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	f.code(t)
	if state, err := mountpoint.Probe(s.at, patience); state != mountpoint.Dead || err != nil {
		t.Fatalf("state %v, %v", state, err)
	}
	o := run(t, environ(), "status", s.at)
	if o.code != exitDead || !strings.Contains(o.stderr, "is dead") || !strings.Contains(o.stderr, "oss://"+testBucket) {
		t.Errorf("status: exit code %d: %s", o.code, o.stderr)
	}
	o = mustRun(t, s.mountArgs("--detach")...)
	if !strings.Contains(o.stderr, "had died; its mount is replaced") {
		t.Errorf("mount said %q", o.stderr)
	}
	s.reads()

	killDaemons(t, s.at)
	o = mustRun(t, "umount", s.at)
	if !strings.Contains(o.stderr, "had died; its mount is cleared") {
		t.Errorf("umount said %q", o.stderr)
	}
	s.clean()
}

func TestFailedMountLeavesAStaleMountAsItWas(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	f := startForeground(t, environ(), s.at, s.mountArgs()...)
	if err := f.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	f.code(t)
	if o := run(t, environ(), s.mountArgs("--endpoint=http://"+closedPort(t))...); o.code != 1 {
		t.Fatalf("exit code %d: %s", o.code, o.stderr)
	}
	if !isMounted(t, s.at) {
		t.Error("the stale mount was taken away although the new one failed")
	}
}

func TestTwoDaemonsDoNotShareACacheDirectory(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	startForeground(t, environ(), s.at, s.mountArgs()...)
	at := newMountPoint(t)
	args := s.mountArgs()
	args[2] = at
	o := run(t, environ(), args...)
	if o.code != 1 || strings.Count(o.stderr, "\n") != 1 || !strings.Contains(o.stderr, s.cache) || !strings.Contains(o.stderr, "--cache-dir") {
		t.Errorf("exit code %d: %s", o.code, o.stderr)
	}
	if isMounted(t, at) {
		t.Error("the second is mounted")
	}
	s.reads() // the first is unharmed
	mustRun(t, "umount", s.at)
}

func TestOccupiedMountPointIsRefused(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	startForeground(t, environ(), s.at, s.mountArgs()...)
	o := run(t, environ(), append(s.mountArgs(), "--cache-dir="+s.cache+"2")...)
	if o.code != 1 || !strings.Contains(o.stderr, "is busy: oss://"+testBucket+" is mounted there") || !strings.Contains(o.stderr, "pailfs umount") {
		t.Errorf("exit code %d: %s", o.code, o.stderr)
	}
	s.reads()
	mustRun(t, "umount", s.at)
}

func TestInterruptedStartLeavesNothing(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	l := silentListener(t)
	f := exec.Command(binary, s.mountArgs("--endpoint=http://"+l.Addr().String())...)
	f.Env = environ()
	var stderr mounttest.Output
	f.Stderr = &stderr
	if err := f.Start(); err != nil {
		t.Fatal(err)
	}
	accepted, err := l.Accept() // the daemon asks the store
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = accepted.Close() }()
	if err := f.Process.Signal(unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	err = f.Wait()
	if f.ProcessState.ExitCode() != 1 || stderr.String() != "pailfs: interrupted before the mount was ready\n" {
		t.Errorf("%v: %s", err, &stderr)
	}
	if _, err := os.Stat(s.cache); !os.IsNotExist(err) {
		t.Errorf("the cache directory is left: %v", err)
	}
	s.clean()
}

func TestInterruptedDetachLeavesNothing(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	l := silentListener(t)
	parent := exec.Command(binary, s.mountArgs("--detach", "--endpoint=http://"+l.Addr().String())...)
	parent.Env = environ()
	var stderr mounttest.Output
	parent.Stderr = &stderr
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	accepted, err := l.Accept() // the child asks the store
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = accepted.Close() }()
	if err := parent.Process.Signal(unix.SIGINT); err != nil {
		t.Fatal(err)
	}
	err = parent.Wait()
	if parent.ProcessState.ExitCode() != 1 || stderr.String() != "pailfs: interrupted before the mount was ready\n" {
		t.Errorf("%v: %s", err, &stderr)
	}
	s.clean()
}

func TestDaemonKilledBeforeItIsReadyIsReported(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	l := silentListener(t)
	parent := exec.Command(binary, s.mountArgs("--detach", "--endpoint=http://"+l.Addr().String())...)
	parent.Env = environ()
	var stderr mounttest.Output
	parent.Stderr = &stderr
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	accepted, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = accepted.Close() }()
	for _, pid := range daemonsOf(t, s.at) {
		if pid != parent.Process.Pid {
			if err := unix.Kill(pid, unix.SIGKILL); err != nil {
				t.Fatal(err)
			}
		}
	}
	err = parent.Wait()
	if parent.ProcessState.ExitCode() != 1 || !strings.HasPrefix(stderr.String(), "pailfs: the daemon ended before it was ready (signal: killed)") {
		t.Errorf("%v: %s", err, &stderr)
	}
	s.clean()
}

func TestStatusWorksWhileTheStoreIsDown(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	startForeground(t, environ(), s.at, s.mountArgs("--region="+testRegion, "--http=0")...)
	s.reads()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	o := mustRun(t, "status", s.at)
	for _, want := range []string{
		"oss://" + testBucket + " at " + s.at, "passthrough", "no-open", "cache", "memory", "object store", s.endpoint,
		"region " + testRegion, "credentials", "limiter", "metrics", "get",
	} {
		if !strings.Contains(o.stdout, want) {
			t.Errorf("status does not say %q:\n%s", want, o.stdout)
		}
	}
	if lines := strings.Count(o.stdout, "\n"); lines > 45 {
		t.Errorf("status has %d lines, more than a screen", lines)
	}
	// From below the mount point too, and as JSON.
	o = mustRun(t, "status", "--json", filepath.Join(s.at, "dir"))
	var r statusReport
	if err := json.Unmarshal([]byte(o.stdout), &r); err != nil {
		t.Fatal(err)
	}
	if r.Source != "oss://"+testBucket || r.MountPoint != s.at || r.PID != daemonsOf(t, s.at)[0] || r.Store.Limiter.Limit == 0 || len(r.Store.Requests) == 0 {
		t.Errorf("status is %+v", r)
	}
	mustRun(t, "umount", s.at)
}

func TestStatusOfWhatIsNoMount(t *testing.T) {
	t.Parallel()
	dir := newMountPoint(t)
	for path, want := range map[string]string{
		dir:                "nothing is mounted at",
		dir + "/missing":   "does not exist",
		"/proc":            "not of pailfs",
		"/proc/self/mem/x": "does not exist",
	} {
		for _, command := range []string{"status", "umount"} {
			if o := run(t, environ(), command, path); o.code != 1 || !strings.Contains(o.stderr, want) {
				t.Errorf("%s %s: exit code %d: %s", command, path, o.code, o.stderr)
			}
		}
	}
}

func TestUsersMountThroughFusermount(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	openUp(t, s.at)
	const user = 65534
	if err := os.Chown(s.at, user, user); err != nil {
		t.Fatal(err)
	}
	// The device is open to users, as udev makes it.
	dev := filepath.Join(t.TempDir(), "fuse")
	if err := unix.Mknod(dev, unix.S_IFCHR, int(unix.Mkdev(10, 229))); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dev, 0o666); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount(dev, "/dev/fuse", "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount("/dev/fuse", unix.MNT_DETACH) })

	nobody := func() *syscall.SysProcAttr {
		return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: user, Gid: user}}
	}
	args := []string{"mount", "oss://" + testBucket, s.at, "--endpoint=" + s.endpoint, "--memory=64MiB", "--detach"}
	if o := runAs(t, nobody(), environ(), binary, append(args, "--allow-other")...); o.code != 1 || !strings.Contains(o.stderr, "user_allow_other") {
		t.Errorf("--allow-other: exit code %d: %s", o.code, o.stderr)
	}
	if o := runAs(t, nobody(), environ(), binary, args...); o.code != 0 {
		t.Fatalf("mount: exit code %d: %s", o.code, o.stderr)
	}
	if o := runAs(t, nobody(), environ(), "cat", filepath.Join(s.at, "dir", "file")); o.stdout != string(content) {
		t.Errorf("read %d bytes, %s", len(o.stdout), o.stderr)
	}
	if o := runAs(t, nobody(), environ(), binary, "status", s.at); o.code != 0 {
		t.Errorf("status: exit code %d: %s", o.code, o.stderr)
	}
	if o := runAs(t, nobody(), environ(), binary, "umount", s.at); o.code != 0 {
		t.Errorf("umount: exit code %d: %s", o.code, o.stderr)
	}
	s.clean()

	// The user clears a dead mount of their own, too.
	if o := runAs(t, nobody(), environ(), binary, args...); o.code != 0 {
		t.Fatalf("mount: exit code %d: %s", o.code, o.stderr)
	}
	killDaemons(t, s.at)
	if o := runAs(t, nobody(), environ(), binary, args...); o.code != 0 || !strings.Contains(o.stderr, "is replaced") {
		t.Fatalf("mount over a dead one: exit code %d: %s", o.code, o.stderr)
	}
	if o := runAs(t, nobody(), environ(), binary, "umount", s.at); o.code != 0 {
		t.Errorf("umount: exit code %d: %s", o.code, o.stderr)
	}
	s.clean()
}

// TestCapabilitiesOfTheServiceSuffice: those that the unit in deploy/systemd
// leaves.
func TestCapabilitiesOfTheServiceSuffice(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	args := append([]string{binary}, s.mountArgs("--detach", "--allow-other")...)
	if o := runAs(t, nil, environ("PAILFS_TEST_ROLE=as the service"), "/proc/self/exe", args...); o.code != 0 {
		t.Fatalf("exit code %d: %s", o.code, o.stderr)
	}
	s.reads()
	with := statusOf(t, s.at).FileSystem
	mustRun(t, "umount", s.at)

	mustRun(t, s.mountArgs("--detach", "--allow-other")...)
	without := statusOf(t, s.at).FileSystem
	if with.Passthrough != without.Passthrough || with.ReadAheadKiB != without.ReadAheadKiB {
		t.Errorf("the service has %+v and readahead %d, root %+v and %d", with.Passthrough, with.ReadAheadKiB, without.Passthrough, without.ReadAheadKiB)
	}
	mustRun(t, "umount", s.at)
	s.clean()
}

func TestOtherUsersMaySeeStatusButNotUnmount(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	startForeground(t, environ(), s.at, s.mountArgs("--allow-other")...)
	nobody := &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	openUp(t, s.at)
	if o := runAs(t, nobody, environ(), binary, "status", s.at); o.code != 0 {
		t.Errorf("status: exit code %d: %s", o.code, o.stderr)
	}
	for _, how := range []string{"--lazy", "--force"} {
		o := runAs(t, nobody, environ(), binary, "umount", how, s.at)
		if o.code != 1 || !strings.Contains(o.stderr, "not permitted") {
			t.Errorf("umount %s: exit code %d: %s", how, o.code, o.stderr)
		}
	}
	s.reads()
	mustRun(t, "umount", s.at)
}

func TestOwnerGroupAndModesAreThoseAskedFor(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	startForeground(t, environ(), s.at, s.mountArgs("--uid=1234", "--gid=567", "--umask=027")...)
	for path, mode := range map[string]os.FileMode{"": os.ModeDir | 0o750, "dir": os.ModeDir | 0o750, "dir/file": 0o640} {
		info, err := os.Stat(filepath.Join(s.at, path))
		if err != nil {
			t.Fatal(err)
		}
		st, ok := info.Sys().(*syscall.Stat_t)
		if !ok || info.Mode() != mode || st.Uid != 1234 || st.Gid != 567 {
			t.Errorf("%q has mode %s and owner %d:%d", path, info.Mode(), st.Uid, st.Gid)
		}
	}
	mustRun(t, "umount", s.at)
}

func TestNoexecForbidsPrograms(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.put(t, "script", []byte("#!/bin/sh\nexit 7\n"))
	startForeground(t, environ(), s.at, s.mountArgs("--noexec", "--umask=0")...)
	script := filepath.Join(s.at, "script")
	// The kernel learns the name before this process forks: while it does, its
	// scheduler stands still, and the emulator that lives in it with it.
	if _, err := os.Stat(script); err != nil {
		t.Fatal(err)
	}
	err := exec.Command(script).Run()
	if !os.IsPermission(err) {
		t.Errorf("running a program: %v", err)
	}
	mustRun(t, "umount", s.at)
}

func TestConfigurationPrecedenceReachesTheMount(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.put(t, "sub/only", content)
	file := filepath.Join(t.TempDir(), "pailfs.yaml")
	text := "endpoint: http://wrong.invalid\nuid: 1\ngid: 1\numask: \"077\"\nmemory: 64MiB\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	env := environ("PAILFS_CONFIG="+file, "PAILFS_ENDPOINT="+s.endpoint, "PAILFS_UID=2", "PAILFS_GID=2")
	startForeground(t, env, s.at, "mount", "oss://"+testBucket+"/sub/", s.at, "--uid=3")
	info, err := os.Stat(filepath.Join(s.at, "only"))
	if err != nil {
		t.Fatal(err)
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || st.Uid != 3 || st.Gid != 2 || info.Mode() != 0o600 {
		t.Errorf("owner %d:%d and mode %s; want 3 of the flag, 2 of the environment, 0600 of the file", st.Uid, st.Gid, info.Mode())
	}
	o := run(t, env, "config", "--uid=3", "--json")
	var settings []settingInForce
	if err := json.Unmarshal([]byte(o.stdout), &settings); err != nil {
		t.Fatal(err)
	}
	for _, s := range settings {
		want := map[string]string{"uid": "flag --uid", "gid": "env PAILFS_GID", "umask": "file " + file + ":4", "region": "default "}[s.Name]
		if got := string(s.Layer) + " " + s.Where; want != "" && got != want {
			t.Errorf("%s comes from %q, want %q", s.Name, got, want)
		}
	}
	mustRun(t, "umount", s.at)
}

func TestConfigYAMLIsAConfigurationFileThatSaysTheSame(t *testing.T) {
	first := run(t, environ(), "config", "--yaml", "--umask=007", "--cache-dir=/ssd/x: y", "--memory=1.5GiB", "--read-only")
	file := filepath.Join(t.TempDir(), "pailfs.yaml")
	if err := os.WriteFile(file, []byte(first.stdout), 0o600); err != nil {
		t.Fatal(err)
	}
	second := mustRun(t, "config", "--yaml", "--config="+file)
	if first.stdout != second.stdout {
		t.Errorf("first:\n%ssecond:\n%s", first.stdout, second.stdout)
	}
}

func TestLogFileIsReopenedAndPrivate(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	path := filepath.Join(t.TempDir(), "pailfs.log")
	mustRun(t, s.mountArgs("--detach", "--log-file="+path, "--log-format=json")...)
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode() != 0o600 {
		t.Errorf("mode %s", info.Mode())
	}
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	if err := unix.Kill(daemonsOf(t, s.at)[0], unix.SIGHUP); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the log file is there again", func() bool {
		_, err := os.Stat(path)
		return err == nil
	})
	mustRun(t, "umount", s.at)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if !json.Valid([]byte(line)) {
			t.Errorf("not JSON: %s", line)
		}
	}
	if !strings.Contains(string(text), `"msg":"unmounted"`) {
		t.Errorf("the new file does not tell of the end:\n%s", text)
	}
}

func TestCrashIsWrittenToTheLogFile(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	path := filepath.Join(t.TempDir(), "pailfs.log")
	mustRun(t, s.mountArgs("--detach", "--log-file="+path)...)
	// What the service manager's watchdog sends.
	if err := unix.Kill(daemonsOf(t, s.at)[0], unix.SIGABRT); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the daemon has ended", func() bool { return len(daemonsOf(t, s.at)) == 0 })
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), "SIGABRT: abort") || !strings.Contains(string(text), "goroutine ") {
		t.Errorf("the log file has no trace:\n%s", text)
	}
	if bytes.Contains(text, []byte(testSecret)) {
		t.Error("the trace shows the secret")
	}
}

func TestDaemonPreparesItsProcess(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	mustRun(t, s.mountArgs("--detach")...)
	pid := daemonsOf(t, s.at)[0]
	proc := func(name string) string {
		text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), name))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	if status := proc("status"); !strings.Contains(status, "Umask:\t0000\n") {
		t.Errorf("the umask is not 0: %s", status)
	}
	var st unix.Stat_t
	if err := unix.Stat(filepath.Join("/proc", strconv.Itoa(pid), "environ"), &st); err != nil || st.Uid != 0 {
		t.Errorf("owner of the daemon's environ: %d, %v", st.Uid, err)
	}
	// What needs CAP_SYS_RESOURCE is done where it is there.
	var limit unix.Rlimit
	if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, nil, &limit); err != nil {
		t.Fatal(err)
	}
	score := strings.TrimSpace(proc("oom_score_adj"))
	if hasCapability(capEff(t, proc("status")), unix.CAP_SYS_RESOURCE) {
		if limit.Cur != wantedFiles || score != "-500" {
			t.Errorf("open files %d, OOM score %s", limit.Cur, score)
		}
	} else if limit.Cur != limit.Max {
		t.Errorf("open files %d of %d", limit.Cur, limit.Max)
	}
	mustRun(t, "umount", s.at)
}

// capEff returns the effective capabilities in the text of /proc/PID/status.
func capEff(t *testing.T, status string) string {
	t.Helper()
	for line := range strings.Lines(status) {
		if set, ok := strings.CutPrefix(line, "CapEff:"); ok {
			return strings.TrimSpace(set)
		}
	}
	t.Fatal("no CapEff in /proc/PID/status")
	return ""
}

// hold makes a process whose working directory is the path, and returns its pid
// and the function that ends it.
func hold(t *testing.T, path string) (pid int, release func()) {
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

// openUp lets every user walk to the path.
func openUp(t *testing.T, path string) {
	t.Helper()
	for dir := filepath.Dir(path); dir != "/" && dir != os.TempDir(); dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
}
