package writeback

import (
	"fmt"
	"os"
	"time"

	"github.com/pailfs/pailfs/fs/writeback/internal/order"
	"github.com/pailfs/pailfs/fs/writeback/internal/state"
)

// rewriteWait is how long a file that was closed, and is being written anew before it was
// published, holds back what is beside or above it. Who is not done by then may never be.
const rewriteWait = 10 * time.Minute

// rewriting is what is known of a file that is written anew. Space.mu guards it.
type rewriting struct {
	// whole is the generation that the file had when its first writer opened it: nobody
	// else was writing.
	whole order.Generation
	// gen is the generation that was whole and closed, and of which nothing is left, since
	// when that is so.
	gen   order.Generation
	since time.Time
}

// begins notes that somebody opens f for writing, and is the only one. f.content is locked.
func (s *Space) begins(f *File) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if st := s.mu.Files[f.id]; st != nil {
		f.rewriting.whole = st.Gen
	}
}

// rewrites notes that nothing is left of the content of f. s.mu is held.
func (s *Space) rewrites(f *File) {
	st, r := s.mu.Files[f.id], &f.rewriting
	if st != nil && r.gen != st.Gen && r.whole == st.Gen && st.Gen > st.BaseGen && st.PubGen < st.Gen {
		r.gen, r.since = st.Gen, time.Now()
	}
}

// rewritten is an error as long as what takes the place of a closed content is not finished,
// and may soon be: what was closed since waits for it, [errRipening] at first and
// then [errOpen]. Nobody waits so for what somebody waits for, or while there is little
// room, which the others could make. It is [errUnfinished] where somebody waits and there is
// less of it still than was closed, so that it cannot be published as it is.
func (s *Space) rewritten(f *File, file *os.File, state *state.File, look glance) error {
	s.mu.Lock()
	st, since, hurried := s.mu.Files[f.id], time.Since(f.rewriting.since), s.mu.draining > 0
	is := st != nil && st.Gen > 0 && f.rewriting.gen == st.Gen
	s.mu.Unlock()
	switch {
	case is && hurried && time.Since(look.wanted) >= openWait:
		info, err := file.Stat()
		if err != nil {
			return fmt.Errorf("stat staged file: %w", err)
		}
		if info.Size() < state.Size {
			return errUnfinished
		}
		return nil
	case !is || hurried || since >= rewriteWait || s.pacing.short.Load() > 0 || s.crowded():
		return nil
	}
	// The cache keeps more than that free, as long as it has anything to give.
	if size, free, err := s.disk.room(s.cfg.Dir); err != nil || free < min(spareRoom, size/spareShare)/2 {
		return nil
	}
	if since < openWait {
		return errRipening
	}
	return errOpen
}
