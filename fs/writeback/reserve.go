package writeback

import (
	"context"
	"errors"
	"syscall"
	"time"
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
		err := s.journal.Reserve(need)
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
