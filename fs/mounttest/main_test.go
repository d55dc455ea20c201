package mounttest

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// roleEnv lets this program be a test program that does one thing.
const roleEnv = "PAILFS_MOUNTTEST_ROLE"

func TestMain(m *testing.M) {
	os.Exit(Main(func() int {
		if role := os.Getenv(roleEnv); role != "" {
			return play(role)
		}
		return m.Run()
	}))
}

// play does what a role says, where Main has put it.
func play(role string) int {
	switch role {
	case "exit":
		return 7
	case "echo":
		input, err := io.ReadAll(os.Stdin)
		fmt.Fprintf(os.Stdout, "%q %q %v", os.Args[1:], input, err)
		fmt.Fprint(os.Stderr, "to stderr")
		return 0
	case "terminated":
		_ = unix.Kill(os.Getpid(), unix.SIGTERM)
		select {}
	case "killed":
		_ = unix.Kill(os.Getpid(), unix.SIGKILL)
		select {}
	case "signal":
		got := make(chan os.Signal, 1)
		signal.Notify(got, unix.SIGUSR1)
		fmt.Fprintln(os.Stdout, "waiting")
		fmt.Fprintln(os.Stdout, <-got)
		return 3
	case "mount":
		if err := unix.Mount("none", os.Args[1], "tmpfs", 0, ""); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		fmt.Fprintln(os.Stdout, "mounted")
		_, _ = io.Copy(io.Discard, os.Stdin) // it is killed
		return 0
	case "again":
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), roleEnv+"=where")
		out, err := cmd.CombinedOutput()
		fmt.Fprintf(os.Stdout, "%s %s %v", where(), out, err)
		return 0
	case "where":
		fmt.Fprint(os.Stdout, where())
		return 0
	}
	return 1
}

func where() string {
	ns, err := os.Readlink("/proc/self/ns/mnt")
	if err != nil {
		return err.Error()
	}
	return ns
}

// program is this program in a role, as somebody starts it who has no namespace yet.
func program(t *testing.T, role string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", args...)
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, marker+"=") {
			cmd.Env = append(cmd.Env, e)
		}
	}
	cmd.Env = append(cmd.Env, roleEnv+"="+role)
	return cmd
}

func TestCodesAndSignalsComeThrough(t *testing.T) {
	for role, want := range map[string]string{"exit": "exit status 7", "terminated": "signal: terminated", "killed": "signal: killed"} {
		if err := program(t, role).Run(); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", role, err, want)
		}
	}
}

func TestStreamsAndArgumentsComeThrough(t *testing.T) {
	cmd := program(t, "echo", "-a", "b c")
	var said Output
	cmd.Stdin, cmd.Stderr = strings.NewReader("input"), &said
	out, err := cmd.Output()
	if want := `["-a" "b c"] "input" <nil>`; string(out) != want || err != nil || said.String() != "to stderr" {
		t.Errorf("%s, %v, %q, want %s", out, err, said.String(), want)
	}
}

func TestSignalsArePassedOn(t *testing.T) {
	cmd := program(t, "signal")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for _, want := range []string{"waiting", "user defined signal 1"} {
		if !lines.Scan() || lines.Text() != want {
			t.Fatalf("%q, want %q", lines.Text(), want)
		}
		if want == "waiting" {
			if err := cmd.Process.Signal(unix.SIGUSR1); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := cmd.Wait(); err == nil || err.Error() != "exit status 3" {
		t.Error(err)
	}
}

// The program that was started is killed: the tests end with it, nobody sees what they
// have mounted, and it is gone.
func TestAKilledProgramLeavesNoMount(t *testing.T) {
	dir := t.TempDir()
	cmd := program(t, "mount", dir)
	hold, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer hold.Close()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	said := bufio.NewReader(out)
	if line, err := said.ReadString('\n'); line != "mounted\n" {
		t.Fatalf("%q, %v", line, err)
	}
	var here, above unix.Stat_t
	if err := unix.Stat(dir, &here); err != nil {
		t.Fatal(err)
	}
	if err := unix.Stat(dir+"/..", &above); err != nil {
		t.Fatal(err)
	}
	if here.Dev != above.Dev {
		t.Error("what the program has mounted is seen outside")
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	// The tests have the other end as long as they live.
	if _, err := io.Copy(io.Discard, said); err != nil {
		t.Error(err)
	}
	err = cmd.Wait()
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != unix.SIGKILL {
		t.Error(err)
	}
}

// What tests start of themselves is in their namespace, and asks for no other.
func TestChildrenOfTestsShareTheirNamespace(t *testing.T) {
	out, err := program(t, "again").Output()
	if err != nil {
		t.Fatal(err)
	}
	both := strings.Fields(string(out))
	if len(both) != 3 || both[0] != both[1] || both[0] == where() {
		t.Errorf("%s; these tests are in %s", out, where())
	}
}

func TestFuzzingStaysWhereItIs(t *testing.T) {
	for args, want := range map[string]bool{
		"-test.run=^$ -test.fuzz=^FuzzX$ -test.fuzztime=1s": true, "--test.fuzzworker": true, "-test.fuzz FuzzX": true,
		"-test.v -test.fuzztime=1s": false, "-test.run=fuzz": false, "": false,
	} {
		if got := fuzzing(strings.Fields(args)); got != want {
			t.Errorf("%q: %t", args, got)
		}
	}
}

func TestOutputTakesWritesOfMany(t *testing.T) {
	var o Output
	var writers sync.WaitGroup
	for range 8 {
		writers.Go(func() {
			for range 100 {
				fmt.Fprintln(&o, "line")
				_ = o.String()
			}
		})
	}
	writers.Wait()
	if n := strings.Count(o.String(), "line\n"); n != 800 {
		t.Errorf("%d lines, want 800", n)
	}
}
