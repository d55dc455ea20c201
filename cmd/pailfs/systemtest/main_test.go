package systemtest

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// program is the binary under test, built by TestMain.
var program string

// TestMain builds the program and runs the tests in a mount namespace of their
// own: whatever a test mounts is gone with the test process, also when it is
// killed.
func TestMain(m *testing.M) {
	if os.Getenv("PAILFS_TEST_ROLE") == readerRole {
		readerMain()
	}
	if os.Getenv("PAILFS_TEST_NAMESPACE") == "" {
		os.Exit(runInNamespace())
	}
	os.Exit(build(m))
}

// build builds the program and runs the tests.
func build(m *testing.M) int {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		fmt.Fprintln(os.Stderr, "these tests mount for real and need root:", err)
		return 1
	}
	dir, err := os.MkdirTemp("", "pailfs-system-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	program = filepath.Join(dir, "pailfs")
	args := []string{"build", "-o", program}
	env := append(os.Environ(), "CGO_ENABLED=0")
	if os.Getenv("PAILFS_SYSTEMTEST_RACE") != "" {
		args, env = append(args, "-race"), os.Environ()
	}
	cmd := exec.Command("go", append(args, "github.com/pailfs/pailfs/cmd/pailfs")...)
	cmd.Env, cmd.Stdout, cmd.Stderr = env, os.Stderr, os.Stderr
	if err := cmd.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "build pailfs:", err)
		return 1
	}
	return m.Run()
}

// runInNamespace runs this test program again in a new mount namespace.
func runInNamespace() int {
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), "PAILFS_TEST_NAMESPACE=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS, Pdeathsig: unix.SIGKILL}
	runtime.LockOSThread() // Pdeathsig follows the thread
	if err := cmd.Run(); err != nil {
		if cmd.ProcessState != nil {
			return cmd.ProcessState.ExitCode()
		}
		fmt.Fprintln(os.Stderr, "these tests mount for real and need root:", err)
		return 1
	}
	return 0
}

// rounds is how many rounds a test that depends on chance runs.
func rounds(t *testing.T, otherwise int) int {
	t.Helper()
	n, err := strconv.Atoi(os.Getenv("PAILFS_SYSTEMTEST_ROUNDS"))
	if err != nil || n <= 0 {
		return otherwise
	}
	return n
}

// newRandom returns the test's source of chance, whose seed is printed.
func newRandom(t *testing.T) *rand.Rand {
	t.Helper()
	seed, err := strconv.ParseUint(os.Getenv("PAILFS_SYSTEMTEST_SEED"), 10, 64)
	if err != nil {
		seed = rand.Uint64()
	}
	t.Logf("PAILFS_SYSTEMTEST_SEED=%d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}
