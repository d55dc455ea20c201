package fs

import (
	"bytes"
	"errors"
	"os"
	"runtime"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

type accessArgs struct {
	UID  int
	Path string
}

type accessResult struct{ Open, Stat int }

// access tries a path as another user.
func access(a accessArgs) (accessResult, error) {
	runtime.LockOSThread()
	if err := syscall.Setuid(a.UID); err != nil {
		return accessResult{}, err
	}
	var r accessResult
	var st unix.Stat_t
	r.Stat = errnoNumber(unix.Stat(a.Path, &st))
	fd, err := unix.Open(a.Path, unix.O_RDONLY, 0)
	r.Open = errnoNumber(err)
	if err == nil {
		_ = unix.Close(fd)
	}
	return r, nil
}

func errnoNumber(err error) int {
	errno, _ := errors.AsType[syscall.Errno](err)
	return int(errno)
}

// rawDirent is one entry as getdents64(2) gives it.
type rawDirent struct {
	Name string
	Ino  uint64
	Off  int64
	Type byte
}

// getdents reads the next entries of an open directory with one system call.
func getdents(fd int, buf []byte) ([]rawDirent, error) {
	n, err := unix.Getdents(fd, buf)
	if err != nil {
		return nil, err
	}
	var found []rawDirent
	for p := buf[:n]; len(p) > 0; {
		ino := *(*uint64)(unsafe.Pointer(&p[0]))
		off := *(*int64)(unsafe.Pointer(&p[8]))
		length := *(*uint16)(unsafe.Pointer(&p[16]))
		name := string(p[19:length])
		if i := strings.IndexByte(name, 0); i >= 0 {
			name = name[:i]
		}
		found = append(found, rawDirent{Name: name, Ino: ino, Off: off, Type: p[18]})
		p = p[length:]
	}
	return found, nil
}

// listRaw reads what is left of an open directory.
func listRaw(fd int, size int) ([]rawDirent, error) {
	buf := make([]byte, size)
	var found []rawDirent
	for {
		some, err := getdents(fd, buf)
		if err != nil || len(some) == 0 {
			return found, err
		}
		found = append(found, some...)
	}
}

// direntInodes returns the inode numbers that a directory lists.
func direntInodes(path string) (map[string]uint64, error) {
	d, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = d.Close() }() // only read
	entries, err := listRaw(int(d.Fd()), 32<<10)
	found := map[string]uint64{}
	for _, e := range entries {
		found[e.Name] = e.Ino
	}
	return found, err
}

// mapping reads through mappings whose descriptors are closed, while the file is
// opened again beside them.
func mapping(a differentialArgs) (differentialResult, error) {
	var r differentialResult
	for _, path := range a.Paths {
		want, err := os.ReadFile(a.Local + "/" + path)
		if err != nil {
			return r, err
		}
		f, err := os.Open(a.Mount + "/" + path)
		if err != nil {
			return r, err
		}
		m, err := unix.Mmap(int(f.Fd()), 0, len(want), unix.PROT_READ, unix.MAP_SHARED)
		if err != nil {
			return r, err
		}
		if err := f.Close(); err != nil {
			return r, err
		}
		again, err := os.ReadFile(a.Mount + "/" + path)
		if err != nil {
			return r, err
		}
		if !bytes.Equal(m, want) || !bytes.Equal(again, want) {
			return r, errDiffers
		}
		if err := unix.Munmap(m); err != nil {
			return r, err
		}
	}
	return r, nil
}
