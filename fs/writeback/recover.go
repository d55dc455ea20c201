package writeback

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

const (
	journalName = "journal.log"
	journalNew  = "journal.new"
	stagedDir   = "staged"
	// startingBoot is the run of the machine while the one before is judged.
	startingBoot = "starting"
)

// span is where inline content stands in the journal.
type span struct{ record int64 }

// recover takes up what the last run left.
func (s *Space) recover() error {
	want := identity{normalEndpoint(s.cfg.Endpoint), s.cfg.Bucket, s.cfg.Prefix}
	if err := os.MkdirAll(filepath.Join(s.cfg.Dir, stagedDir), 0o700); err != nil {
		return err
	}
	os.Remove(filepath.Join(s.cfg.Dir, journalNew))
	path := filepath.Join(s.cfg.Dir, journalName)
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		if err := s.refuseOrphans(); err != nil {
			return err
		}
		if err := s.makeJournal(path, frame(journalHeader(), &identityRecord{want})); err != nil {
			return err
		}
	}
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	inline, good, rest, err := load(file, s.mu.state)
	if err == nil && s.mu.Identity != want {
		have := s.mu.Identity
		err = fmt.Errorf("%w: its changes are for bucket %q, prefix %q at %q, and this mount is of bucket %q, prefix %q at %q: "+
			"mount that one until it is drained, or use another --cache-dir", ErrForeign, have.Bucket, have.Prefix, have.Endpoint, want.Bucket, want.Prefix, want.Endpoint)
	}
	if err == nil && rest > 0 {
		err = s.setAside(file, good, rest)
	}
	if err != nil {
		file.Close() //nolint:errcheck // it was only read
		return err
	}
	s.journal = &journal{disk: s.disk, dir: s.cfg.Dir, file: file}
	s.journal.mu.size = good
	if err := s.takeUp(file, inline, rest > 0); err != nil {
		file.Close() //nolint:errcheck // the error before counts
		return err
	}
	return nil
}

// normalEndpoint makes spellings of one endpoint equal.
func normalEndpoint(e string) string {
	e = strings.TrimSuffix(strings.ToLower(strings.TrimSpace(e)), "/")
	for _, scheme := range []string{"http://", "https://"} {
		e = strings.TrimPrefix(e, scheme)
	}
	return strings.Replace(e, "-internal.aliyuncs.com", ".aliyuncs.com", 1)
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

// errReplaced means that a journal file took the place of another, but that this may
// not be on the disk.
var errReplaced = errors.New("the journal was replaced, perhaps not on the disk")

// makeJournal writes a journal file whole or not at all, or fails with errReplaced.
func (s *Space) makeJournal(path string, content []byte) error {
	fresh := filepath.Join(s.cfg.Dir, journalNew)
	file, err := os.OpenFile(fresh, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(content)
	if err == nil {
		err = s.disk.sync(file)
	}
	if err := errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("write journal: %w", err)
	}
	if err := os.Rename(fresh, path); err != nil {
		return err
	}
	if err := s.disk.syncDir(s.cfg.Dir); err != nil {
		return fmt.Errorf("%w: %w", errReplaced, err)
	}
	return nil
}

// load replays a journal file into st. inline tells where the records are that hold
// the content of files.
func load(file *os.File, st *state) (inline map[fileID]span, good, rest int64, err error) {
	info, err := file.Stat()
	if err != nil {
		return nil, 0, 0, err
	}
	inline = make(map[fileID]span)
	good, rest, err = replay(file, info.Size(), func(r record, at int64) error {
		switch r := r.(type) {
		case *closedRecord:
			if r.HasInline {
				inline[r.File] = span{at - frameSize}
			}
			r.Inline = nil
		case *snapFile:
			if r.HasInline {
				inline[r.File.ID] = span{at - frameSize}
			}
			r.Inline = nil
		}
		st.apply(r)
		return nil
	})
	return inline, good, rest, err
}

// setAside keeps what follows the last good record, and cuts it off: a record that
// was being written when the machine stopped, or damage.
func (s *Space) setAside(file *os.File, good, rest int64) error {
	name := filepath.Join(s.cfg.Dir, "journal.rest-"+strconv.FormatInt(now(), 10))
	s.log.Warn("the journal ends with bytes that are no record", "bytes", rest, "at", good, "kept", name)
	aside, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(aside, io.NewSectionReader(file, good, min(rest, 64<<20)))
	if err := errors.Join(err, aside.Close()); err != nil {
		return err
	}
	if err := file.Truncate(good); err != nil {
		return err
	}
	return s.disk.sync(file)
}

// takeUp compares the state with what is on the disk and begins a new run. cut says
// that the journal did not end with a record.
func (s *Space) takeUp(file *os.File, inline map[fileID]span, cut bool) error {
	st := s.mu.state
	rebooted := st.Boot != s.boot
	switch {
	case rebooted:
		// Only when it is known what this run of the machine does not have, the journal
		// says that it began in it.
		s.record(&bootRecord{ID: startingBoot})
	case len(st.Ops) > 0:
		s.record(&bootRecord{ID: s.boot})
	}
	for _, id := range slices.Sorted(maps.Keys(st.Files)) {
		if err := s.takeUpFile(file, st.Files[id], inline, rebooted); err != nil {
			return err
		}
	}
	if rebooted {
		s.record(&bootRecord{ID: s.boot})
	}
	for id := range st.Ops {
		s.mu.runs[id] = &opRun{}
	}
	s.mu.recovered = st.NextOp
	for dir, names := range st.Names {
		for base := range names {
			s.mu.settling[nameID{dir, base}] = &settle{}
		}
	}
	if err := s.removeOrphans(cut); err != nil {
		return err
	}
	s.compactIfLarge()
	return s.journal.sync(s.journal.end())
}

// takeUpFile decides what is left of one file.
func (s *Space) takeUpFile(journal *os.File, f *fileState, inline map[fileID]span, rebooted bool) error {
	if !f.Linked && (f.Suspect == 0 || f.Suspect != f.Gen) {
		s.record(&releasedRecord{File: f.ID})
		return nil
	}
	if !f.Staged {
		return nil
	}
	info, err := os.Stat(s.path(f.ID))
	missing := errors.Is(err, os.ErrNotExist)
	if err != nil && !missing {
		return err
	}
	at, has := inline[f.ID]
	has = has && f.Inline == f.Gen
	switch {
	case f.Suspect == f.Gen && f.Gen > 0:
	case f.Gen == f.BaseGen:
		s.record(&revertedRecord{File: f.ID, Time: now()})
	case (missing || rebooted && info.Size() < f.Size) && f.PubGen == f.Gen:
		s.record(&adoptedRecord{File: f.ID})
	case has && (rebooted || missing):
		return s.restore(journal, f, at)
	case missing, rebooted && f.Durable < f.Gen, rebooted && info.Size() < f.Size:
		return s.suspect(journal, f, inline, missing)
	case f.Durable < f.Gen:
		s.mu.undurable[f.ID] = true
	}
	return nil
}

// suspect keeps what is left of a file whose last generation the disk lost. It keeps
// its name as well if an earlier one was on the disk: that was promised.
func (s *Space) suspect(journal *os.File, f *fileState, inline map[fileID]span, missing bool) error {
	at, has := inline[f.ID]
	has = has && f.Inline > f.BaseGen && f.Inline == f.Durable
	if has {
		// That one is in the journal, and the staged file may have none of it.
		content, err := readSpan(journal, f, at)
		if err != nil {
			return err
		}
		if err := overlay(s.path(f.ID), content); err != nil {
			return err
		}
	}
	lost := &suspectRecord{File: f.ID, Gen: f.Gen, Aside: f.Durable <= f.BaseGen || missing && !has}
	if lost.Aside {
		s.log.Error("a closed file did not survive the loss of power: what is left of it is kept aside", "path", join(f.Dir, f.Name), "file", f.ID)
		s.record(lost)
		return nil
	}
	s.log.Error("a change did not survive the loss of power: what is left is not published until the file is written again", "path", join(f.Dir, f.Name), "file", f.ID)
	// What is left must not look like a change since.
	stamp, size, err := stampOf(s.path(f.ID))
	if err != nil {
		return err
	}
	left := &closedRecord{File: f.ID, Gen: f.Gen, Size: size, Stamp: stamp, At: now(), Keep: true}
	s.record(&groupRecord{Records: []record{left, lost}})
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
func (s *Space) restore(journal *os.File, f *fileState, at span) error {
	content, err := readSpan(journal, f, at)
	if err != nil {
		return err
	}
	if err := os.WriteFile(s.path(f.ID), content, 0o600); err != nil {
		return err
	}
	return chtime(s.path(f.ID), f.Stamp)
}

// readSpan returns the content of f that a record holds.
func readSpan(journal *os.File, f *fileState, at span) ([]byte, error) {
	info, err := journal.Stat()
	if err != nil {
		return nil, err
	}
	var window []byte
	body, ok, err := readFrame(journal, at.record, info.Size(), &window)
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, fmt.Errorf("the record of %q is not where it was", join(f.Dir, f.Name))
	}
	r, err := decodeBody(body)
	if err != nil {
		return nil, err
	}
	switch r := r.(type) {
	case *closedRecord:
		return r.Inline, nil
	case *snapFile:
		return r.Inline, nil
	}
	return nil, fmt.Errorf("the record of %q holds no content", join(f.Dir, f.Name))
}

// removeOrphans removes staged files that no file of the state has. With keep they
// are moved aside: what was cut off the journal may have spoken of them.
func (s *Space) removeOrphans(keep bool) error {
	entries, err := os.ReadDir(filepath.Join(s.cfg.Dir, stagedDir))
	if err != nil {
		return err
	}
	aside := filepath.Join(s.cfg.Dir, stagedDir+".rest-"+strconv.FormatInt(now(), 10))
	for _, e := range entries {
		id, err := strconv.ParseUint(e.Name(), 16, 64)
		if err != nil || len(e.Name()) != 16 {
			continue
		}
		s.mu.NextFile = max(s.mu.NextFile, id+1)
		if f := s.mu.Files[id]; f != nil && f.Staged {
			continue
		}
		if !keep {
			if err := os.Remove(s.path(id)); err != nil {
				return err
			}
			continue
		}
		if err := os.MkdirAll(aside, 0o700); err != nil {
			return err
		}
		if err := os.Rename(s.path(id), filepath.Join(aside, e.Name())); err != nil {
			return err
		}
		s.log.Warn("a staged file that no record speaks of is kept aside", "file", e.Name(), "kept", aside)
	}
	return nil
}
