package systemtest

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/pailfs/pailfs/cmd/pailfs/systemtest/torture"
	"github.com/pailfs/pailfs/fs/mounttest"
)

// program is the binary under test, built by TestMain.
var program string

// TestMain builds the program and runs the tests, in a mount namespace of their
// own.
func TestMain(m *testing.M) {
	if os.Getenv("PAILFS_TEST_ROLE") == readerRole {
		readerMain()
	}
	os.Exit(mounttest.Main(func() int { return build(m) }))
}

// build builds the program, unless there is one, and runs the tests.
func build(m *testing.M) int {
	if program = os.Getenv(torture.EnvProgram); program != "" {
		return m.Run()
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
