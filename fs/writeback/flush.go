package writeback

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/pailfs/pailfs/fs/writeback/internal/order"
	"github.com/pailfs/pailfs/fs/writeback/internal/state"
	"github.com/pailfs/pailfs/oss"
)

// Flush returns when everything that was closed at path or below it is in the object
// store, or, when all that is left fails for good or waits behind what does, with the
// errors of that. "" is everything. While it waits, uploads are neither paced nor held
// back.
func (s *Space) Flush(ctx context.Context, path string) error {
	return s.FlushSince(ctx, path, time.Now())
}

// FlushSince is Flush that was begun before, and is gone on with: failures count from
// then on, and what failed before is tried again.
func (s *Space) FlushSince(ctx context.Context, path string, begun time.Time) error {
	s.SetDraining(true)
	defer s.SetDraining(false)
	if err := s.commitMapped(path); err != nil {
		return err
	}
	for {
		wake(s.commitNow)
		wake(s.publishNow)
		began := time.Now()
		s.mu.Lock()
		s.hasten(path, begun)
		left := s.left(path, begun)
		changed := s.nextChange()
		s.mu.Unlock()
		if left.ended() {
			return left.error()
		}
		if err := s.journal.Failure(); err != nil {
			// Nothing is begun of which a restart would not know.
			return errors.Join(left.error(), err)
		}
		rest(ctx, began)
		select {
		case <-ctx.Done():
			return errors.Join(left.error(), ctx.Err())
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

// leftover is what a flush finds undone.
type leftover struct {
	// moving counts what may still be published, behind what waits for what failed.
	moving, behind int
	failed         []error
	// removals counts those of behind that would take the only object of a file.
	removals int
	// named is some operation that waits.
	named string
}

func (l *leftover) ended() bool { return l.moving <= 0 }

// error says what failed, nil if nothing has.
func (l *leftover) error() error {
	if l.behind == 0 || !l.ended() {
		return errors.Join(l.failed...)
	}
	return errors.Join(append(l.failed, fmt.Errorf("%d changes wait behind that, %q among them", l.behind, l.named))...)
}

// failedSince reports whether an attempt that began at begun or later has failed, and
// cannot succeed as things are. That another one is due, or under way, says nothing: others
// who wait ask for attempts without end.
func (run *opRun) failedSince(begun time.Time) bool {
	return run.failing && !run.failedFrom.Before(begun)
}

// left looks at what is due at path or below it. What was tried since begun and
// failed, and cannot succeed as things are, is failed; what the order of publication lets begin
// only after such an operation waits behind it. s.mu is held.
func (s *Space) left(path string, begun time.Time) (l leftover) {
	if path == "" && !s.mu.troubles.stuck() && len(s.mu.Losses)+len(s.mu.Tally.Suspects) == 0 {
		// What cannot be published is among these.
		return leftover{moving: len(s.mu.Ops)}
	}
	failing := false
	for id, op := range s.mu.Ops {
		run := s.mu.runs[id]
		failing = failing || run.failing || s.lost(op) != nil || s.lostBefore(op) != nil
		if path != "" && !covers(path, order.Join(op.Dir, op.Name)) {
			continue
		}
		if run.failedSince(begun) {
			l.failed = append(l.failed, remedy(order.Join(op.Dir, op.Name), run.err))
			continue
		}
		l.moving++
	}
	for id := range s.mu.Tally.Suspects {
		f := s.mu.Files[id]
		if f.Linked && covers(path, order.Join(f.Dir, f.Name)) {
			l.failed = append(l.failed, errLost(f))
			if k := s.mu.Keys[f.Key]; k != nil && s.mu.Ops[k.Pending] != nil {
				l.moving--
			}
		}
	}
	if l.moving > 0 && failing {
		s.behind(path, begun, &l)
	}
	return l
}

// behind counts what waits behind failed operations alone: nothing before it moves,
// and the order does not let it begin. s.mu is held.
func (s *Space) behind(below string, begun time.Time, l *leftover) {
	moves := false
	var causes []error
	var held []heldRemoval
	// stuck are those that do not move, with the reason, if that is their own.
	stuck := make(map[uint64]error)
	for _, v := range s.mu.Queue.Scan(s.standing, func(*order.Operation) bool { return false }) {
		run := s.mu.runs[v.Op.ID]
		if run.failedSince(begun) {
			stuck[v.Op.ID] = run.err
			if path := order.Join(v.Op.Dir, v.Op.Name); !covers(below, path) && len(causes) < maxCauses {
				causes = append(causes, remedy(path, run.err))
			}
			continue
		}
		if v.Kept != nil {
			held = append(held, heldRemoval{v.Op, v.Kept})
			continue
		}
		if f := s.lost(v.Op); f != nil {
			stuck[v.Op.ID] = errLost(f)
			if !covers(below, order.Join(f.Dir, f.Name)) && len(causes) < maxCauses {
				causes = append(causes, errLost(f))
			}
			continue
		}
		if lost := s.lostBefore(v.Op); lost != nil {
			stuck[v.Op.ID] = lost.Err()
			path := order.Join(v.Op.Dir, v.Op.Name)
			within := covers(below, path)
			if within {
				l.moving--
				l.behind++
				l.named = path
			}
			if len(causes) < maxCauses {
				causes = append(causes, fmt.Errorf("%q: %w", path, lost.Err()))
			}
			continue
		}
		// What failed before is not tried again either while something is before it.
		waits := !v.Ready && !moves && !run.running && !v.Op.Begun
		moves = moves || !waits
		if waits {
			stuck[v.Op.ID] = nil
		}
		if waits && covers(below, order.Join(v.Op.Dir, v.Op.Name)) {
			l.moving--
			l.behind++
			l.named = order.Join(v.Op.Dir, v.Op.Name)
		}
	}
	for _, h := range held {
		cause, is := stuck[h.put.ID]
		if !is || !covers(below, h.path()) {
			continue
		}
		l.moving--
		l.behind++
		l.named = h.path()
		if l.removals++; l.removals <= maxCauses {
			l.failed = append(l.failed, h.error(cause))
		}
	}
	if l.behind > 0 {
		l.failed = append(l.failed, causes...)
	}
}

// lost returns the file that op publishes if the disk lost some of it, else nil: it is
// published when it has been written anew. s.mu is held.
func (s *Space) lost(op *order.Operation) *state.File {
	if f := s.mu.Files[op.File]; f != nil && f.IsSuspect() {
		return f
	}
	return nil
}

func errLost(f *state.File) error {
	return fmt.Errorf("%q: the disk lost what was written", order.Join(f.Dir, f.Name))
}

// maxCauses is how many failures elsewhere are named that something waits behind.
const maxCauses = 3

// remedy says what failed and what would help.
func remedy(path string, err error) error {
	help := ""
	switch {
	case errors.Is(err, oss.ErrAccessDenied):
		help = ": let these credentials write, delete and read there (oss:PutObject, oss:DeleteObject, oss:GetObject, oss:ListParts, oss:ListMultipartUploads, oss:AbortMultipartUpload)"
	case errors.Is(err, oss.ErrNoBucket):
		help = ": make the bucket again"
	case errors.Is(err, oss.ErrInvalid):
		help = ": give the file another name, or remove it"
	}
	return fmt.Errorf("%q: %w%s", path, err, help)
}

// commitMapped commits what was stored through mappings of files that nobody has
// open any more, at path or below it.
func (s *Space) commitMapped(path string) error {
	s.mu.Lock()
	var files []*File
	for id, st := range s.mu.Files {
		if st.Staged && st.Linked && covers(path, order.Join(st.Dir, st.Name)) {
			files = append(files, s.file(id))
		}
	}
	s.mu.Unlock()
	var failed error
	for _, f := range files {
		if f.HasWriters() {
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

// AwaitThrough returns when f is published, if close waits for that at its path.
func (f *File) AwaitThrough(ctx context.Context) error { return f.waitThrough(ctx) }

// waitThrough returns when the last generation of f is published, if its path asks
// for that, or with the reason why it cannot be.
func (f *File) waitThrough(ctx context.Context) error {
	s := f.space
	if s.cfg.Through == nil {
		return nil
	}
	dir, base, linked := f.Path()
	if !linked || !s.cfg.Through(order.Join(dir, base)) {
		return nil
	}
	s.SetDraining(true)
	defer s.SetDraining(false)
	begun := time.Now()
	for first := true; ; first = false {
		s.mu.Lock()
		st := s.mu.Files[f.id]
		trouble := s.mu.troubles.failed() || s.mu.spoiled || len(s.mu.Losses) > 0
		done := st == nil || !st.Linked || !st.Staged || st.PubGen == st.Gen
		var failed error
		if !done && (first || trouble) {
			s.hasten(order.Join(st.Dir, st.Name), begun)
		}
		if !done {
			if k := s.mu.Keys[st.Key]; k != nil {
				if run := s.mu.runs[max(k.Pending, k.Flight)]; run != nil && run.failedSince(begun) {
					failed = run.err
				}
			}
			if st.Suspect == st.Gen {
				failed = f.failure
			}
		}
		if !done && failed == nil && trouble {
			// It may wait behind what cannot be published.
			if l := s.left(order.Join(st.Dir, st.Name), begun); l.ended() {
				failed = l.error()
			}
		}
		changed := s.nextChange()
		s.mu.Unlock()
		if !done && failed == nil {
			failed = s.journal.Failure()
		}
		if done || failed != nil {
			return failed
		}
		wake(s.commitNow)
		wake(s.publishNow)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
		}
	}
}
