package writeback

import "github.com/pailfs/pailfs/fs/writeback/internal/order"

// doomed is a staged file that the journal forgets at a position. Until that is on
// the disk the loss of power brings the file back, under a name that had been removed
// or replaced: its bytes must be there then.
type doomed struct {
	id  order.FileID
	pos int64
}

// removeDoomed removes the staged files that are forgotten for good.
func (s *Space) removeDoomed() {
	synced := s.journal.Synced()
	s.mu.Lock()
	var gone []order.FileID
	left := s.mu.doomed[:0]
	for _, d := range s.mu.doomed {
		if d.pos <= synced {
			gone = append(gone, d.id)
		} else {
			left = append(left, d)
		}
	}
	s.mu.doomed = left
	s.mu.Unlock()
	for _, id := range gone {
		s.removeStaged(id)
	}
}
