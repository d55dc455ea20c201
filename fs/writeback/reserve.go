package writeback

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// On a disk that is full to the last byte nothing could be journalled, and so
// nothing be freed: every upload and every removal is a record. Therefore the journal
// has room allocated beyond its end, and the file that compaction writes has some,
// too. What takes up more of the disk leaves that alone and is ENOSPC; what finishes
// or frees something may use it.
const (
	// reserveBase and reserveEach are the reserve in bytes: for as many files and
	// operations as there are, the records from the begin of an upload to the end.
	reserveBase = 256 << 10
	reserveEach = 2 << 10
	// reserveStep is how much more is allocated at once, if there is room.
	reserveStep = 2 << 20
)

// reserve is what the records may need that finish everything under way.
func (s *Space) reserve() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return reserveBase + reserveEach*int64(len(s.mu.Files)+len(s.mu.Ops)+len(s.mu.Keys))
}

// Admit returns when a name may be made or renamed without waiting for room. Whoever
// holds up others meanwhile asks first.
func (s *Space) Admit(ctx context.Context) error { return s.admit(ctx) }

// AwaitRoom does the same for a file that is made and written.
func (s *Space) AwaitRoom(ctx context.Context) error { return s.room(ctx) }

// admit returns when there is room for a record that makes more to do. It waits for
// that as for the room of staged files.
func (s *Space) admit(ctx context.Context) error {
	deadline := time.Now().Add(s.cfg.FullWait)
	for {
		need := s.reserve()
		err := s.journal.reserve(need)
		if !errors.Is(err, syscall.ENOSPC) {
			return err
		}
		if s.cache.MakeRoom(2*need) > 0 && time.Now().Before(deadline) {
			continue
		}
		if err := s.awaitRoom(ctx, deadline); err != nil {
			return err
		}
	}
}

// reserve makes sure that room for so many bytes is allocated beyond the end of the
// journal, and for as many in the file that will take its place.
func (j *journal) reserve(need int64) error {
	if j.hasRoom(need) {
		return nil
	}
	j.writing.Lock()
	defer j.writing.Unlock()
	j.mu.Lock()
	from := j.mu.size
	least := from + int64(len(j.mu.buffer)) + need
	allocated, spare := j.mu.allocated, j.mu.spare
	j.mu.Unlock()
	var err error
	if allocated < least {
		allocated, err = allocate(j.file, from, least)
	}
	if err == nil && spare < need {
		spare, err = j.allocateSpare(need)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.mu.allocated, j.mu.spare = allocated, spare
	j.mu.low = errors.Is(err, syscall.ENOSPC)
	return err
}

// hasRoom reports whether that much is reserved already.
func (j *journal) hasRoom(need int64) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.mu.allocated-j.mu.size-int64(len(j.mu.buffer)) >= need && j.mu.spare >= need
}

// allocateSpare allocates room for the next journal.
func (j *journal) allocateSpare(need int64) (int64, error) {
	file, err := os.OpenFile(filepath.Join(j.dir, journalNew), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return 0, err
	}
	defer file.Close()
	return allocate(file, 0, need)
}

// allocate gives a file blocks up to the offset end, or some more, and returns up to
// where it has them. A file system that cannot do that has no reserve.
func allocate(file *os.File, from, end int64) (int64, error) {
	var err error
	for _, more := range []int64{reserveStep, 0} {
		err = unix.Fallocate(int(file.Fd()), unix.FALLOC_FL_KEEP_SIZE, from, end+more-from)
		switch {
		case err == nil:
			return end + more, nil
		case errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS):
			return 1 << 62, nil
		case !errors.Is(err, unix.ENOSPC):
			return from, fmt.Errorf("reserve room for the journal: %w", err)
		}
	}
	return from, fmt.Errorf("reserve room for the journal: %w", err)
}

// isLow reports whether the reserve is not what it should be.
func (j *journal) isLow() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.mu.low
}
