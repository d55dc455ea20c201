package fs

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/pailfs/pailfs/fs/mounttest"
)

// patience bounds every wait of these tests; nothing is asserted on it.
const patience = 2 * time.Minute

// TestMain runs the tests in a mount namespace of their own, with the umask that a
// daemon has, and fails if a mount or a goroutine outlives them. The same binary is the program that reads mounts
// from outside: a page fault on our own mount would stop the garbage collector,
// and with it us.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == readerCommand {
		os.Exit(readerMain(os.Args[2:]))
	}
	os.Exit(mounttest.Main(func() int { return runTests(m) }))
}

func runTests(m *testing.M) int {
	syscall.Umask(0)
	code := m.Run()
	if code == 0 {
		if err := leaked(); err != nil {
			fmt.Fprintln(os.Stderr, "goroutines left:", err)
			code = 1
		}
		if left := ownMounts(); len(left) > 0 {
			fmt.Fprintln(os.Stderr, "mounts left:", left)
			code = 1
		}
	}
	return code
}

// leaked returns an error if goroutines do not end, for which a busy machine gives
// them time.
func leaked() (err error) {
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		if err = goleak.Find(); err == nil {
			return nil
		}
	}
	return err
}

// ownMounts lists the mounts below the test's temporary directories.
func ownMounts() []string {
	info, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return []string{err.Error()}
	}
	var found []string
	for line := range strings.Lines(string(info)) {
		if strings.Contains(line, tempPrefix()) {
			found = append(found, strings.TrimSpace(line))
		}
	}
	return found
}
