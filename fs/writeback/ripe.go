package writeback

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pailfs/pailfs/fs/writeback/internal/state"
)

const (
	// openWait is how long a committed file that is still open for writing, or mapped,
	// waits for its close. What must follow it waits as well.
	openWait = 30 * time.Second
	// openPoll is how often it is looked at.
	openPoll = 200 * time.Millisecond
	// maxUnsteady is how often a file that stays open may change while it is read for
	// publication. After that it holds back only what is beside or above it, as what
	// fails does.
	maxUnsteady = 5
)

var (
	// errRipening: the file was committed, and may be closed soon.
	errRipening = errors.New("the file is open for writing")
	// errUnfinished: only one of several descriptors was closed, and the file is being
	// written on.
	errUnfinished = errors.New("the file is being written")
	// errUnsteady: the file changed while it was read.
	errUnsteady = errors.New("the file changes while it is read")
)

// glance is what is known of a file that is to be published.
type glance struct {
	// wanted is since when it is, written when it was last found unfinished.
	wanted, written time.Time
	// open says that somebody has it open for writing, meant that it was committed by
	// fsync since it was published last, changed that it was changed through a mapping
	// just now.
	open, meant, changed bool
}

// ripe says whether a committed file that somebody can still change is to be
// published as it is at this moment: nil, [errRipening] or [errUnfinished].
//
// An fsync says that the content is worth keeping, also after other commits: what was
// closed after it must not appear without it. The close of one of several
// descriptors says so only if nothing comes after it: a program that maps a file
// closes the descriptor that it set the size with, and fills the file then. A
// file that is written after such a close, or has holes, is not finished.
func (s *Space) ripe(f *File, file *os.File, state *state.File, look glance) error {
	old := time.Since(look.wanted) >= openWait
	if !look.meant && !s.hurried() {
		changed, err := f.changedSince(file, state)
		if err == nil && !changed && !look.changed && old && !f.Partial() {
			changed, err = hasHoles(file, state.Size)
		}
		if err != nil {
			return err
		}
		if changed || look.changed {
			return errUnfinished
		}
	}
	if !old || time.Since(look.written) < openWait {
		return errRipening
	}
	return nil
}

// changedSince reports whether the staged file shows a change since its last commit.
func (f *File) changedSince(file *os.File, state *state.File) (bool, error) {
	var stat syscall.Stat_t
	if err := syscall.Fstat(int(file.Fd()), &stat); err != nil {
		return false, fmt.Errorf("stat staged file: %w", err)
	}
	return f.touched.Load() || stat.Size != state.Size || stat.Mtim.Nano() != state.Stamp, nil
}

// hasHoles reports whether parts of a file of this size were never written.
func hasHoles(file *os.File, size int64) (bool, error) {
	if size == 0 {
		return false, nil
	}
	hole, err := unix.Seek(int(file.Fd()), 0, unix.SEEK_HOLE)
	if err != nil {
		return false, fmt.Errorf("look for holes in a staged file: %w", err)
	}
	return hole < size, nil
}

// mean notes that the content that f was committed with last is meant to be kept.
func (s *Space) mean(f *File) {
	s.mu.Lock()
	if st := s.mu.Files[f.id]; st != nil {
		f.meant = st.Gen
	}
	s.mu.Unlock()
	s.ripen(f, false)
}

// ripen lets the publication of f be looked at anew: it was closed, or synced.
func (s *Space) ripen(f *File, closed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.mu.Files[f.id]
	if st == nil || !st.Linked || s.mu.Keys[st.Key] == nil {
		return
	}
	run := s.mu.runs[s.mu.Keys[st.Key].Pending]
	if run == nil || run.failing {
		return
	}
	run.meant = true
	if closed {
		run.unsteady = 0
	}
	if run.unsteady == 0 {
		run.next = time.Time{}
	}
	s.doubt()
}

// doubt lets it be found out anew which files are unfinished: they hold back nothing,
// but what is wanted from now on may have to follow them. s.mu is held.
func (s *Space) doubt() {
	for id := range s.mu.unfinished {
		if run := s.mu.runs[id]; run != nil {
			run.unfinished, run.next = false, time.Time{}
		}
		delete(s.mu.unfinished, id)
	}
}
