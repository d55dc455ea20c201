package machine

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// neededCapabilities are those that a mount cannot do without: mounting, unmounting
// and giving the kernel a file to read from by itself ask for CAP_SYS_ADMIN.
var neededCapabilities = []int{unix.CAP_SYS_ADMIN}

// DropPrivileges takes from this process, and from all that it starts, every
// capability but those that are needed, and the way to get them back. What a
// thread drops is its own, so the program begins anew in its place, with the same
// process id, when the one thread that begins it has dropped them. It returns when
// there is nothing left to drop.
func DropPrivileges() error {
	if os.Geteuid() != 0 {
		return errors.New("only root has privileges to drop: leave it out")
	}
	switch dropped, err := privilegesDropped(); {
	case err != nil:
		return err
	case dropped:
		return nil
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program to begin it anew: %w", err)
	}
	// What needs CAP_SYS_RESOURCE comes before; both outlast the exec. Who begins
	// anew says what could not be done.
	silent := slog.New(slog.DiscardHandler)
	raiseFileLimit(silent)
	lowerOOMScore(silent)
	runtime.LockOSThread() // what follows is this thread's
	if err := dropOfThread(); err != nil {
		return err
	}
	if err := unix.Exec(self, os.Args, os.Environ()); err != nil {
		return fmt.Errorf("begin %s anew: %w", self, err)
	}
	return nil
}

// privilegesDropped tells whether this process has needed capabilities alone and
// cannot get others. A thread is as good as any: they are all as the first was.
func privilegesDropped() (bool, error) {
	var sets [2]unix.CapUserData
	if err := unix.Capget(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &sets[0]); err != nil {
		return false, fmt.Errorf("read own capabilities: %w", err)
	}
	barred, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0)
	if err != nil {
		return false, fmt.Errorf("read no_new_privs: %w", err)
	}
	dropped := barred == 1
	for i, need := range neededSets() {
		has := sets[i].Permitted | sets[i].Effective | sets[i].Inheritable
		dropped = dropped && has&^need == 0
	}
	return dropped, nil
}

// neededSets returns the needed capabilities as the kernel numbers them, 32 a word.
func neededSets() (sets [2]uint32) {
	for _, c := range neededCapabilities {
		sets[c/32] |= 1 << (c % 32)
	}
	return sets
}

// dropOfThread drops what the calling thread does not need. Where it may not shrink
// its bounding set, as in a service that has no CAP_SETPCAP, no_new_privs keeps
// what it starts from getting more out of it.
func dropOfThread() error {
	need := neededSets()
	for c := 0; ; c++ {
		in, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, uintptr(c), 0, 0, 0)
		if err != nil {
			break // there are no more
		}
		if in == 0 || need[c/32]&(1<<(c%32)) != 0 {
			continue
		}
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, uintptr(c), 0, 0, 0); err != nil && !errors.Is(err, unix.EPERM) {
			return fmt.Errorf("drop capability %d of the bounding set: %w", c, err)
		}
	}
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return fmt.Errorf("clear ambient capabilities: %w", err)
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("set no_new_privs: %w", err)
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var sets [2]unix.CapUserData
	if err := unix.Capget(&header, &sets[0]); err != nil {
		return fmt.Errorf("read own capabilities: %w", err)
	}
	for i := range sets {
		sets[i].Permitted &= need[i]
		sets[i].Effective, sets[i].Inheritable = sets[i].Permitted, 0
	}
	if err := unix.Capset(&header, &sets[0]); err != nil {
		return fmt.Errorf("drop capabilities: %w", err)
	}
	return nil
}
