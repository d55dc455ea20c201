package writeback

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/pailfs/pailfs/fs/writeback/internal/order"
)

// usageAge is how old a measurement of the staged bytes may be.
const usageAge = 200 * time.Millisecond

const (
	// spareRoom is how much of the disk is kept free for what is written next, at most
	// a spareShare of it: the cache has to give it.
	spareRoom  = 512 << 20
	spareShare = 50
	// roomEvery is how often that is looked at while files are open for writing: a disk
	// that takes 5 GB/s does not fill the spare room in that time.
	roomEvery = 50 * time.Millisecond
)

// room waits until staged files may grow. After Config.FullWait it gives up with
// ENOSPC; nothing that was accepted is touched. Of a disk that is nearly full the
// cache has to give: what was written comes before what can be fetched again.
func (s *Space) room(ctx context.Context) error {
	if err := s.spare(); err != nil {
		return err
	}
	if err := s.admit(ctx); err != nil {
		return err
	}
	if s.cfg.StagingSize == 0 {
		return nil
	}
	deadline := time.Now().Add(s.cfg.FullWait)
	for {
		used, err := s.usage()
		if err != nil || used < s.cfg.StagingSize {
			return err
		}
		if err := s.awaitRoom(ctx, deadline); err != nil {
			return err
		}
	}
}

// awaitRoom waits for a moment in which publication may make room, and yields to nobody.
func (s *Space) awaitRoom(ctx context.Context, deadline time.Time) error {
	if !time.Now().Before(deadline) {
		return syscall.ENOSPC
	}
	s.pacing.short.Add(1)
	defer s.pacing.short.Add(-1)
	wake(s.publishNow)
	wake(s.commitNow)
	wake(s.settleNow)
	sleep(ctx, usageAge)
	if ctx.Err() != nil {
		return syscall.EINTR
	}
	return nil
}

// spare lets the cache give room if the disk is nearly full. It looks from time to
// time.
func (s *Space) spare() error { return s.spareAfter(usageAge) }

// spareAfter is spare that looks if the last look is as old as age.
func (s *Space) spareAfter(age time.Duration) error {
	s.spared.Lock()
	defer s.spared.Unlock()
	if time.Since(s.spared.at) < age {
		return nil
	}
	s.spared.at = time.Now()
	size, free, err := s.disk.room(s.cfg.Dir)
	if err != nil {
		return err
	}
	if want := min(spareRoom, size/spareShare); free < want {
		s.cache.MakeRoom(want - free)
	}
	return nil
}

// beginWriting counts one more handle for writing.
func (s *Space) beginWriting() {
	if s.writers.Add(1) == 1 {
		wake(s.roomNow)
	}
}

// roomKeeper keeps room free as long as anybody has a file open for writing: what the
// kernel writes past us asks for none, and would meet a full disk that the cache
// could have given room on.
func (s *Space) roomKeeper(ctx context.Context) {
	for {
		if s.writers.Load() == 0 {
			select {
			case <-ctx.Done():
				return
			case <-s.roomNow:
			}
		}
		// The disk that cannot be looked at tells the next writer so.
		_ = s.spareAfter(roomEvery)
		sleep(ctx, roomEvery)
		if ctx.Err() != nil {
			return
		}
	}
}

// withRoom carries out a change of a staged file that needs up to bytes of disk. As
// long as the disk has no room for it the cache gives some, and then publication has
// Config.FullWait to let go of what is published.
func (s *Space) withRoom(ctx context.Context, bytes int64, do func() error) error {
	deadline := time.Now().Add(s.cfg.FullWait)
	for {
		err := do()
		if !errors.Is(err, syscall.ENOSPC) {
			return err
		}
		if s.cache.MakeRoom(max(bytes, 1<<20)) > 0 && time.Now().Before(deadline) {
			continue
		}
		if err := s.awaitRoom(ctx, deadline); err != nil {
			return err
		}
	}
}

// usage returns how many bytes the staged files occupy, by a measurement that is not
// old.
func (s *Space) usage() (int64, error) {
	return s.used.Bytes(usageAge, s.countWriting)
}

// occupied returns how many bytes a staged file occupies, 0 if it is not there.
func (s *Space) occupied(id order.FileID) (int64, error) {
	var st syscall.Stat_t
	err := syscall.Stat(s.path(id), &st)
	switch {
	case errors.Is(err, syscall.ENOENT):
		return 0, nil
	case err != nil:
		return 0, fmt.Errorf("measure staged file: %w", err)
	}
	return st.Blocks * 512, nil
}

// countWriting has the files measured that are open for writing.
func (s *Space) countWriting() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id := range s.mu.writing {
		s.count(id)
	}
}

// count has a file measured that may occupy more or less than before, or none that is staged.
// s.mu is held.
func (s *Space) count(id order.FileID) {
	if f := s.mu.Files[id]; f != nil && f.Staged {
		s.used.Changed(id)
	} else {
		s.used.Forget(id)
	}
}

// crowded reports whether staged files occupy more than half of what they may.
func (s *Space) crowded() bool {
	if s.cfg.StagingSize == 0 {
		return false
	}
	used, err := s.usage()
	return err == nil && used > s.cfg.StagingSize/2
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
	if size, free, err = s.disk.room(s.cfg.Dir); err != nil {
		return 0, 0, err
	}
	if s.cfg.StagingSize == 0 {
		return size, free, nil
	}
	used, err := s.usage()
	return s.cfg.StagingSize, max(min(free, s.cfg.StagingSize-used), 0), err
}
