package mounttest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// Hung mounts a file system whose server takes every request and answers none, and returns where.
// Whoever touches it waits, out of the reach of signals, until the test ends: a test lets other
// processes do that. Kind is the file system's type.
func Hung(t *testing.T, kind, source string) (at string) {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	at = filepath.Join(dir, "hung")
	if err := os.Mkdir(at, 0o755); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	options := fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other", fd)
	if err := unix.Mount(source, at, kind, unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
		_ = unix.Close(fd)
		t.Fatal(err)
	}
	device := os.NewFile(uintptr(fd), "/dev/fuse") // it can be waited for since it is mounted
	served := make(chan error, 1)
	go func() { served <- swallow(device) }()
	t.Cleanup(func() {
		// Without its device the connection is aborted, and who waits gets an error.
		err := errors.Join(device.Close(), <-served, unix.Unmount(at, unix.MNT_DETACH))
		if err != nil {
			t.Errorf("end the hung mount: %v", err)
		}
	})
	return at
}

// swallow answers the first request, with which the kernel says hello, and no other.
func swallow(device *os.File) error {
	const (
		opInit          = 26
		protocol, minor = 7, 31
		header          = 16
	)
	request := make([]byte, 1<<20)
	for {
		n, err := device.Read(request)
		switch {
		case errors.Is(err, unix.ENOENT), errors.Is(err, unix.EINTR):
			continue // it was taken back
		case errors.Is(err, unix.ENODEV), errors.Is(err, unix.ECONNABORTED), errors.Is(err, os.ErrClosed):
			return nil
		case err != nil:
			return err
		}
		if n < header || binary.NativeEndian.Uint32(request[4:]) != opInit {
			continue
		}
		answer := make([]byte, header+64)
		binary.NativeEndian.PutUint32(answer, uint32(len(answer)))
		copy(answer[8:header], request[8:header]) // which request it answers
		binary.NativeEndian.PutUint32(answer[header:], protocol)
		binary.NativeEndian.PutUint32(answer[header+4:], minor)
		binary.NativeEndian.PutUint32(answer[header+20:], 1<<16) // the largest write
		if _, err := device.Write(answer); err != nil {
			return err
		}
	}
}
