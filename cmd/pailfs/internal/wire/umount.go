package wire

import (
	"time"
)

// UmountParams are the parameters of the control method umount.
type UmountParams struct {
	// Lazy and Force say how, as the flags do.
	Lazy  bool `json:"lazy,omitempty"`
	Force bool `json:"force,omitempty"`
	// Result asks how the last attempt ended and begins none.
	Result bool `json:"result,omitempty"`
}

// UmountAnswer is the result of the control method umount. The attempt begins
// after it, for its caller's own directory keeps the mount in use.
type UmountAnswer struct {
	// MountPoint is where the daemon mounted. A bind mount of it has another path.
	MountPoint string `json:"mountpoint"`
	// PID is the daemon's process, in its own namespace, and StartTicks when it
	// began, as /proc/PID/stat says: a caller that finds another process there is
	// in another namespace.
	PID        int    `json:"pid"`
	StartTicks uint64 `json:"start_ticks"`
	// CacheDir is where the daemon leaves word of how it ended; "" if the mount cannot
	// be written.
	CacheDir string `json:"cache_dir,omitempty"`
	// Last is how the last attempt ended, absent if there was none.
	Last *UmountState `json:"last,omitempty"`
}

// UmountState is how an attempt to unmount ended, if it failed.
type UmountState struct {
	At    time.Time `json:"at"`
	Busy  bool      `json:"busy"`
	Error string    `json:"error,omitempty"`
	// Users are the processes that the daemon sees using the mount.
	Users []string `json:"users,omitempty"`
}
