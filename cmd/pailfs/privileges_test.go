package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pailfs/pailfs/cmd/internal/command"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/machine"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/programtest"
)

// capabilitySets returns the sets and no_new_privs of every thread of a process, by
// their names in /proc/PID/task/TID/status.
func capabilitySets(t *testing.T, pid int) []map[string]uint64 {
	t.Helper()
	paths, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	if err != nil || len(paths) == 0 {
		t.Fatalf("threads of the daemon: %v, %v", paths, err)
	}
	var threads []map[string]uint64
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // the thread has ended
		}
		sets := map[string]uint64{}
		for line := range strings.Lines(string(text)) {
			if name, value, _ := strings.Cut(line, ":"); strings.HasPrefix(name, "Cap") || name == "NoNewPrivs" {
				if sets[name], err = strconv.ParseUint(strings.TrimSpace(value), 16, 64); err != nil {
					t.Fatal(err)
				}
			}
		}
		threads = append(threads, sets)
	}
	return threads
}

// secretVolume returns the path of a file of keys as the kubelet mounts a Secret: a
// link into a directory that an update replaces, in one as /tmp is.
func secretVolume(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "..2026"), 0o755); err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf(`{"AccessKeyId": %q, "AccessKeySecret": %q}`, programtest.TestKeyID, programtest.TestSecret)
	if err := os.WriteFile(filepath.Join(dir, "..2026", "credentials"), []byte(text), 0o400); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o777|os.ModeSticky); err != nil {
		t.Fatal(err)
	}
	for link, to := range map[string]string{"..data": "..2026", "credentials": "..data/credentials"} {
		if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(dir, "credentials")
}

// TestADaemonThatDroppedItsPrivilegesDoesItsWork: whoever starts it, it keeps
// CAP_SYS_ADMIN alone, in all its threads, cannot get another one, and mounts, reads,
// passes through, writes, answers, drains and unmounts.
func TestADaemonThatDroppedItsPrivilegesDoesItsWork(t *testing.T) {
	const admin = 1 << unix.CAP_SYS_ADMIN
	for _, c := range []struct {
		role string
		// more may stay in the bounding set.
		more uint64
	}{{"", 0}, {"as the service", 1 << unix.CAP_SYS_RESOURCE}} {
		t.Run(c.role, func(t *testing.T) {
			t.Parallel()
			s := programtest.NewScene(t)
			large := bytes.Repeat([]byte("0123456789abcdef"), 1<<18)
			s.Put(t, "large", large)
			programtest.MustRun(t, s.MountArgs("--detach", "--allow-other")...)
			with := programtest.StatusOf(t, s.At).FileSystem
			programtest.MustRun(t, "umount", s.At)

			// Its environment has no keys: a file has, which root may read because it is its own.
			env := []string{"PATH=" + os.Getenv("PATH"), "PAILFS_DROP_PRIVILEGES=true"}
			mount := append([]string{programtest.Binary}, s.MountArgs("--detach", "--allow-other", "--credentials=file", "--credentials-file="+secretVolume(t))...)
			o := programtest.Outcome{}
			if c.role == "" {
				o = programtest.Run(t, env, mount[1:]...)
			} else {
				o = programtest.RunAs(t, nil, append(env, "PAILFS_TEST_ROLE="+c.role), "/proc/self/exe", mount...)
			}
			if o.Code != 0 {
				t.Fatalf("exit code %d: %s", o.Code, o.Stderr)
			}
			pid := programtest.DaemonsOf(t, s.At)[0]
			for _, sets := range capabilitySets(t, pid) {
				if sets["CapEff"] != admin || sets["CapPrm"] != admin || sets["CapInh"] != 0 || sets["CapAmb"] != 0 || sets["CapBnd"]&^c.more != admin || sets["NoNewPrivs"] != 1 {
					t.Errorf("a thread has %x", sets)
				}
			}
			var limit unix.Rlimit
			if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, nil, &limit); err != nil || limit.Cur != limit.Max {
				t.Errorf("open files %d of %d, %v", limit.Cur, limit.Max, err)
			}
			if own := capabilitySets(t, os.Getpid())[0]; own["CapEff"]&(1<<unix.CAP_SYS_RESOURCE) != 0 && limit.Max < machine.WantedFiles {
				t.Errorf("open files %d: the limit was not raised before", limit.Max)
			}

			s.Reads()
			programtest.MustRun(t, "warm", filepath.Join(s.At, "large"))
			if got, err := os.ReadFile(filepath.Join(s.At, "large")); err != nil || !bytes.Equal(got, large) {
				t.Errorf("large: %d bytes, %v", len(got), err)
			}
			is := programtest.StatusOf(t, s.At).FileSystem
			if is.Passthrough != with.Passthrough || is.ReadAheadKiB != with.ReadAheadKiB {
				t.Errorf("passthrough %+v, readahead %d; with all privileges %+v, %d", is.Passthrough, is.ReadAheadKiB, with.Passthrough, with.ReadAheadKiB)
			}
			if is.Passthrough.On && is.Opens.Passthrough == 0 {
				t.Error("nothing was passed through")
			}
			programtest.WriteFile(t, filepath.Join(s.At, "first"), "first")
			programtest.MustRun(t, "flush", s.At)
			s.Holds(t, "first", "first")
			if err := os.Rename(filepath.Join(s.At, "first"), filepath.Join(s.At, "moved")); err != nil {
				t.Error(err)
			}
			programtest.MustRun(t, "drain", s.At)
			programtest.WriteFile(t, filepath.Join(s.At, "last"), "last")
			_, release := programtest.Hold(t, s.At)
			if o := programtest.Run(t, env, "umount", s.At); o.Code != command.Failed || !strings.Contains(o.Stderr, "in use") {
				t.Errorf("umount of a mount in use: exit code %d: %s", o.Code, o.Stderr)
			}
			release()
			programtest.MustRun(t, "umount", s.At)
			s.Holds(t, "moved", "first")
			s.Holds(t, "last", "last")
			s.Clean()
		})
	}
}

// TestASignalEndsADaemonThatDroppedItsPrivileges: it uploads and unmounts by itself. It
// is the process that was started.
func TestASignalEndsADaemonThatDroppedItsPrivileges(t *testing.T) {
	t.Parallel()
	s := programtest.StartStore(t)
	f, at := programtest.WritableMount(t, s, filepath.Join(t.TempDir(), "cache"), "--drop-privileges")
	if sets := capabilitySets(t, f.Process.Pid)[0]; sets["CapEff"] != 1<<unix.CAP_SYS_ADMIN {
		t.Errorf("the process that was started has %x", sets)
	}
	programtest.WriteFile(t, filepath.Join(at, "checkpoint"), "weights")
	if err := f.Process.Signal(unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := f.Code(t); code != 0 || programtest.IsMounted(t, at) {
		t.Errorf("exit code %d", code)
	}
	s.Holds(t, "checkpoint", "weights")
}

func TestUsersHaveNoPrivilegesToDrop(t *testing.T) {
	t.Parallel()
	s := programtest.NewScene(t)
	o := programtest.RunAs(t, &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}, programtest.Environ(), programtest.Binary, s.MountArgs("--drop-privileges")...)
	if o.Code == 0 || !strings.Contains(o.Stderr, "--drop-privileges: only root has privileges to drop") {
		t.Errorf("exit code %d: %s", o.Code, o.Stderr)
	}
}
