package writeback

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/pailfs/pailfs/fs/writeback/internal/journal"
	"github.com/pailfs/pailfs/fs/writeback/internal/order"
	"github.com/pailfs/pailfs/fs/writeback/internal/state"
)

const (
	stagedRest = "staged.rest-"
	stagedDir  = "staged"
	lockName   = "lock"
	// startingBoot is the run of the machine while the one before is judged.
	startingBoot = "starting"
)

// recover takes up what the last run left.
func (s *Space) recover() error {
	want := state.Identity{Endpoint: normalEndpoint(s.cfg.Endpoint), Bucket: s.cfg.Bucket, Prefix: s.cfg.Prefix}
	if err := makeStaged(s.cfg.Dir); err != nil {
		return err
	}
	journal.RemoveSpare(s.cfg.Dir)
	path := filepath.Join(s.cfg.Dir, journal.Name)
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		if err := s.refuseOrphans(); err != nil {
			return err
		}
		if err := journal.Create(s.disk, s.cfg.Dir, state.Frame(journal.Header(), &state.Identified{Identity: want})); err != nil {
			return err
		}
	}
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	inline, good, rest, err := load(file, s.mu.State)
	if err == nil && s.mu.Identity != want {
		have := s.mu.Identity
		err = fmt.Errorf("%w: its changes are for bucket %q, prefix %q at %q, and this mount is of bucket %q, prefix %q at %q: "+
			"mount that one until it is drained, or use another --cache-dir", ErrForeign, have.Bucket, have.Prefix, have.Endpoint, want.Bucket, want.Prefix, want.Endpoint)
	}
	if err == nil && rest > 0 {
		var kept string
		if kept, err = journal.SetAside(s.disk, s.cfg.Dir, file, good, rest); err == nil {
			s.log.Warn("the journal ended with bytes that are no record", "bytes", rest, "at", good, "kept", kept)
		}
	}
	if err != nil {
		file.Close() //nolint:errcheck // it was only read
		return err
	}
	if s.journal, err = journal.Open(s.disk, s.cfg.Dir, s.boot, file, good); err != nil {
		file.Close() //nolint:errcheck // the error before counts
		return err
	}
	if err := s.takeUp(file, inline, rest > 0); err != nil {
		s.journal.Close() //nolint:errcheck // the error before counts
		return err
	}
	return nil
}

// refuseOrphans refuses a directory whose journal is missing although files are
// there: somebody may want them.
func (s *Space) refuseOrphans() error {
	left, err := os.ReadDir(filepath.Join(s.cfg.Dir, stagedDir))
	if err == nil && len(left) > 0 {
		err = fmt.Errorf("there are %d staged files but no journal that says what they are: move them away", len(left))
	}
	return err
}

// takeUp compares the state with what is on the disk and begins a new run. cut says
// that the journal did not end with a record.
func (s *Space) takeUp(file *os.File, inline map[order.FileID]span, cut bool) error {
	st := s.mu.State
	rebooted := st.Boot != s.boot
	for _, r := range st.Successions() {
		s.record(r)
	}
	switch {
	case rebooted:
		// Only when it is known what this run of the machine does not have, the journal
		// says that it began in it.
		s.record(&state.Boot{ID: startingBoot})
	case len(st.Ops) > 0:
		s.record(&state.Boot{ID: s.boot})
	}
	for _, id := range slices.Sorted(maps.Keys(st.Files)) {
		if err := s.takeUpFile(file, st.Files[id], inline, rebooted); err != nil {
			return err
		}
	}
	if rebooted {
		s.record(&state.Boot{ID: s.boot})
	}
	for id := range st.Files {
		s.count(id)
	}
	for id := range st.Ops {
		s.mu.runs[id] = &opRun{}
	}
	for dir, names := range st.Names {
		for base := range names {
			s.mu.settling.add(state.NameID{Dir: dir, Name: base}, 0)
		}
	}
	// What is read was written, but perhaps by a run that did not live to sync it.
	if err := s.journal.Sync(s.journal.End()); err != nil {
		return err
	}
	if err := s.removeOrphans(cut); err != nil {
		return err
	}
	s.compactIfLarge()
	if err := s.journal.Reserve(s.reserve()); err != nil {
		s.log.Warn("the journal has no reserve: what takes up more of the disk is refused", "err", err)
	}
	return s.journal.Sync(s.journal.End())
}

// takeUpFile goes on with what is left of one file.
func (s *Space) takeUpFile(journal *os.File, f *state.File, inline map[order.FileID]span, rebooted bool) error {
	at, has := inline[f.ID]
	v, err := judge(f, s.path(f.ID), s.mu.KeptOf[f.ID] != 0, has, rebooted)
	if err != nil {
		return err
	}
	s.mu.spoiled = s.mu.spoiled || v == fateLost || f.IsSuspect()
	if back := goBack(f, v, s.mu.KeptOf[f.ID] != 0, rebooted); back != nil {
		s.record(back)
	}
	if cut, err := cutShort(f, s.path(f.ID)); err != nil {
		return err
	} else if cut != nil {
		s.record(cut)
	}
	switch v {
	case fateStays:
	case fateReleased:
		s.record(&state.Released{File: f.ID})
	case fateReverted:
		s.record(&state.Reverted{File: f.ID, Time: now()})
	case fateAdopted:
		s.record(&state.Adopted{File: f.ID})
	case fateRestored:
		return s.restore(journal, f, at)
	case fateLost:
		return s.suspect(journal, f, inline)
	case fateUndurable:
		s.mu.undurable.dirty(f.ID)
	}
	return nil
}

// suspect keeps what is left of a file whose last generation the disk lost. It keeps
// its name as well if an earlier one was on the disk: that was promised.
func (s *Space) suspect(journal *os.File, f *state.File, inline map[order.FileID]span) error {
	recorded, aside, err := whatIsLost(f, s.path(f.ID), inline)
	if err != nil {
		return err
	}
	if recorded {
		// That one is in the journal, and the staged file may have none of it.
		content, err := readSpan(journal, f, inline[f.ID])
		if err != nil {
			return err
		}
		if err := overlay(s.path(f.ID), content); err != nil {
			return err
		}
	}
	lost := &state.Suspect{File: f.ID, Gen: f.Gen, Aside: aside || s.mu.KeptOf[f.ID] != 0}
	if lost.Aside {
		s.log.Error("a closed file did not survive the loss of power: what is left of it is kept aside", "path", order.Join(f.Dir, f.Name), "file", f.ID)
		s.record(s.mu.Aside(f, s.mu.NextFile, now()))
		return nil
	}
	s.log.Error("a change did not survive the loss of power: what is left is not published until the file is written again", "path", order.Join(f.Dir, f.Name), "file", f.ID)
	// What is left must not look like a change since.
	stamp, size, err := stampOf(s.path(f.ID))
	if err != nil {
		return err
	}
	left := &state.Closed{File: f.ID, Gen: f.Gen, Size: size, Stamp: stamp, At: now(), Keep: true}
	s.record(&state.Group{Records: []state.Record{left, lost}})
	return nil
}

// overlay writes content over the beginning of a file, which need not exist.
func overlay(path string, content []byte) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	_, err = file.WriteAt(content, 0)
	return errors.Join(err, file.Close())
}

// restore writes the staged file that a record holds. The time of the last write is
// the one that it had.
func (s *Space) restore(journal *os.File, f *state.File, at span) error {
	content, err := readSpan(journal, f, at)
	if err != nil {
		return err
	}
	if err := os.WriteFile(s.path(f.ID), content, 0o600); err != nil {
		return err
	}
	return chtime(s.path(f.ID), f.Stamp)
}

// removeOrphans removes staged files that no file of the state has. With keep they
// are moved aside: what was cut off the journal may have spoken of them.
func (s *Space) removeOrphans(keep bool) error {
	kept, err := orphans(s.cfg.Dir, s.mu.State, keep)
	if kept != "" {
		s.log.Warn("staged files that no record speaks of are kept aside", "kept", kept)
	}
	return err
}
