package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pailfs/pailfs/fs/mounttest"
)

// binary is the program under test, built by TestMain.
var binary string

// TestMain runs the tests in a mount namespace of their own: whatever a test
// mounts is gone with the test process, also when it is killed.
func TestMain(m *testing.M) {
	switch role := os.Getenv("PAILFS_TEST_ROLE"); role {
	case "":
	case userRole:
		os.Exit(actAsUser())
	default:
		becomeAndExec(role)
	}
	os.Exit(mounttest.Main(func() int { return buildAndRun(m) }))
}

// buildAndRun builds the program and runs the tests.
func buildAndRun(m *testing.M) int {
	dir, err := os.MkdirTemp("", "cmd-pailfs-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	// Temporary directories of tests lie on the disk of the machine, below one that
	// every user may enter.
	if err := os.Chmod(dir, 0o755); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	binary = filepath.Join(dir, "pailfs")
	args := []string{"build", "-o", binary}
	if raceEnabled {
		args = append(args, "-race")
	}
	build := exec.Command("go", append(args, ".")...)
	build.Stdout, build.Stderr = os.Stderr, os.Stderr
	if !raceEnabled {
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
	}
	if err := build.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "build pailfs:", err)
		return 1
	}
	return m.Run()
}

// becomeAndExec turns this process into the program under test in a place that
// lacks something. The arguments are the program and its own.
func becomeAndExec(role string) {
	runtime.LockOSThread()
	fail := func(what string, err error) {
		if err != nil {
			fmt.Fprintf(os.Stderr, "test role %s: %s: %v\n", role, what, err)
			os.Exit(99)
		}
	}
	switch role {
	case "without /dev/fuse":
		fail("unshare", unix.Unshare(unix.CLONE_NEWNS))
		fail("private", unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
		fail("hide /dev", unix.Mount("none", "/dev", "tmpfs", 0, ""))
		fail("make /dev/null", unix.Mknod("/dev/null", unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))))
	case "as the service":
		for c := range unix.CAP_LAST_CAP + 1 {
			if c != unix.CAP_SYS_ADMIN && c != unix.CAP_SYS_RESOURCE {
				fail("drop", unix.Prctl(unix.PR_CAPBSET_DROP, uintptr(c), 0, 0, 0))
			}
		}
		fail("no new privileges", unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
		unix.Umask(0o077)
	case "without CAP_SYS_ADMIN":
		fail("drop", unix.Prctl(unix.PR_CAPBSET_DROP, unix.CAP_SYS_ADMIN, 0, 0, 0))
	}
	environ := []string{}
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, "PAILFS_TEST_") {
			environ = append(environ, e)
		}
	}
	fail("exec", unix.Exec(os.Args[1], os.Args[1:], environ))
}
