package writeback

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/pailfs/pailfs/fs/writeback/internal/order"
	"github.com/pailfs/pailfs/fs/writeback/internal/state"
	"github.com/pailfs/pailfs/manifest"
	"github.com/pailfs/pailfs/oss"
)

// settle is a name that may be the base tree's again soon.
type settle struct {
	id state.NameID
	// next is when to look; pos what must be on the disk first.
	next time.Time
	pos  int64
	// renewed says that the base tree was told to ask again, since it showed something
	// else.
	renewed bool
	// putOff is since when it waits for uploads.
	putOff time.Time
}

const (
	// settleBusy is how many operations are under way while settling waits: it asks the
	// store for listings, which come before uploads, and the disk for the cache's index.
	settleBusy = 16
	// settleWait is for how long at most, settlePoll how often it is looked at.
	settleWait = 10 * time.Second
	settlePoll = time.Second
)

// putOff reports whether a name is to be settled later. Nobody waits for that, unless
// staged files take up the room of those that are written.
func (s *Space) putOff(x *settle) bool {
	s.mu.Lock()
	busy := s.mu.running >= settleBusy
	s.mu.Unlock()
	if !busy {
		return false
	}
	if s.cfg.StagingSize > 0 {
		if used, err := s.usage(); err != nil || used > s.cfg.StagingSize/2 {
			return false
		}
	}
	if x.putOff.IsZero() {
		x.putOff = time.Now()
	}
	return time.Since(x.putOff) < settleWait
}

// forgetter is a base tree that asks again for a name when it is told to.
type forgetter interface {
	Forget(dir, name string)
}

// renew lets the base tree ask for a name again. What it says of the name after that
// was so at the time of this call or later.
func (s *Space) renew(dir, base string) {
	if t, ok := s.base.(forgetter); ok {
		t.Forget(dir, base)
	}
}

// settleLater compares a name with the base tree once everything up to pos is on
// the disk. Where something is pending there is nothing to compare, and its end
// reminds of it.
func (s *Space) settleLater(dir, base string, pos int64) {
	id := state.NameID{Dir: dir, Name: base}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.quiet(id); !ok {
		return
	}
	if before := s.mu.settling.names[id]; before != nil {
		pos = max(pos, before.pos)
	}
	s.mu.settling.add(id, pos)
	wake(s.settleNow)
}

// settler hands published files to the cache and names to the base tree, until ctx
// ends.
func (s *Space) settler(ctx context.Context) {
	wake(s.settleNow)
	timer := time.NewTimer(idleLook)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.settleNow:
		case <-timer.C:
		}
		for _, x := range s.toSettle() {
			if ctx.Err() != nil {
				return
			}
			s.settleName(ctx, x)
		}
		s.releaseUnkept()
		retry := s.abortUseless(ctx)
		s.notify()
		// Only now is it known which of them have to be looked at again.
		next := s.settlesNext()
		if !retry.IsZero() && (next.IsZero() || retry.Before(next)) {
			next = retry
		}
		timer.Stop()
		if !next.IsZero() {
			timer.Reset(max(time.Until(next), time.Millisecond))
		}
	}
}

// toSettle returns the names that are due.
func (s *Space) toSettle() []*settle {
	synced := s.journal.Synced()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.settling.due(synced, time.Now())
}

// settlesNext returns when the next name is due; the zero time if none is.
func (s *Space) settlesNext() time.Time {
	synced := s.journal.Synced()
	s.mu.Lock()
	defer s.mu.Unlock()
	_, when := s.mu.settling.first(synced, time.Now())
	return when
}

// notify tells whoever wants to know of names that changed without a call.
func (s *Space) notify() {
	s.mu.Lock()
	names := s.mu.notices
	s.mu.notices = nil
	s.mu.Unlock()
	for _, n := range names {
		s.renew(n.Dir, n.Name)
		if s.cfg.Changed != nil {
			s.cfg.Changed(n.Dir, n.Name)
		}
	}
}

// quiet reports what the space says of a name if nothing is pending there. s.mu is
// held.
func (s *Space) quiet(id state.NameID) (n state.Name, ok bool) {
	n, ok = s.mu.Lookup(id.Dir, id.Name)
	if !ok {
		return n, false
	}
	if n.Kind != state.NameDirectory && len(s.mu.Names[order.Join(id.Dir, id.Name)]) > 0 {
		// The base tree may show a directory for what is still below it.
		return n, false
	}
	// A file and a directory of one name are two keys, and the name of either in the
	// base tree depends on both.
	file := strings.TrimSuffix(n.Key, "/")
	return n, s.idle(file) && s.idle(file+"/")
}

// idle reports whether nothing is to be done at a key. s.mu is held.
func (s *Space) idle(key string) bool {
	k := s.mu.Keys[key]
	return k == nil || k.Pending == 0 && k.Flight == 0 && s.mu.KeptAt[key] == 0
}

// settleName does what is possible for one name, and forgets that it is to be
// settled if something else will remind of it: the end of an operation, or a
// release.
func (s *Space) settleName(ctx context.Context, reminder *settle) {
	id := reminder.id
	s.mu.Lock()
	if s.mu.settling.over(reminder) {
		s.mu.Unlock()
		return
	}
	n, ok := s.quiet(id)
	var f *File
	var st state.File
	if ok && n.Kind == state.NameFile {
		f, st = s.file(n.File), *s.mu.Files[n.File]
	}
	s.mu.Unlock()
	again := time.Duration(0)
	switch {
	case !ok:
	case s.putOff(reminder):
		again = settlePoll
	case f != nil && st.Staged && st.Gen == st.BaseGen && st.Object.ETag != "":
		again = s.released(f)
	case f != nil && st.Staged:
		if st.PubGen == st.Gen && st.Gen > 0 {
			again = s.adopt(ctx, f)
		}
	case f != nil && st.Object.ETag == "":
	default:
		again = s.vouch(ctx, id, n, f, st.Object, reminder)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if again == 0 {
		s.mu.settling.end(reminder)
		return
	}
	s.mu.settling.rest(reminder, time.Now().Add(again))
}

// adoptRetry is how long after it gave way an adoption is tried again.
const adoptRetry = time.Second

// adopt gives the staged file of a published file to the cache, if nobody has it
// open. It returns when to try again.
func (s *Space) adopt(ctx context.Context, f *File) time.Duration {
	ctx, end := context.WithCancel(ctx)
	defer end()
	f.giveWay.Store(&end)
	defer f.giveWay.Store(nil)
	if f.opening.Load() > 0 {
		return adoptRetry // it may not have seen that there is something to end
	}
	f.committing.Lock()
	defer f.committing.Unlock()
	f.adopting.Lock()
	defer f.adopting.Unlock()
	f.content.Lock()
	st := f.state()
	if f.busy() || st.ID == 0 || !st.Staged || st.PubGen != st.Gen {
		f.content.Unlock()
		return 0
	}
	changed, again := s.settled(f)
	if changed || again > 0 {
		f.content.Unlock()
		return again
	}
	if f.lacks() {
		err := f.letGo()
		f.content.Unlock()
		if err != nil {
			s.log.Error("recording that a file is published failed", "err", err)
			return 0
		}
		return time.Nanosecond
	}
	// Who asks for size and bytes meanwhile finds them here, wherever the name goes.
	err := f.openStaged()
	f.content.Unlock()
	if err != nil {
		s.log.Warn("opening a published file failed", "err", err)
		return time.Minute
	}
	defer f.closeUnused()
	// What the cache does to the file is no change of it. No store through a mapping can hide
	// behind that: the file was sealed, so none is left that could be written through, and who
	// opens it to make one waits for f.committing until the times are noted again.
	ctime, err := ctimeOf(s.path(f.id))
	if err != nil {
		s.log.Warn("looking at a published file failed", "err", err)
		return time.Minute
	}
	f.changed.move(ctime)
	defer func() {
		left, _ := ctimeOf(s.path(f.id)) // 0 if the cache has it
		f.changed.moved(left)
	}()
	moved, err := s.cache.Adopt(ctx, st.Published, st.PubCRC, s.path(f.id))
	if !moved {
		// What the cache took and threw away is in the object store: the staged file is gone.
		_, missing := os.Lstat(s.path(f.id))
		moved = errors.Is(missing, os.ErrNotExist)
	}
	if !moved && ctx.Err() != nil {
		return adoptRetry
	}
	if err != nil {
		s.log.Warn("the cache could not take a published file", "path", order.Join(st.Dir, st.Name), "err", err)
	}
	same := moved
	if !moved {
		same, again = s.same(ctx, f, st.PubCRC)
		if again > 0 {
			return again
		}
	}
	f.content.Lock()
	defer f.content.Unlock()
	if !same {
		f.touched.Store(true)
		_, again = s.settled(f)
		return again
	}
	s.mu.Lock()
	if now := s.mu.Files[f.id]; now == nil {
		s.mu.Unlock()
		return 0
	}
	pos := s.record(&state.Adopted{File: f.id})
	f.present.Store(nil)
	s.survives(f.id, pos)
	s.mu.Unlock()
	if err := s.journal.Write(pos); err != nil {
		s.log.Error("recording that the cache has a file failed", "err", err)
		return 0
	}
	if !moved {
		s.removeStaged(f.id)
	}
	return time.Nanosecond
}

// settled makes sure that nobody can change the staged file of f any more, and
// commits what was changed since the last commit, if anything was. again is when to
// look again, if that cannot be known now. f.committing is held and f.content locked.
func (s *Space) settled(f *File) (changed bool, again time.Duration) {
	file, err := openStagedFile(s.path(f.id), os.O_RDONLY)
	if err != nil {
		s.log.Warn("opening a staged file failed", "err", err)
		return false, time.Minute
	}
	defer file.Close()
	if tight, err := sealed(file); err != nil || !tight {
		return false, time.Second
	}
	changed, r, err := f.compare(file, false)
	if err != nil {
		s.log.Warn("looking at a staged file failed", "err", err)
		return false, time.Minute
	}
	if !changed {
		return false, 0
	}
	if err := s.recordCommit(f, r, false); err != nil {
		s.log.Error("recording a change failed", "file", f.id, "err", err)
	}
	return true, 0
}

// same reports whether the staged file of f, which nobody can change any more, has the
// CRC-64 of what was published: a store into a page that was still to be written back
// does not show in the time.
func (s *Space) same(ctx context.Context, f *File, crc uint64) (same bool, again time.Duration) {
	file, err := os.Open(s.path(f.id))
	if err != nil {
		s.log.Warn("opening a published file failed", "err", err)
		return false, time.Minute
	}
	defer file.Close()
	var sum oss.CRC64Writer
	for err = nil; err == nil; {
		if ctx.Err() != nil {
			return false, adoptRetry
		}
		_, err = io.CopyN(&sum, file, 1<<20)
	}
	if !errors.Is(err, io.EOF) {
		s.log.Warn("reading a published file failed", "err", err)
		return false, time.Minute
	}
	return uint64(sum) == crc, 0
}

// vouch leaves a name to the base tree if that shows what is so, or if somebody has
// changed the bucket since. It returns when to try again.
func (s *Space) vouch(ctx context.Context, id state.NameID, n state.Name, f *File, obj oss.Object, reminder *settle) time.Duration {
	e, _, err := s.base.Lookup(ctx, id.Dir, id.Name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 5 * time.Second
	}
	same := false
	switch n.Kind {
	case state.NameGone:
		same = err != nil
	case state.NameDirectory:
		same = err == nil && e.Kind == manifest.Directory && s.shows(n, &e)
	case state.NameFile:
		same = err == nil && e.Kind != manifest.Directory && state.SameBytes(e.Object, obj)
		if same && f.state().Symlink && e.Kind != manifest.Symlink {
			// A listing shows our symlinks as files.
			return 0
		}
	}
	if _, live := s.base.(forgetter); !live && !same {
		return time.Minute
	}
	if !same && !reminder.renewed {
		reminder.renewed = true
		s.renew(id.Dir, id.Name)
		return time.Nanosecond
	}
	if f != nil {
		if !f.committing.try() {
			// Somebody fetches the content, which may take long, to write to it: without f all
			// of it would have to be fetched again.
			return time.Second
		}
		defer f.committing.Unlock()
		f.content.RLock()
		defer f.content.RUnlock()
		if f.busy() {
			return 0
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if now, ok := s.quiet(id); !ok || now != n {
		return 0
	}
	if f != nil {
		st := s.mu.Files[n.File]
		if st.Staged || st.Object != obj || st.Key != n.Key || obj.Key != st.Key {
			return 0
		}
	}
	if f != nil {
		s.remember(f, obj)
		f.forget()
		if same {
			f.last.Object = e.Object // its exact time
		}
	}
	s.record(&state.Forgotten{Dir: id.Dir, Name: id.Name})
	s.mu.forgets++
	if !same {
		s.mu.notices = append(s.mu.notices, id)
	}
	return 0
}
