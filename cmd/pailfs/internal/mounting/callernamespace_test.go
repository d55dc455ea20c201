package mounting

import (
	"os"
	"os/exec"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pailfs/pailfs/prefetch/control"
)

func TestRootOfAContainerIsNotTrusted(t *testing.T) {
	if !callerNamespace(control.Caller{PID: uint32(os.Getpid())}) {
		t.Error("this process is not trusted")
	}
	if callerNamespace(control.Caller{}) {
		t.Error("a caller without a process id is trusted")
	}
	cmd := exec.Command("sleep", "600")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWPID, Pdeathsig: unix.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill() // it does not end by itself
		_ = cmd.Wait()
	}()
	if callerNamespace(control.Caller{UID: 0, PID: uint32(cmd.Process.Pid)}) {
		t.Error("root of another PID namespace is trusted")
	}
}
