package writeback

import (
	"fmt"

	"github.com/pailfs/pailfs/fs/writeback/internal/order"
	"github.com/pailfs/pailfs/fs/writeback/internal/state"
)

// renaming returns r, which renames f once more, with what puts off the removal of the object
// that it has left behind before. s.mu is held.
func (s *Space) renaming(r *state.Renamed, f *state.File) state.Record {
	return state.Together(s.keeping(r), s.mu.PuttingOff(f, r.To.Key, r.Time))
}

// lastCopy reports whether op, a removal, has to wait for kept although the order would let it
// pass: kept comes later, was written again for example, or cannot be carried out as things are.
// What is before op and can be is left to the order. s.mu is held.
func (s *Space) lastCopy(op, kept *order.Operation) bool {
	if kept == nil || kept.Order >= op.Order {
		return kept != nil
	}
	st := s.standing(kept)
	return st.Failing || st.Absent
}

// heldRemoval is a removal that waits for a publication that may come later in the order: what
// becomes of one becomes of the other.
type heldRemoval struct{ gone, put *order.Operation }

// path is the name that goes.
func (h heldRemoval) path() string { return order.Join(h.gone.Dir, h.gone.Name) }

// error says which publication h waits for, and why that is not carried out, if that is known.
func (h heldRemoval) error(cause error) error {
	fresh := order.Join(h.put.Dir, h.put.Name)
	if cause == nil {
		return fmt.Errorf("%q is the only object of %q, which cannot be published yet", h.path(), fresh)
	}
	return fmt.Errorf("%q is the only object of %q, which cannot be published: %w", h.path(), fresh, cause)
}
