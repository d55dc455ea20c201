package writeback

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// usageAge is how old a measurement of the staged bytes may be.
const usageAge = 200 * time.Millisecond

// room waits until staged files may grow. After Config.FullWait it gives up with
// ENOSPC; nothing that was accepted is touched.
func (s *Space) room(ctx context.Context) error {
	if s.cfg.StagingSize == 0 {
		return nil
	}
	deadline := time.Now().Add(s.cfg.FullWait)
	for {
		used, err := s.usage()
		if err != nil || used < s.cfg.StagingSize {
			return err
		}
		if !time.Now().Before(deadline) {
			return syscall.ENOSPC
		}
		wake(s.publishNow)
		wake(s.commitNow)
		wake(s.settleNow)
		sleep(ctx, usageAge)
		if ctx.Err() != nil {
			return syscall.EINTR
		}
	}
}

// usage returns how many bytes the staged files occupy, by a measurement that is not
// old.
func (s *Space) usage() (int64, error) {
	s.used.Lock()
	defer s.used.Unlock()
	if time.Since(s.used.at) < usageAge {
		return s.used.bytes, nil
	}
	s.mu.Lock()
	var ids []fileID
	for id, f := range s.mu.Files {
		if f.Staged {
			ids = append(ids, id)
		}
	}
	s.mu.Unlock()
	total := int64(0)
	for _, id := range ids {
		var st syscall.Stat_t
		err := syscall.Stat(s.path(id), &st)
		if err != nil && !errors.Is(err, syscall.ENOENT) {
			return 0, err
		}
		if err == nil {
			total += st.Blocks * 512
		}
	}
	s.used.bytes, s.used.at = total, time.Now()
	return total, nil
}

// Usage returns how many bytes staged files occupy and how many they may, 0 for no
// limit.
func (s *Space) Usage() (used, limit int64, err error) {
	used, err = s.usage()
	return used, s.cfg.StagingSize, err
}

// Room returns how many bytes files that are written here may occupy, and how many of
// them are free now, for statfs.
func (s *Space) Room() (size, free int64, err error) {
	var st unix.Statfs_t
	if err := unix.Statfs(s.cfg.Dir, &st); err != nil {
		return 0, 0, fmt.Errorf("ask for the room of %q: %w", s.cfg.Dir, err)
	}
	size, free = int64(st.Blocks)*st.Bsize, int64(st.Bavail)*st.Bsize
	if s.cfg.StagingSize == 0 {
		return size, free, nil
	}
	used, err := s.usage()
	return s.cfg.StagingSize, max(min(free, s.cfg.StagingSize-used), 0), err
}
