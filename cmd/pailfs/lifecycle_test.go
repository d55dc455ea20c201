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

	"github.com/pailfs/pailfs/cmd/pailfs/internal/ask"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/machine"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/mountpoint"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/programtest"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/wire"
	"github.com/pailfs/pailfs/fs/mounttest"
)

func TestForegroundMountEndsWithEverySignal(t *testing.T) {
	t.Parallel()
	for _, sig := range []syscall.Signal{unix.SIGTERM, unix.SIGINT} {
		t.Run(sig.String(), func(t *testing.T) {
			s := programtest.NewScene(t)
			f := programtest.StartForeground(t, programtest.Environ(), s.At, s.MountArgs()...)
			s.Reads()
			if err := f.Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
			if code := f.Code(t); code != 0 {
				t.Errorf("exit code %d", code)
			}
			s.Clean()
			// The cache was let go: the next daemon takes it.
			next := programtest.StartForeground(t, programtest.Environ(), s.At, s.MountArgs()...)
			s.Reads()
			programtest.MustRun(t, "umount", s.At)
			if code := next.Code(t); code != 0 {
				t.Errorf("exit code %d", code)
			}
		})
	}
}

func TestDetachReturnsWhenTheMountAnswers(t *testing.T) {
	t.Parallel()
	s := programtest.NewScene(t)
	o := programtest.MustRun(t, s.MountArgs("--detach", "--log-file="+filepath.Join(t.TempDir(), "log"))...)
	if o.Stdout+o.Stderr != "" {
		t.Errorf("said %q", o.Stdout+o.Stderr)
	}
	s.Reads() // at once
	pids := programtest.DaemonsOf(t, s.At)
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
	programtest.MustRun(t, "umount", s.At)
	// umount returned, so the daemon has ended.
	if pids := programtest.DaemonsOf(t, s.At); len(pids) != 0 {
		t.Errorf("umount returned before the daemon ended: %v", pids)
	}
	s.Clean()
}

func TestDetachedDaemonHoldsNothingOfItsCaller(t *testing.T) {
	t.Parallel()
	s := programtest.NewScene(t)
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = read.Close() }()
	cmd := exec.CommandContext(t.Context(), programtest.Binary, s.MountArgs("--detach")...)
	cmd.Env = programtest.Environ()
	cmd.ExtraFiles = []*os.File{nil, nil, write} // as 5; 3 and 4 are the program's own
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := write.Close(); err != nil {
		t.Fatal(err)
	}
	if err := read.SetReadDeadline(time.Now().Add(programtest.Patience)); err != nil {
		t.Fatal(err)
	}
	if n, err := read.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("the daemon holds the caller's pipe: %d, %v", n, err)
	}
	programtest.MustRun(t, "umount", s.At)
}

func TestSecretsAreNotInTheDaemonsEnvironment(t *testing.T) {
	t.Parallel()
	s := programtest.NewScene(t)
	programtest.MustRun(t, s.MountArgs("--detach")...)
	s.Reads() // it has the keys all the same
	for _, pid := range programtest.DaemonsOf(t, s.At) {
		for _, file := range []string{"environ", "cmdline"} {
			text, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, file))
			if err != nil {
				t.Fatal(err)
			}
			if bytes.Contains(text, []byte(programtest.TestSecret)) {
				t.Errorf("/proc/PID/%s shows the secret", file)
			}
		}
	}
	programtest.MustRun(t, "umount", s.At)
}

func TestUmountByOthersEndsTheDaemonCleanly(t *testing.T) {
	t.Parallel()
	for name, command := range map[string][]string{
		"umount(8)":   {"umount"},
		"umount -l":   {"umount", "-l"},
		"fusermount3": {"fusermount3", "-u"},
	} {
		t.Run(name, func(t *testing.T) {
			s := programtest.NewScene(t)
			f := programtest.StartForeground(t, programtest.Environ(), s.At, s.MountArgs()...)
			s.Reads()
			if o := programtest.RunAs(t, nil, programtest.Environ(), command[0], append(command[1:], s.At)...); o.Code != 0 {
				t.Fatalf("%s: %s", name, o.Stderr)
			}
			if code := f.Code(t); code != 0 {
				t.Errorf("exit code %d", code)
			}
			s.Clean()
		})
	}
}

func TestBusyMountIsLeftAloneAndItsUsersAreNamed(t *testing.T) {
	t.Parallel()
	s := programtest.NewScene(t)
	f := programtest.StartForeground(t, programtest.Environ(), s.At, s.MountArgs()...)
	user, release := programtest.Hold(t, s.At)
	o := programtest.Run(t, programtest.Environ(), "umount", s.At)
	if o.Code != 1 || !strings.Contains(o.Stderr, fmt.Sprintf("(pid %d, working directory %s)", user, s.At)) || !strings.Contains(o.Stderr, "--lazy") {
		t.Errorf("exit code %d: %s", o.Code, o.Stderr)
	}
	if strings.Count(o.Stderr, "\n") != 1 {
		t.Errorf("more than one line: %s", o.Stderr)
	}
	if n := strings.Count(o.Stderr, "(pid "); n != 1 {
		t.Errorf("%d users, want the one that is not umount itself: %s", n, o.Stderr)
	}
	s.Reads() // goes on
	release()
	programtest.MustRun(t, "umount", s.At)
	if code := f.Code(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
	s.Clean()
}

func TestSignalOnABusyMountWaitsAndASecondForces(t *testing.T) {
	t.Parallel()
	t.Run("waits", func(t *testing.T) {
		s := programtest.NewScene(t)
		f := programtest.StartForeground(t, programtest.Environ(), s.At, s.MountArgs()...)
		user, release := programtest.Hold(t, s.At)
		if err := f.Process.Signal(unix.SIGTERM); err != nil {
			t.Fatal(err)
		}
		programtest.Eventually(t, "the log names the user", func() bool { return strings.Contains(f.Log.String(), fmt.Sprintf("pid %d", user)) })
		s.Reads() // goes on
		if !f.Running() {
			t.Fatal("the daemon ended although the mount was in use")
		}
		release()
		if code := f.Code(t); code != 0 {
			t.Errorf("exit code %d", code)
		}
		s.Clean()
	})
	t.Run("forces", func(t *testing.T) {
		s := programtest.NewScene(t)
		f := programtest.StartForeground(t, programtest.Environ(), s.At, s.MountArgs()...)
		open, err := os.Open(filepath.Join(s.At, "dir", "file"))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = open.Close() }()
		if err := f.Process.Signal(unix.SIGTERM); err != nil {
			t.Fatal(err)
		}
		programtest.Eventually(t, "the daemon waits", func() bool { return strings.Contains(f.Log.String(), "waiting until it is not") })
		if err := f.Process.Signal(unix.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if code := f.Code(t); code != 0 {
			t.Errorf("exit code %d", code)
		}
		if !strings.Contains(f.Log.String(), "although the mount is in use") {
			t.Error("the log does not say that it forced")
		}
		if _, err := open.ReadAt(make([]byte, 1), 200_000); err == nil {
			t.Error("a read succeeded after the daemon ended")
		}
		s.Clean()
	})
}

func TestLazyUmountKeepsItsUsers(t *testing.T) {
	t.Parallel()
	s := programtest.NewScene(t)
	f := programtest.StartForeground(t, programtest.Environ(), s.At, s.MountArgs()...)
	open, err := os.Open(filepath.Join(s.At, "dir", "file"))
	if err != nil {
		t.Fatal(err)
	}
	programtest.MustRun(t, "umount", "--lazy", s.At)
	if programtest.IsMounted(t, s.At) {
		t.Error("the name is still there")
	}
	got := make([]byte, len(programtest.Content))
	if n, err := open.ReadAt(got, 0); err != nil || !bytes.Equal(got, programtest.Content) {
		t.Errorf("its user read %d bytes, %v", n, err)
	}
	if !f.Running() {
		t.Error("the daemon ended before its last user")
	}
	if err := open.Close(); err != nil {
		t.Fatal(err)
	}
	if code := f.Code(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
	s.Clean()
}

func TestUmountOfABindMountLeavesTheMount(t *testing.T) {
	t.Parallel()
	s := programtest.NewScene(t)
	f := programtest.StartForeground(t, programtest.Environ(), s.At, s.MountArgs()...)
	bind := programtest.NewMountPoint(t)
	if err := unix.Mount(filepath.Join(s.At, "dir"), bind, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	if o := programtest.MustRun(t, "status", bind); !strings.Contains(o.Stdout, " at "+s.At) {
		t.Errorf("status: %s", o.Stdout)
	}
	programtest.MustRun(t, "umount", bind)
	if programtest.IsMounted(t, bind) {
		t.Error("the bind mount is still there")
	}
	s.Reads()
	programtest.MustRun(t, "umount", s.At)
	if code := f.Code(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
	s.Clean()
}

func TestUmountEndsAMountThatAnotherNamespaceShows(t *testing.T) {
	t.Parallel()
	s := programtest.NewScene(t)
	f := programtest.StartForeground(t, programtest.Environ(), s.At, s.MountArgs()...)
	// The namespace gets a copy of every mount, and the root of these tests spreads
	// nothing, so that the copy outlives the original.
	shell := exec.Command("sh", "-c", "cat \"$0\" >/dev/null && echo seen && exec sleep 600", filepath.Join(s.At, "dir", "file"))
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
	programtest.MustRun(t, "umount", s.At)
	if code := f.Code(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
	s.Clean()
}

func TestForceUmountEndsABusyMount(t *testing.T) {
	t.Parallel()
	s := programtest.NewScene(t)
	f := programtest.StartForeground(t, programtest.Environ(), s.At, s.MountArgs()...)
	_, release := programtest.Hold(t, s.At)
	defer release()
	programtest.MustRun(t, "umount", "--force", s.At)
	if code := f.Code(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
	s.Clean()
}

func TestForceUmountEndsAStoppedDaemon(t *testing.T) {
	t.Parallel()
	s := programtest.NewScene(t)
	f := programtest.StartForeground(t, programtest.Environ(), s.At, s.MountArgs()...)
	f.Freeze(t)
	for _, command := range []string{"status", "umount"} {
		if o := programtest.Run(t, programtest.Environ(), command, s.At); o.Code != 1 || !strings.Contains(o.Stderr, "does not answer") || !strings.Contains(o.Stderr, "--force") {
			t.Errorf("%s: exit code %d: %s", command, o.Code, o.Stderr)
		}
	}
	o := programtest.Run(t, programtest.Environ(), s.MountArgs()...)
	if o.Code != 1 || !strings.Contains(o.Stderr, "does not answer") {
		t.Errorf("mount: exit code %d: %s", o.Code, o.Stderr)
	}
	programtest.MustRun(t, "umount", "--force", s.At)
	if programtest.IsMounted(t, s.At) {
		t.Error("still mounted")
	}
	if err := f.Process.Signal(unix.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if code := f.Code(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
	s.Clean()
}

func TestStaleMountIsRecognisedAndReplaced(t *testing.T) {
	t.Parallel()
	s := programtest.NewScene(t)
	f := programtest.StartForeground(t, programtest.Environ(), s.At, s.MountArgs()...)
	s.Reads()
	if err := f.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	f.Code(t)
	if state, err := mountpoint.Probe(s.At, programtest.Patience); state != mountpoint.Dead || err != nil {
		t.Fatalf("state %v, %v", state, err)
	}
	o := programtest.Run(t, programtest.Environ(), "status", s.At)
	if o.Code != ask.ExitDead || !strings.Contains(o.Stderr, "is dead") || !strings.Contains(o.Stderr, "oss://"+programtest.TestBucket) {
		t.Errorf("status: exit code %d: %s", o.Code, o.Stderr)
	}
	o = programtest.MustRun(t, s.MountArgs("--detach")...)
	if !strings.Contains(o.Stderr, "had died; its mount is replaced") {
		t.Errorf("mount said %q", o.Stderr)
	}
	s.Reads()

	programtest.KillDaemons(t, s.At)
	o = programtest.MustRun(t, "umount", s.At)
	if !strings.Contains(o.Stderr, "had died; its mount is cleared") {
		t.Errorf("umount said %q", o.Stderr)
	}
	s.Clean()
}

func TestFailedMountLeavesAStaleMountAsItWas(t *testing.T) {
	t.Parallel()
	s := programtest.NewScene(t)
	f := programtest.StartForeground(t, programtest.Environ(), s.At, s.MountArgs()...)
	if err := f.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	f.Code(t)
	if o := programtest.Run(t, programtest.Environ(), s.MountArgs("--endpoint=http://"+closedPort(t))...); o.Code != 1 {
		t.Fatalf("exit code %d: %s", o.Code, o.Stderr)
	}
	if !programtest.IsMounted(t, s.At) {
		t.Error("the stale mount was taken away although the new one failed")
	}
}

func TestTwoDaemonsDoNotShareACacheDirectory(t *testing.T) {
	t.Parallel()
	s := programtest.NewScene(t)
	programtest.StartForeground(t, programtest.Environ(), s.At, s.MountArgs()...)
	at := programtest.NewMountPoint(t)
	args := s.MountArgs()
	args[2] = at
	o := programtest.Run(t, programtest.Environ(), args...)
	if o.Code != 1 || strings.Count(o.Stderr, "\n") != 1 || !strings.Contains(o.Stderr, s.Cache) || !strings.Contains(o.Stderr, "--cache-dir") {
		t.Errorf("exit code %d: %s", o.Code, o.Stderr)
	}
	if programtest.IsMounted(t, at) {
		t.Error("the second is mounted")
	}
	s.Reads() // the first is unharmed
	programtest.MustRun(t, "umount", s.At)
}

func TestOccupiedMountPointIsRefused(t *testing.T) {
	t.Parallel()
	s := programtest.NewScene(t)
	programtest.StartForeground(t, programtest.Environ(), s.At, s.MountArgs()...)
	o := programtest.Run(t, programtest.Environ(), append(s.MountArgs(), "--cache-dir="+s.Cache+"2")...)
	if o.Code != 1 || !strings.Contains(o.Stderr, "is busy: oss://"+programtest.TestBucket+" is mounted there") || !strings.Contains(o.Stderr, "pailfs umount") {
		t.Errorf("exit code %d: %s", o.Code, o.Stderr)
	}
	s.Reads()
	programtest.MustRun(t, "umount", s.At)
}

func TestInterruptedStartLeavesNothing(t *testing.T) {
	t.Parallel()
	s := programtest.NewScene(t)
	l := silentListener(t)
	f := exec.Command(programtest.Binary, s.MountArgs("--endpoint=http://"+l.Addr().String())...)
	f.Env = programtest.Environ()
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
	if _, err := os.Stat(s.Cache); !os.IsNotExist(err) {
		t.Errorf("the cache directory is left: %v", err)
	}
	s.Clean()
}

func TestInterruptedDetachLeavesNothing(t *testing.T) {
	t.Parallel()
	s := programtest.NewScene(t)
	l := silentListener(t)
	parent := exec.Command(programtest.Binary, s.MountArgs("--detach", "--endpoint=http://"+l.Addr().String())...)
	parent.Env = programtest.Environ()
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
	s.Clean()
}

func TestDaemonKilledBeforeItIsReadyIsReported(t *testing.T) {
	t.Parallel()
	s := programtest.NewScene(t)
	l := silentListener(t)
	parent := exec.Command(programtest.Binary, s.MountArgs("--detach", "--endpoint=http://"+l.Addr().String())...)
	parent.Env = programtest.Environ()
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
	for _, pid := range programtest.DaemonsOf(t, s.At) {
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
	s.Clean()
}

func TestStatusWorksWhileTheStoreIsDown(t *testing.T) {
	t.Parallel()
	s := programtest.NewScene(t)
	programtest.StartForeground(t, programtest.Environ(), s.At, s.MountArgs("--region="+programtest.TestRegion, "--http=0")...)
	s.Reads()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	o := programtest.MustRun(t, "status", s.At)
	for _, want := range []string{
		"oss://" + programtest.TestBucket + " at " + s.At, "passthrough", "no-open", "cache", "memory", "object store", s.Endpoint,
		"region " + programtest.TestRegion, "credentials", "limiter", "metrics", "get",
	} {
		if !strings.Contains(o.Stdout, want) {
			t.Errorf("status does not say %q:\n%s", want, o.Stdout)
		}
	}
	if lines := strings.Count(o.Stdout, "\n"); lines > 45 {
		t.Errorf("status has %d lines, more than a screen", lines)
	}
	// From below the mount point too, and as JSON.
	o = programtest.MustRun(t, "status", "--json", filepath.Join(s.At, "dir"))
	var r wire.Status
	if err := json.Unmarshal([]byte(o.Stdout), &r); err != nil {
		t.Fatal(err)
	}
	if r.Source != "oss://"+programtest.TestBucket || r.MountPoint != s.At || r.PID != programtest.DaemonsOf(t, s.At)[0] || r.Store.Limiter.Limit == 0 || len(r.Store.Requests) == 0 {
		t.Errorf("status is %+v", r)
	}
	programtest.MustRun(t, "umount", s.At)
}

func TestStatusOfWhatIsNoMount(t *testing.T) {
	t.Parallel()
	dir := programtest.NewMountPoint(t)
	for path, want := range map[string]string{
		dir:                "nothing is mounted at",
		dir + "/missing":   "does not exist",
		"/proc":            "not of pailfs",
		"/proc/self/mem/x": "does not exist",
	} {
		for _, command := range []string{"status", "umount"} {
			if o := programtest.Run(t, programtest.Environ(), command, path); o.Code != 1 || !strings.Contains(o.Stderr, want) {
				t.Errorf("%s %s: exit code %d: %s", command, path, o.Code, o.Stderr)
			}
		}
	}
}

func TestUsersMountThroughFusermount(t *testing.T) {
	t.Parallel()
	s := programtest.NewScene(t)
	programtest.OpenUp(t, s.At)
	const user = 65534
	if err := os.Chown(s.At, user, user); err != nil {
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
	args := []string{"mount", "oss://" + programtest.TestBucket, s.At, "--endpoint=" + s.Endpoint, "--memory=64MiB", "--detach"}
	if o := programtest.RunAs(t, nobody(), programtest.Environ(), programtest.Binary, append(args, "--allow-other")...); o.Code != 1 || !strings.Contains(o.Stderr, "user_allow_other") {
		t.Errorf("--allow-other: exit code %d: %s", o.Code, o.Stderr)
	}
	if o := programtest.RunAs(t, nobody(), programtest.Environ(), programtest.Binary, args...); o.Code != 0 {
		t.Fatalf("mount: exit code %d: %s", o.Code, o.Stderr)
	}
	if o := programtest.RunAs(t, nobody(), programtest.Environ(), "cat", filepath.Join(s.At, "dir", "file")); o.Stdout != string(programtest.Content) {
		t.Errorf("read %d bytes, %s", len(o.Stdout), o.Stderr)
	}
	if o := programtest.RunAs(t, nobody(), programtest.Environ(), programtest.Binary, "status", s.At); o.Code != 0 {
		t.Errorf("status: exit code %d: %s", o.Code, o.Stderr)
	}
	if o := programtest.RunAs(t, nobody(), programtest.Environ(), programtest.Binary, "umount", s.At); o.Code != 0 {
		t.Errorf("umount: exit code %d: %s", o.Code, o.Stderr)
	}
	s.Clean()

	// The user clears a dead mount of their own, too.
	if o := programtest.RunAs(t, nobody(), programtest.Environ(), programtest.Binary, args...); o.Code != 0 {
		t.Fatalf("mount: exit code %d: %s", o.Code, o.Stderr)
	}
	programtest.KillDaemons(t, s.At)
	if o := programtest.RunAs(t, nobody(), programtest.Environ(), programtest.Binary, args...); o.Code != 0 || !strings.Contains(o.Stderr, "is replaced") {
		t.Fatalf("mount over a dead one: exit code %d: %s", o.Code, o.Stderr)
	}
	if o := programtest.RunAs(t, nobody(), programtest.Environ(), programtest.Binary, "umount", s.At); o.Code != 0 {
		t.Errorf("umount: exit code %d: %s", o.Code, o.Stderr)
	}
	s.Clean()
}

// TestCapabilitiesOfTheServiceSuffice: those that the unit in deploy/systemd
// leaves.
func TestCapabilitiesOfTheServiceSuffice(t *testing.T) {
	t.Parallel()
	s := programtest.NewScene(t)
	args := append([]string{programtest.Binary}, s.MountArgs("--detach", "--allow-other")...)
	if o := programtest.RunAs(t, nil, programtest.Environ("PAILFS_TEST_ROLE=as the service"), "/proc/self/exe", args...); o.Code != 0 {
		t.Fatalf("exit code %d: %s", o.Code, o.Stderr)
	}
	s.Reads()
	with := programtest.StatusOf(t, s.At).FileSystem
	programtest.MustRun(t, "umount", s.At)

	programtest.MustRun(t, s.MountArgs("--detach", "--allow-other")...)
	without := programtest.StatusOf(t, s.At).FileSystem
	if with.Passthrough != without.Passthrough || with.ReadAheadKiB != without.ReadAheadKiB {
		t.Errorf("the service has %+v and readahead %d, root %+v and %d", with.Passthrough, with.ReadAheadKiB, without.Passthrough, without.ReadAheadKiB)
	}
	programtest.MustRun(t, "umount", s.At)
	s.Clean()
}

func TestOtherUsersMaySeeStatusButNotUnmount(t *testing.T) {
	t.Parallel()
	s := programtest.NewScene(t)
	programtest.StartForeground(t, programtest.Environ(), s.At, s.MountArgs("--allow-other")...)
	nobody := &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	programtest.OpenUp(t, s.At)
	if o := programtest.RunAs(t, nobody, programtest.Environ(), programtest.Binary, "status", s.At); o.Code != 0 {
		t.Errorf("status: exit code %d: %s", o.Code, o.Stderr)
	}
	for _, how := range []string{"--lazy", "--force"} {
		o := programtest.RunAs(t, nobody, programtest.Environ(), programtest.Binary, "umount", how, s.At)
		if o.Code != 1 || !strings.Contains(o.Stderr, "not permitted") {
			t.Errorf("umount %s: exit code %d: %s", how, o.Code, o.Stderr)
		}
	}
	s.Reads()
	programtest.MustRun(t, "umount", s.At)
}

func TestOwnerGroupAndModesAreThoseAskedFor(t *testing.T) {
	t.Parallel()
	s := programtest.NewScene(t)
	programtest.StartForeground(t, programtest.Environ(), s.At, s.MountArgs("--uid=1234", "--gid=567", "--umask=027")...)
	for path, mode := range map[string]os.FileMode{"": os.ModeDir | 0o750, "dir": os.ModeDir | 0o750, "dir/file": 0o640} {
		info, err := os.Stat(filepath.Join(s.At, path))
		if err != nil {
			t.Fatal(err)
		}
		st, ok := info.Sys().(*syscall.Stat_t)
		if !ok || info.Mode() != mode || st.Uid != 1234 || st.Gid != 567 {
			t.Errorf("%q has mode %s and owner %d:%d", path, info.Mode(), st.Uid, st.Gid)
		}
	}
	programtest.MustRun(t, "umount", s.At)
}

func TestNoexecForbidsPrograms(t *testing.T) {
	t.Parallel()
	s := programtest.NewScene(t)
	s.Put(t, "script", []byte("#!/bin/sh\nexit 7\n"))
	programtest.StartForeground(t, programtest.Environ(), s.At, s.MountArgs("--noexec", "--umask=0")...)
	script := filepath.Join(s.At, "script")
	// The kernel learns the name before this process forks: while it does, its
	// scheduler stands still, and the emulator that lives in it with it.
	if _, err := os.Stat(script); err != nil {
		t.Fatal(err)
	}
	err := exec.Command(script).Run()
	if !os.IsPermission(err) {
		t.Errorf("running a program: %v", err)
	}
	programtest.MustRun(t, "umount", s.At)
}

func TestConfigurationPrecedenceReachesTheMount(t *testing.T) {
	t.Parallel()
	s := programtest.NewScene(t)
	s.Put(t, "sub/only", programtest.Content)
	file := filepath.Join(t.TempDir(), "pailfs.yaml")
	text := "endpoint: http://wrong.invalid\nuid: 1\ngid: 1\numask: \"077\"\nmemory: 64MiB\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	env := programtest.Environ("PAILFS_CONFIG="+file, "PAILFS_ENDPOINT="+s.Endpoint, "PAILFS_UID=2", "PAILFS_GID=2")
	programtest.StartForeground(t, env, s.At, "mount", "oss://"+programtest.TestBucket+"/sub/", s.At, "--uid=3")
	info, err := os.Stat(filepath.Join(s.At, "only"))
	if err != nil {
		t.Fatal(err)
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || st.Uid != 3 || st.Gid != 2 || info.Mode() != 0o600 {
		t.Errorf("owner %d:%d and mode %s; want 3 of the flag, 2 of the environment, 0600 of the file", st.Uid, st.Gid, info.Mode())
	}
	o := programtest.Run(t, env, "config", "--uid=3", "--json")
	var settings []settingInForce
	if err := json.Unmarshal([]byte(o.Stdout), &settings); err != nil {
		t.Fatal(err)
	}
	for _, s := range settings {
		want := map[string]string{"uid": "flag --uid", "gid": "env PAILFS_GID", "umask": "file " + file + ":4", "region": "default "}[s.Name]
		if got := string(s.Layer) + " " + s.Where; want != "" && got != want {
			t.Errorf("%s comes from %q, want %q", s.Name, got, want)
		}
	}
	programtest.MustRun(t, "umount", s.At)
}

func TestConfigYAMLIsAConfigurationFileThatSaysTheSame(t *testing.T) {
	first := programtest.Run(t, programtest.Environ(), "config", "--yaml", "--umask=007", "--cache-dir=/ssd/x: y", "--memory=1.5GiB", "--read-only")
	file := filepath.Join(t.TempDir(), "pailfs.yaml")
	if err := os.WriteFile(file, []byte(first.Stdout), 0o600); err != nil {
		t.Fatal(err)
	}
	second := programtest.MustRun(t, "config", "--yaml", "--config="+file)
	if first.Stdout != second.Stdout {
		t.Errorf("first:\n%ssecond:\n%s", first.Stdout, second.Stdout)
	}
}

func TestLogFileIsReopenedAndPrivate(t *testing.T) {
	t.Parallel()
	s := programtest.NewScene(t)
	path := filepath.Join(t.TempDir(), "pailfs.log")
	programtest.MustRun(t, s.MountArgs("--detach", "--log-file="+path, "--log-format=json")...)
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
	if err := unix.Kill(programtest.DaemonsOf(t, s.At)[0], unix.SIGHUP); err != nil {
		t.Fatal(err)
	}
	programtest.Eventually(t, "the log file is there again", func() bool {
		_, err := os.Stat(path)
		return err == nil
	})
	programtest.MustRun(t, "umount", s.At)
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
	s := programtest.NewScene(t)
	path := filepath.Join(t.TempDir(), "pailfs.log")
	programtest.MustRun(t, s.MountArgs("--detach", "--log-file="+path)...)
	// What the service manager's watchdog sends.
	if err := unix.Kill(programtest.DaemonsOf(t, s.At)[0], unix.SIGABRT); err != nil {
		t.Fatal(err)
	}
	programtest.Eventually(t, "the daemon has ended", func() bool { return len(programtest.DaemonsOf(t, s.At)) == 0 })
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), "SIGABRT: abort") || !strings.Contains(string(text), "goroutine ") {
		t.Errorf("the log file has no trace:\n%s", text)
	}
	if bytes.Contains(text, []byte(programtest.TestSecret)) {
		t.Error("the trace shows the secret")
	}
}

func TestDaemonPreparesItsProcess(t *testing.T) {
	t.Parallel()
	s := programtest.NewScene(t)
	programtest.MustRun(t, s.MountArgs("--detach")...)
	pid := programtest.DaemonsOf(t, s.At)[0]
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
	if capabilitySets(t, pid)[0]["CapEff"]&(1<<unix.CAP_SYS_RESOURCE) != 0 {
		if limit.Cur != machine.WantedFiles || score != "-500" {
			t.Errorf("open files %d, OOM score %s", limit.Cur, score)
		}
	} else if limit.Cur != limit.Max {
		t.Errorf("open files %d of %d", limit.Cur, limit.Max)
	}
	programtest.MustRun(t, "umount", s.At)
}
