package rig

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pailfs/pailfs/bench/reader"
)

// mount is a FUSE program in the foreground and the directory that it serves.
type mount struct {
	process *process
	// at is the mount point.
	at string
}

// mountDirs makes the mount point and the cache of a driver.
func mountDirs(p Place) (at, cache string, err error) {
	at, cache = filepath.Join(p.Work, "mnt"), filepath.Join(p.Work, "cache")
	if err := errors.Join(os.MkdirAll(at, 0o755), os.MkdirAll(cache, 0o700)); err != nil {
		return "", "", fmt.Errorf("prepare mount: %w", err)
	}
	return at, cache, nil
}

// startMount starts a program that mounts at, and waits until it has.
func startMount(ctx context.Context, at string, cfg processConfig) (*mount, error) {
	outside, err := device(at)
	if err != nil {
		return nil, fmt.Errorf("prepare mount: %w", err)
	}
	m := &mount{at: at}
	if m.process, err = startProcess(cfg); err != nil {
		return nil, err
	}
	err = m.process.waitFor(ctx, "the mount", longest, func() bool {
		inside, err := device(at)
		return err == nil && inside != outside
	})
	if err != nil {
		return nil, joinStop(err, errors.Join(m.process.stop(5*time.Second), m.detach()))
	}
	return m, nil
}

func device(path string) (uint64, error) {
	var st unix.Stat_t
	err := unix.Stat(path, &st)
	return st.Dev, err
}

// aim points a job at the mount.
func (m *mount) aim(job *reader.Job) { job.Root = m.at }

// Root implements part of [Session].
func (m *mount) Root() string { return m.at }

func (m *mount) daemons() []int { return []int{m.process.pid()} }

// detach takes the mount away if it is still there.
func (m *mount) detach() error {
	err := unix.Unmount(m.at, unix.MNT_DETACH)
	if err != nil && !errors.Is(err, syscall.EINVAL) && !errors.Is(err, syscall.ENOENT) {
		return fmt.Errorf("detach %q: %w", m.at, err)
	}
	return nil
}

// ended waits for the end of a program whose mount was taken away.
func (m *mount) ended() error {
	select {
	case <-m.process.ended:
		if m.process.err != nil {
			return m.process.died()
		}
		return nil
	case <-time.After(longest):
		return errors.Join(fmt.Errorf("unmount %q: the daemon goes on", m.at), m.process.stop(10*time.Second))
	}
}
