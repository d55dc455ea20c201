package programtest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pailfs/pailfs/cmd/pailfs/internal/ask"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/child"
	"github.com/pailfs/pailfs/fs/mounttest"
)

// Binary is the program under test, built by [Main].
var Binary string

// roleVariable names what a test program is to be instead of running tests.
const roleVariable = "PAILFS_TEST_ROLE"

// Main runs the tests of a package in a mount namespace of their own: whatever a test mounts is
// gone with the test process, also when it is killed. A process that is started with
// PAILFS_TEST_ROLE takes the role that it names: one of roles, or the program in a place that lacks
// something.
func Main(m *testing.M, roles map[string]func() int) {
	if code, served := child.Serve(os.Args, ask.Verbs()); served {
		os.Exit(code)
	}
	role := os.Getenv(roleVariable)
	if act := roles[role]; act != nil {
		os.Exit(act())
	}
	if role != "" {
		becomeAndExec(role)
	}
	os.Exit(mounttest.Main(func() int { return buildAndRun(m) }))
}

// programVariable names the program under test, if it has been built: the tests of the whole
// have the same.
const programVariable = "PAILFS_SYSTEMTEST_PROGRAM"

// buildAndRun builds the program, unless there is one, and runs the tests.
func buildAndRun(m *testing.M) int {
	if Binary = os.Getenv(programVariable); Binary != "" {
		return m.Run()
	}
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
	Binary = filepath.Join(dir, "pailfs")
	args := []string{"build", "-o", Binary}
	if raceEnabled {
		args = append(args, "-race")
	}
	build := exec.Command("go", append(args, "github.com/pailfs/pailfs/cmd/pailfs")...)
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
	case "without /proc":
		fail("unshare", unix.Unshare(unix.CLONE_NEWNS))
		fail("private", unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
		fail("hide /proc", unix.Mount("none", "/proc", "tmpfs", 0, ""))
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
