package writeback

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Flush returns when everything that was closed at path or below it is in the object
// store, or with the errors of what cannot be published as things are. "" is
// everything. While it waits, uploads are neither paced nor held back.
func (s *Space) Flush(ctx context.Context, path string) error {
	s.SetDraining(true)
	defer s.SetDraining(false)
	s.mu.Lock()
	for _, run := range s.mu.runs {
		// What failed long ago gets another chance.
		run.next = run.wanted
	}
	s.mu.Unlock()
	if err := s.commitMapped(path); err != nil {
		return err
	}
	tried := make(map[uint64]int)
	for {
		wake(s.commitNow)
		wake(s.publishNow)
		began := time.Now()
		s.mu.Lock()
		left, failed := 0, []error(nil)
		for id, op := range s.mu.Ops {
			run := s.mu.runs[id]
			if path != "" && !covers(path, join(op.Dir, op.Name)) {
				continue
			}
			left++
			before, known := tried[id]
			if !known {
				tried[id] = run.attempts
			}
			if run.failing && known && run.attempts > before && run.err != nil {
				failed = append(failed, fmt.Errorf("%q: %w", join(op.Dir, op.Name), run.err))
			}
		}
		for _, f := range s.mu.Files {
			if f.Suspect == f.Gen && f.Gen > 0 && f.Linked && covers(path, join(f.Dir, f.Name)) {
				failed = append(failed, fmt.Errorf("%q: the disk lost what was written", join(f.Dir, f.Name)))
				left--
			}
		}
		changed := s.mu.changed
		s.mu.Unlock()
		if left <= 0 || len(failed) > 0 && len(failed) >= left {
			return errors.Join(failed...)
		}
		if err := s.journal.failure(); err != nil {
			// Nothing is begun of which a restart would not know.
			return errors.Join(append(failed, err)...)
		}
		rest(ctx, began)
		select {
		case <-ctx.Done():
			return errors.Join(append(failed, ctx.Err())...)
		case <-changed:
		}
	}
}

// restMost is the longest rest.
const restMost = 50 * time.Millisecond

// rest lets others go on after a look at all that is pending, which began at began:
// with many small files a look takes milliseconds, holds Space.mu, and is due again
// after each of them. So looking takes a tenth of the time at most.
func rest(ctx context.Context, began time.Time) {
	if d := 9 * time.Since(began); d >= time.Millisecond {
		sleep(ctx, min(d, restMost))
	}
}

// commitMapped commits what was stored through mappings of files that nobody has
// open any more, at path or below it.
func (s *Space) commitMapped(path string) error {
	s.mu.Lock()
	var files []*File
	for id, st := range s.mu.Files {
		if st.Staged && st.Linked && covers(path, join(st.Dir, st.Name)) {
			files = append(files, s.file(id))
		}
	}
	s.mu.Unlock()
	var failed error
	for _, f := range files {
		if f.hasWriters() {
			continue
		}
		if st := f.state(); f.lent.Load() && st.Gen > st.BaseGen && st.Inline == st.Gen {
			// A page that is still to be written back changes without the time showing it.
			f.unsure.Store(true)
		}
		failed = errors.Join(failed, f.commit(false))
	}
	return failed
}

// Drain is Flush of everything after which nothing is held back any more, for the
// end of a mount.
func (s *Space) Drain(ctx context.Context) error {
	s.SetDraining(true)
	return s.Flush(ctx, "")
}

// SetDraining begins, or ends, a time in which publication comes before all else.
func (s *Space) SetDraining(on bool) {
	s.mu.Lock()
	if on {
		s.mu.draining++
	} else {
		s.mu.draining--
	}
	s.mu.Unlock()
	wake(s.publishNow)
	wake(s.commitNow)
}

// covers reports whether name is path or below it.
func covers(path, name string) bool {
	return path == "" || name == path || strings.HasPrefix(name, path+"/")
}

// waitThrough returns when the last generation of f is published, if its path asks
// for that, or with the reason why it cannot be.
func (f *File) waitThrough(ctx context.Context) error {
	s := f.space
	if s.cfg.Through == nil {
		return nil
	}
	dir, base, linked := f.Path()
	if !linked || !s.cfg.Through(join(dir, base)) {
		return nil
	}
	s.SetDraining(true)
	defer s.SetDraining(false)
	for {
		s.mu.Lock()
		st := s.mu.Files[f.id]
		done := st == nil || !st.Linked || !st.Staged || st.PubGen == st.Gen
		var failed error
		if !done {
			if k := s.mu.Keys[st.Key]; k != nil {
				if run := s.mu.runs[max(k.Pending, k.Flight)]; run != nil && run.failing {
					failed = run.err
				}
			}
			if st.Suspect == st.Gen {
				failed = f.failure
			}
		}
		changed := s.mu.changed
		s.mu.Unlock()
		if !done && failed == nil {
			failed = s.journal.failure()
		}
		if done || failed != nil {
			return failed
		}
		wake(s.commitNow)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
		}
	}
}
