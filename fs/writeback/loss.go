package writeback

import (
	"github.com/pailfs/pailfs/fs/writeback/internal/order"
	"github.com/pailfs/pailfs/fs/writeback/internal/state"
)

// lostBefore returns a file that the loss of power took and without which op must not
// appear, nil if there is none. What might have overtaken the file need not wait for it.
// s.mu is held.
func (s *Space) lostBefore(op *order.Operation) *state.Loss {
	if op.After >= s.mu.LastLoss {
		return nil
	}
	for _, l := range s.mu.Losses {
		if l.Precedes(op) && !s.overtakes(op, l) {
			return l
		}
	}
	return nil
}

// overtakes reports whether op and l were new, small, in one directory and closed
// within a second. s.mu is held.
func (s *Space) overtakes(op *order.Operation, l *state.Loss) bool {
	return op.Dir == l.Dir && s.small(op) && !l.Barrier && l.Size <= s.cfg.limits.small && op.Again-l.At <= order.OvertakeWindow
}
