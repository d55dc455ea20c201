package writeback

import (
	"context"
	"fmt"
	"io"
	"math"
	"os"

	"github.com/pailfs/pailfs/fs/writeback/internal/order"
	"github.com/pailfs/pailfs/oss"
)

// moment finds out what a file that somebody may be writing has at one moment, and
// makes snap that: whatever is read for publication afterwards must be the same.
//
// A reading that comes to the end of the file tells what it had then, if another one finds the
// same. Where that is more than what was committed, nobody knows whether the beginning
// is still what it was with the end that was committed: what is there is committed anew. A log
// grows at its end alone, so that its beginning is what it was.
func (s *Space) moment(ctx context.Context, op order.Operation, snap *snapshot) error {
	var h oss.CRC64Writer
	if snap.log {
		n, err := readOn(&h, snap.file, 0, snap.state.Size)
		if err == nil && n < snap.state.Size {
			err = errUnsteady
		}
		snap.crc = uint64(h)
		return err
	}
	n, err := readOn(&h, snap.file, 0, math.MaxInt64)
	if err != nil {
		return err
	}
	s.mu.Lock()
	f := s.mu.files[op.File]
	s.mu.Unlock()
	if f == nil {
		return errSuperseded
	}
	if err := f.committing.wait(ctx); err != nil {
		return err
	}
	defer f.committing.Unlock()
	// The lock may have taken as long as a download.
	more, err := readOn(&h, snap.file, n, math.MaxInt64)
	if err != nil {
		return err
	}
	n += more
	switch {
	case f.state().Gen != snap.state.Gen, n < snap.state.Size:
		return errUnsteady
	case n > snap.state.Size:
		if err := s.commitGrown(f, snap.file, n); err != nil {
			return err
		}
	}
	snap.crc = uint64(h)
	return s.nowOf(op, snap)
}

// nowOf makes snap what was committed last. f.committing is held.
func (s *Space) nowOf(op order.Operation, snap *snapshot) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.mu.Files[op.File]
	if st == nil || s.mu.Ops[op.ID] == nil {
		return errSuperseded
	}
	if st.Gen != snap.state.Gen && !s.inTurn(op) {
		// What it has now comes after something else.
		return errUnsteady
	}
	snap.state = *st
	return nil
}

// commitGrown commits the first size bytes of a file, which were all of it a moment ago,
// and brings them to the disk. f.committing is held.
func (s *Space) commitGrown(f *File, file *os.File, size int64) error {
	changed, r, err := f.compare(file, true)
	switch {
	case err != nil:
		return err
	case !changed:
		return errUnsteady
	case r.Size < size:
		f.touched.Store(true)
		return errUnsteady
	}
	if r.Size = size; r.HasInline {
		r.Inline = r.Inline[:size]
	}
	if err := s.recordCommit(f, r, true); err != nil {
		return err
	}
	if err := s.makeDurable(f, file); err != nil {
		return err
	}
	return s.journal.Sync(s.journal.End())
}

// inTurn reports whether the order lets op begin now. s.mu is held.
func (s *Space) inTurn(op order.Operation) bool {
	for _, v := range s.mu.Queue.Scan(s.standing, func(*order.Operation) bool { return false }) {
		if v.Op.ID == op.ID {
			return v.Ready
		}
	}
	return false
}

// still says whether what was read is what the file had at the moment of snap.
func (n *snapshot) still(crc uint64) error {
	if !n.sealed && crc != n.crc {
		return errUnsteady
	}
	return nil
}

// readOn adds what file has from off to end, or to its own end, to h, and returns how
// many bytes that was.
func readOn(h *oss.CRC64Writer, file *os.File, off, end int64) (int64, error) {
	n, err := io.CopyBuffer(h, struct{ io.Reader }{io.NewSectionReader(file, off, end-off)}, make([]byte, 256<<10))
	if err != nil {
		return 0, fmt.Errorf("read staged file: %w", err)
	}
	return n, nil
}
