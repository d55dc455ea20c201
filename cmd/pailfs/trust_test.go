package main

import (
	"os"
	"os/exec"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pailfs/pailfs/prefetch/control"
)

func TestEndpointHasOneSpellingForTheCache(t *testing.T) {
	for endpoint, want := range map[string]string{
		"oss-cn-hangzhou.aliyuncs.com":               "oss-cn-hangzhou.aliyuncs.com",
		"https://oss-cn-hangzhou.aliyuncs.com/":      "oss-cn-hangzhou.aliyuncs.com",
		"http://OSS-cn-Hangzhou.aliyuncs.com:80":     "oss-cn-hangzhou.aliyuncs.com",
		" https://oss-cn-hangzhou.aliyuncs.com.:443": "oss-cn-hangzhou.aliyuncs.com",
		"http://127.0.0.1:9000":                      "127.0.0.1:9000",
		"https://127.0.0.1:80":                       "127.0.0.1:80",
	} {
		if got := canonicalEndpoint(endpoint); got != want {
			t.Errorf("%q is %q, want %q", endpoint, got, want)
		}
	}
}

func TestRootOfAContainerIsNotTrusted(t *testing.T) {
	if !sameProcessNamespace(control.Caller{PID: uint32(os.Getpid())}) {
		t.Error("this process is not trusted")
	}
	if sameProcessNamespace(control.Caller{}) {
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
	if sameProcessNamespace(control.Caller{UID: 0, PID: uint32(cmd.Process.Pid)}) {
		t.Error("root of another PID namespace is trusted")
	}
}
