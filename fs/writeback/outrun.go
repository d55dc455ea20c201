package writeback

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/pailfs/pailfs/fs/writeback/internal/order"
)

// maxRenewed is how often a small file may be committed again before its publication
// begins: after that, and logEvery, it is read while nobody can commit and sent whole,
// since each attempt might be outrun by newer content.
const maxRenewed = 20

// outrun reports whether the content of op changes faster than it is published. s.mu
// is held.
func (s *Space) outrun(op *order.Operation, run *opRun) bool {
	f := s.mu.Files[op.File]
	return op.Kind == order.Put && run.renewed >= maxRenewed && time.Since(run.wanted) >= logEvery && f != nil && f.Staged && f.Partial == nil && f.Size <= s.cfg.limits.small
}

// maxOutpaced is how often a large file may change while it is sent before status says
// so: its parts cannot be held still for as long as they take, and nothing of it is
// published before it rests.
const maxOutpaced = 3

// outpaces reports whether the file of op changed each time before all of it was sent.
// s.mu is held.
func (s *Space) outpaces(op *order.Operation) bool {
	run := s.mu.runs[op.ID]
	return run.outpaced >= maxOutpaced || run.unsteady >= maxUnsteady && s.large(op)
}

// hold keeps the file of op from being opened for writing and committed until release
// is called, and makes snap what it has now, which is on the disk. The caller sends
// nothing meanwhile.
func (s *Space) hold(ctx context.Context, op order.Operation, snap *snapshot) (release func(), err error) {
	s.mu.Lock()
	f := s.mu.files[op.File]
	s.mu.Unlock()
	if f == nil {
		return nil, errSuperseded
	}
	if err := f.committing.wait(ctx); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			f.committing.Unlock()
		}
	}()
	if f.HasWriters() {
		return nil, errRipening
	}
	file, err := openStagedFile(s.path(f.id), os.O_RDONLY)
	if errors.Is(err, os.ErrNotExist) {
		return nil, errSuperseded
	} else if err != nil {
		return nil, fmt.Errorf("open staged file: %w", err)
	}
	defer file.Close()
	if tight, err := sealed(file); err != nil {
		return nil, err
	} else if !tight {
		return nil, errRipening
	}
	if err := s.makeDurable(f, file); err != nil {
		return nil, err
	}
	if err := s.journal.Sync(s.journal.End()); err != nil {
		return nil, err
	}
	st := f.state()
	changed, err := f.changedSince(file, &st)
	switch {
	case err != nil:
		return nil, err
	case changed, st.ID == 0, !st.Staged, st.Key != op.Key, st.Durable < st.Gen, st.Size > s.cfg.limits.small, st.Described() != snap.state.Described():
		return nil, errSuperseded
	}
	snap.state, snap.opens = st, f.opens.Load()
	return f.committing.Unlock, nil
}
