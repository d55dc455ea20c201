package writeback

import (
	"context"
	"slices"

	"github.com/pailfs/pailfs/fs/writeback/internal/order"
	"github.com/pailfs/pailfs/fs/writeback/internal/state"
	"github.com/pailfs/pailfs/oss"
)

// follows records that found is what a publication of ours, whose answer was lost, has made
// of the object that is the content of the file of op, and reports whether it is.
func (s *Space) follows(ctx context.Context, op order.Operation, src oss.Object, found oss.Info) (bool, error) {
	if found.Size != src.Size {
		return false, nil
	}
	s.mu.Lock()
	var tried []state.Intent
	if k := s.mu.Keys[src.Key]; k != nil {
		tried = slices.Clone(k.Maybe)
	}
	s.mu.Unlock()
	found, err := s.undisputed(ctx, found, tried)
	if err != nil {
		return false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	f, k := s.mu.Files[op.File], s.mu.Keys[src.Key]
	if f == nil || f.Staged || f.Object != src || k == nil || !state.SameBytes(k.Remote, src) {
		return false, nil
	}
	// While the file needs the object, nobody else changes its key.
	if !slices.ContainsFunc(k.Maybe, func(i state.Intent) bool { return i.Matches(found) }) {
		return false, nil
	}
	s.record(&state.Carried{File: f.ID, Object: found.Object, CRC: found.CRC64, Content: true})
	return true, nil
}
