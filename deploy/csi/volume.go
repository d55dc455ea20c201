package csi

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// volume is the directory of a volume on this node, held by one call at a time. It lies on a tmpfs, so that what it
// holds ends with the node's uptime, and has mode 0700:
//
//	daemon.json   how the daemon is started ([daemon]); written before it, and only while there is none
//	credentials   the keys, mode 0600, replaced as a whole
//	log           the daemon's log
//	mount         where the volume is mounted if a pod declares it inline
//
// The lock is flock(2) on the directory. The commands that the driver runs inherit it: what a killed driver began ends
// before another call begins.
type volume struct {
	dir  string
	lock *os.File
}

// daemon is how a daemon is started.
type daemon struct {
	// Source is what is mounted, At where.
	Source string `json:"source"`
	At     string `json:"at"`
	// Asked is what the volume asks for: its attributes and options, in order. Calls are compared by it.
	Asked []string `json:"asked"`
	// Flags are the arguments of pailfs mount, without secrets: what is asked for and what the driver adds.
	Flags []string `json:"flags"`
	// CacheDir is the daemon's; "" if it has none.
	CacheDir string `json:"cache_dir,omitempty"`
	// Inline says that a pod declares the volume: it ends with the pod, and its cache with it.
	Inline bool `json:"inline,omitempty"`
}

// difference returns what e asks for and d does not, or the other way round; "" if they are for the same.
func (d daemon) difference(e daemon) string {
	for _, pair := range [][2]daemon{{e, d}, {d, e}} {
		for _, a := range pair[0].Asked {
			if !slices.Contains(pair[1].Asked, a) {
				return a
			}
		}
	}
	return ""
}

// errPending means that another call for the volume goes on.
var errPending = errors.New("another call for the volume goes on")

// pollEvery is how often a lock that another call holds is tried.
const pollEvery = 20 * time.Millisecond

// digest names something by what it is.
func digest(parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		fmt.Fprintf(h, "%d:%s", len(p), p)
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// openVolume takes hold of a volume's directory, and makes it if it is not there and create says so; else it returns
// [errNoVolume]. It waits until ctx ends for calls that hold it.
func openVolume(ctx context.Context, run, id string, create bool) (*volume, error) {
	v := &volume{dir: filepath.Join(run, digest(id))}
	for {
		done, err := v.tryLock(create)
		if done || err != nil {
			return v, err
		}
		select {
		case <-ctx.Done():
			return nil, errPending
		case <-time.After(pollEvery):
		}
	}
}

// tryLock reports whether it took hold.
func (v *volume) tryLock(create bool) (bool, error) {
	if create {
		if err := os.MkdirAll(v.dir, 0o700); err != nil {
			return false, fmt.Errorf("make the directory of the volume: %w", err)
		}
	}
	f, err := os.Open(v.dir)
	if create && errors.Is(err, os.ErrNotExist) {
		return false, nil // who held it removed it
	} else if errors.Is(err, os.ErrNotExist) {
		return false, errNoVolume
	} else if err != nil {
		return false, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = f.Close() // it was only opened
		if errors.Is(err, unix.EWOULDBLOCK) || errors.Is(err, unix.EINTR) {
			return false, nil
		}
		return false, fmt.Errorf("lock %s: %w", v.dir, err)
	}
	held, err1 := f.Stat()
	there, err2 := os.Stat(v.dir)
	if err1 != nil || err2 != nil || !os.SameFile(held, there) {
		_ = f.Close() // who held it removed it
		return false, nil
	}
	v.lock = f
	return true, nil
}

// close lets others go on.
func (v *volume) close() { _ = v.lock.Close() }

func (v *volume) path(name string) string { return filepath.Join(v.dir, name) }

// errNoVolume means that nothing is known of a volume on this node. No other thing that is missing, such as the program
// pailfs, is taken for it.
var errNoVolume = errors.New("the volume is not on this node")

// daemon returns how the daemon was started last, or [errNoVolume].
func (v *volume) daemon() (daemon, error) {
	var d daemon
	text, err := os.ReadFile(v.path("daemon.json"))
	if errors.Is(err, os.ErrNotExist) {
		return d, errNoVolume
	} else if err != nil {
		return d, err
	}
	if err := json.Unmarshal(text, &d); err != nil {
		return d, fmt.Errorf("read %s: %w", v.path("daemon.json"), err)
	}
	return d, nil
}

// note writes how the daemon is started, and the keys unless they are nil.
func (v *volume) note(d daemon, keys []byte) error {
	text, err := json.Marshal(d)
	if err != nil {
		return err
	}
	if err := v.noteKeys(keys); err != nil {
		return err
	}
	return v.write("daemon.json", text)
}

// noteKeys replaces the keys if they are others. The daemon takes them over by itself.
func (v *volume) noteKeys(keys []byte) error {
	if keys == nil {
		return nil
	}
	if before, err := os.ReadFile(v.path("credentials")); err == nil && string(before) == string(keys) {
		return nil
	}
	return v.write("credentials", keys)
}

// write replaces a file as a whole; only root reads it.
func (v *volume) write(name string, content []byte) error {
	next := v.path(name + ".next")
	if err := os.WriteFile(next, content, 0o600); err != nil {
		return err
	}
	return os.Rename(next, v.path(name))
}

// forget removes the keys and all else that the volume has here.
func (v *volume) forget() error {
	for _, name := range []string{"credentials", "credentials.next", "daemon.json.next", "log", "mount", "daemon.json"} {
		if err := os.Remove(v.path(name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	if err := os.Remove(v.dir); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}
