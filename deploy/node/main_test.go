package node

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	fusefs "github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
)

// patience bounds every wait; nothing is asserted on time.
const patience = 2 * time.Minute

// TestMain lets the tests' binary stand for the programs that an agent calls.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "statfs" {
		if err := ServeStatfs(os.Args[2], os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// programs returns the command of the prober, and a program that prints what files in dir
// say for `status` and `warm`.
func programs(t *testing.T, dir string) (statfs []string, pailfs string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	pailfs = filepath.Join(dir, "pailfs")
	script := "#!/bin/sh\ncat " + dir + "/$1\n"
	if err := os.WriteFile(pailfs, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	return []string{self, "statfs"}, pailfs
}

// eventually waits until holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !holds(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not seen within %s: %s", patience, what)
		}
	}
}

// hangingMount is a FUSE mount whose statfs waits while it is told to.
type hangingMount struct {
	fusefs.Inode
	hang   chan struct{}
	server *fuse.Server
	at     string
}

var _ fusefs.NodeStatfser = (*hangingMount)(nil)

// Statfs implements [fusefs.NodeStatfser]. It does not heed interruptions: neither do daemons
// that hang.
func (m *hangingMount) Statfs(context.Context, *fuse.StatfsOut) syscall.Errno {
	m.hang <- struct{}{}
	<-m.hang
	return 0
}

// mountHanging mounts a file system that answers at once until hold is called.
func mountHanging(t *testing.T) *hangingMount {
	t.Helper()
	m := &hangingMount{hang: make(chan struct{}, 1), at: t.TempDir()}
	server, err := fusefs.Mount(m.at, m, &fusefs.Options{MountOptions: fuse.MountOptions{DirectMountStrict: true}})
	if err != nil {
		t.Fatalf("mount: %v", err)
	}
	m.server = server
	t.Cleanup(func() {
		m.letGo()
		if err := server.Unmount(); err != nil && mounted(t, m.at) {
			t.Errorf("unmount: %v", err)
		}
	})
	return m
}

// hold lets every statfs from now on wait.
func (m *hangingMount) hold() { m.hang <- struct{}{} }

// letGo answers what waits.
func (m *hangingMount) letGo() {
	select {
	case <-m.hang:
	default:
	}
}

// die ends the daemon and leaves its mount.
func (m *hangingMount) die(t *testing.T) {
	t.Helper()
	var st syscall.Stat_t
	if err := syscall.Stat(m.at, &st); err != nil {
		t.Fatal(err)
	}
	abort := fmt.Sprintf("/sys/fs/fuse/connections/%d/abort", st.Dev)
	f, err := os.OpenFile(abort, os.O_WRONLY, 0)
	if os.IsNotExist(err) {
		if err := syscall.Mount("fusectl", "/sys/fs/fuse/connections", "fusectl", 0, ""); err != nil {
			t.Fatal(err)
		}
		f, err = os.OpenFile(abort, os.O_WRONLY, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(f, "1"); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// mounted reports whether something is mounted at path.
func mounted(t *testing.T, path string) bool {
	t.Helper()
	table, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	return containsField(string(table), path)
}
