package main

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pailfs/pailfs/cmd/pailfs/internal/programtest"
)

// TestUmountNamesSockets binds sockets as multiprocessing's managers and listeners do: in a
// directory for temporary files, which is on the mount.
func TestUmountNamesSockets(t *testing.T) {
	t.Parallel()
	s := programtest.NewScene(t)
	programtest.StartForeground(t, programtest.Environ(), s.At, s.MountArgs()...)
	dir := filepath.Join(s.At, "pymp-0")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "listener-0")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	client, err := net.Dial("unix", path)
	if err != nil {
		t.Fatalf("nobody answers at the socket: %v", err)
	}
	server, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	busy := func(when string) {
		t.Helper()
		o := programtest.Run(t, programtest.Environ(), "umount", s.At)
		if o.Code != 1 || !strings.Contains(o.Stderr, fmt.Sprintf("(pid %d, bound socket %s)", os.Getpid(), path)) {
			t.Errorf("%s: exit code %d: %s", when, o.Code, o.Stderr)
		}
		s.Reads() // goes on
	}
	busy("it listens")
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	busy("one is connected to it") // what was accepted has the listener's path
	_, _ = client.Close(), server.Close()
	programtest.MustRun(t, "umount", s.At)
	s.Clean()
}
