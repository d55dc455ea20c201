package mounttest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// marker is the environment variable with the mount namespace that a test program
// was started in. It tells the process in the private one, and the children of its
// tests, that they need no other.
const marker = "PAILFS_TEST_NAMESPACE"

// Main runs run, which runs the tests, and returns the code to exit with:
//
//	func TestMain(m *testing.M) { os.Exit(mounttest.Main(m.Run)) }
//
// Run is called in a process of its own, the same program with the same arguments,
// standard streams and environment, in a mount namespace of its own; the process
// that called Main first only waits, passes signals on and ends as that one does.
// What has to come before the tests belongs into run, or it is done twice.
//
// A process that fuzzes, and its workers, which speak over descriptors of their
// own, stay where they are.
func Main(run func() int) int {
	here, err := os.Readlink("/proc/self/ns/mnt")
	if err != nil {
		return refused(err)
	}
	if before := os.Getenv(marker); fuzzing(os.Args[1:]) || before != "" && before != here {
		return run()
	}
	return runInNamespace(here)
}

// fuzzing reports whether the arguments are those of a process that fuzzes.
func fuzzing(args []string) bool {
	for _, arg := range args {
		name, _, _ := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		if name == "test.fuzz" || name == "test.fuzzworker" {
			return true
		}
	}
	return false
}

func refused(err error) int {
	fmt.Fprintln(os.Stderr, "these tests mount for real and need root, in a container CAP_SYS_ADMIN as well:", err)
	return 1
}

// runInNamespace runs this program again in a new mount namespace and ends as it
// does.
func runInNamespace(here string) int {
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Args[0] = os.Args[0] // tests start themselves by it
	cmd.Env = append(os.Environ(), marker+"="+here)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	// Unshareflags, unlike Cloneflags, makes what is mounted there private, too, before the
	// program runs: nothing that it mounts is seen outside.
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS, Pdeathsig: unix.SIGKILL}
	runtime.LockOSThread() // Pdeathsig follows the thread
	defer runtime.UnlockOSThread()
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, unix.SIGINT, unix.SIGTERM, unix.SIGQUIT, unix.SIGHUP, unix.SIGUSR1, unix.SIGUSR2)
	if err := cmd.Start(); err != nil {
		return refused(err)
	}
	go func() {
		for s := range signals {
			_ = cmd.Process.Signal(s) // it may have ended
		}
	}()
	err := cmd.Wait()
	signal.Stop(signals)
	close(signals)
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		fmt.Fprintln(os.Stderr, "wait for the tests:", err)
		return 1
	}
	status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus)
	if !ok || !status.Signaled() {
		return cmd.ProcessState.ExitCode()
	}
	endBy(status.Signal())
	return 128 + int(status.Signal()) // as shells tell it
}

// endBy ends this process by a signal, so that who waits for it learns which it was. It
// returns for those upon which the runtime would tell what this process did.
func endBy(s syscall.Signal) {
	switch s {
	case unix.SIGKILL, unix.SIGTERM, unix.SIGINT, unix.SIGHUP:
		signal.Reset(s)
		_ = unix.Kill(os.Getpid(), s)
		select {}
	}
}
