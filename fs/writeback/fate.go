package writeback

import (
	"errors"
	"os"

	"github.com/pailfs/pailfs/fs/writeback/internal/order"
	"github.com/pailfs/pailfs/fs/writeback/internal/state"
)

// fate is what is left of a file after the end of the run that wrote it.
type fate uint8

const (
	fateStays fate = iota
	// fateReleased: it was unlinked.
	fateReleased
	// fateReverted: what was written was never closed.
	fateReverted
	// fateAdopted: it was published, and the cache has it.
	fateAdopted
	// fateRestored: its record has the content.
	fateRestored
	// fateLost: the loss of power took what was closed, or some of it.
	fateLost
	// fateUndurable: it is there, but the loss of power would take it.
	fateUndurable
)

// judge decides what is left of a file whose bytes are, or were, at path. kept says
// that they are to be published although another file has the name, inline that a
// record has the content, rebooted that the machine was started since.
func judge(f *state.File, path string, kept, inline, rebooted bool) (fate, error) {
	if !f.Linked && !kept && (f.Suspect == 0 || f.Suspect != f.Gen) {
		return fateReleased, nil
	}
	if !f.Staged {
		return fateStays, nil
	}
	info, err := os.Stat(path)
	missing := errors.Is(err, os.ErrNotExist)
	if err != nil && !missing {
		return 0, err
	}
	switch {
	case f.IsSuspect():
		return fateStays, nil
	case f.Gen == f.BaseGen:
		return fateReverted, nil
	case (missing || rebooted && info.Size() < f.Size) && f.PubGen == f.Gen:
		return fateAdopted, nil
	case inline && f.Inline == f.Gen && (rebooted || missing):
		return fateRestored, nil
	case missing, rebooted && f.Durable < f.Gen, rebooted && info.Size() < f.Size:
		return fateLost, nil
	case f.Durable < f.Gen:
		return fateUndurable, nil
	}
	return fateStays, nil
}

// goBack returns the record by which a partial file that the loss of power took something of
// becomes what it was at its last durable generation, as far as its chunks go: the others are the
// base's, and not what the disk happens to have of them. It is nil if there is nothing to go back
// to, or if the file loses its name, for then what is left is for people to look at. v is its fate,
// kept says that it is to be published although another file has the name.
func goBack(f *state.File, v fate, kept, rebooted bool) state.Record {
	lost := v == fateLost && f.Durable > f.BaseGen || v == fateStays && f.IsSuspect()
	if !lost || !rebooted || kept || !f.Linked || !f.Staged || f.Vouched == nil {
		return nil
	}
	return &state.Lacks{File: f.ID, Partial: *f.Vouched}
}

// cutShort returns the record of a change of size that a kill kept from being written
// down, or nil: nothing beyond the end of the staged file at path is the base's.
func cutShort(f *state.File, path string) (state.Record, error) {
	limit := int64(0)
	for _, p := range []*state.Partial{f.Partial, f.Vouched} {
		if p != nil {
			limit = max(limit, p.Limit)
		}
	}
	if !f.Staged || limit == 0 {
		return nil, nil
	}
	_, size, err := stampOf(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, err
	case size < limit:
		return &state.Cut{File: f.ID, Limit: size}, nil
	}
	return nil, nil
}

// whatIsLost says what there is of a file whose last generation the disk lost: recorded, an
// earlier one in the journal that was promised; aside, none that was, so that it does
// not keep its name.
func whatIsLost(f *state.File, path string, inline map[order.FileID]span) (recorded, aside bool, err error) {
	_, recorded = inline[f.ID]
	recorded = recorded && f.Inline > f.BaseGen && f.Inline == f.Durable
	_, err = os.Stat(path)
	missing := errors.Is(err, os.ErrNotExist)
	if err != nil && !missing {
		return false, false, err
	}
	return recorded, f.Durable <= f.BaseGen || missing && !recorded, nil
}
