package gpu

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
)

// Lease is the claim of one program of this host to GPUs. It ends with the
// program.
type Lease struct {
	// Chosen are the GPUs.
	Chosen []Chosen
	files  []*os.File
}

// LockDir is where the lock files of a host's GPUs lie: programs of all users must
// find them.
const LockDir = "/run/lock/pailfs-gpu"

// Acquire selects GPUs that no other lease holds and takes them. dir holds one
// lock file a GPU; it is made if it is not there.
func Acquire(dir string, h Host, r Request) (*Lease, error) {
	if err := os.Mkdir(dir, 0o777|os.ModeSticky); err == nil {
		// Any user may make the lock of a GPU; the umask would forbid it.
		if err := os.Chmod(dir, 0o777|os.ModeSticky); err != nil {
			return nil, err
		}
	} else if !errors.Is(err, os.ErrExist) {
		return nil, err
	}
	busy := make(map[string]bool)
	for {
		chosen, err := Select(h, r, func(uuid string) bool { return busy[uuid] })
		if err != nil {
			return nil, err
		}
		lease := &Lease{Chosen: chosen}
		lost, err := lease.lock(dir)
		if err == nil {
			return lease, nil
		}
		lease.Release()
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, err
		}
		busy[lost] = true
	}
}

// lock takes the lock of every device or says which one it did not get.
func (l *Lease) lock(dir string) (lost string, err error) {
	for _, c := range l.Chosen {
		f, err := openLock(filepath.Join(dir, c.ID()+".lock"))
		if err != nil {
			return c.ID(), err
		}
		l.files = append(l.files, f)
		if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
			return c.ID(), err
		}
	}
	return "", nil
}

// openLock opens a lock file, which anybody may have made: a lock needs no right
// to write, and fs.protected_regular refuses O_CREAT on another's file.
func openLock(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW, 0)
	if errors.Is(err, os.ErrNotExist) {
		f, err = os.OpenFile(path, os.O_RDONLY|os.O_CREATE|syscall.O_NOFOLLOW, 0o644)
	}
	return f, err
}

// Release gives the GPUs back.
func (l *Lease) Release() {
	for _, f := range l.files {
		_ = f.Close() // which unlocks it
	}
	l.files = nil
}
