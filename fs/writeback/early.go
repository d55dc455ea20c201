package writeback

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pailfs/pailfs/fs/writeback/internal/order"
	"github.com/pailfs/pailfs/fs/writeback/internal/presence"
	"github.com/pailfs/pailfs/fs/writeback/internal/state"
	"github.com/pailfs/pailfs/oss"
)

const (
	// watchEvery is how often files that are being written are looked at: writes pass
	// through the kernel, and only the staged file tells of them.
	watchEvery = 100 * time.Millisecond
	// earlyParts is how many parts of files that are still being written are sent at
	// once, of all together; none while programs write fast.
	earlyParts = 16
	// earlyRetry is how long after a failure a file is tried again.
	earlyRetry = 10 * time.Second
	// maxScan is how many parts of a file are looked at in one round.
	maxScan = 64
)

// writing is what is known of a file that is open for writing, beside its state.
// Space.mu guards it.
type writing struct {
	file *File
	// opens counts the handles, sending the requests under way. held counts those who
	// publish the file: while it is not zero, nothing more is sent.
	opens, sending, held int
	// fresh says that the content began with nothing, pubGen what was published then.
	fresh  bool
	pubGen order.Generation
	// size is what the staged file had at the last look, growth how it came to that. log
	// says that it is published while it is open, cut that it was and became shorter
	// then: it is a log also while it has less than before. What was opened to be written
	// anew is not, for what it replaces may be whole.
	size   int64
	growth growth
	log    bool
	cut    bool
	// gen is what was committed last, and committed when that was seen.
	gen       order.Generation
	committed time.Time

	// upload is where parts go, if it has begun, and key what it is for. Of the parts
	// before next, which begins at off, missing are those that were not sent.
	upload  oss.MultipartUpload
	key     string
	next    int
	off     int64
	missing []numbered
	// retry is when to try again.
	retry time.Time
}

// numbered is a part and its index.
type numbered struct {
	index int
	presence.Extent
}

// watch notes that f is opened for writing; fresh, that it begins with nothing. s.mu
// is held.
func (s *Space) watch(f *File, fresh bool) {
	w := s.mu.writing[f.id]
	if w == nil {
		w = &writing{file: f}
		if st := s.mu.Files[f.id]; st != nil && st.Partial != nil {
			w.size = max(st.Size, 0) // nothing of that was written now
		}
		s.mu.writing[f.id] = w
		if !s.watching.Load() {
			wake(s.watchNow)
		}
	}
	w.opens++
	if fresh {
		w.fresh, f.fresh = true, true
		if st := s.mu.Files[f.id]; st != nil {
			w.pubGen = st.PubGen
		}
	}
}

// unwatch notes that one who had f open for writing has let it go, and that what he
// did is committed, or will be by those who write.
func (s *Space) unwatch(f *File) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w := s.mu.writing[f.id]; w != nil {
		w.opens--
		s.forgetWriting(w)
	}
}

// forgetWriting forgets w if nobody has the file open and nothing is sent. s.mu is
// held.
func (s *Space) forgetWriting(w *writing) {
	if w.opens <= 0 && w.sending == 0 && w.held == 0 {
		delete(s.mu.writing, w.file.id)
		s.count(w.file.id)
	}
}

// holdEarly keeps new parts of a file from being sent, and returns when none is under
// way, until release is called: a late part must not take the place of a newer one.
func (s *Space) holdEarly(ctx context.Context, id order.FileID) (release func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.mu.writing[id]
	if w == nil {
		return func() {}, nil
	}
	w.held++
	release = func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		w.held--
		s.forgetWriting(w)
	}
	for w.sending > 0 {
		changed := s.nextChange()
		s.mu.Unlock()
		select {
		case <-ctx.Done():
			release()
			s.mu.Lock()
			return nil, ctx.Err()
		case <-changed:
		}
		s.mu.Lock()
	}
	return release, nil
}

// watcher looks at files that are being written until ctx ends, and waits for what
// it has begun.
func (s *Space) watcher(ctx context.Context) {
	var sending sync.WaitGroup
	defer sending.Wait()
	timer := time.NewTimer(watchEvery)
	defer timer.Stop()
	ticking := true
	s.watching.Store(true)
	s.pacing.begin(time.Now())
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.watchNow:
			if !ticking {
				s.pacing.begin(time.Now())
			}
		case <-timer.C:
			ticking = false
			// Who opens a file from now on wakes us, or is seen below.
			s.watching.Store(false)
			yielding := s.pacing.yielding.Load()
			grown, some := s.lookAtWriting()
			again := s.pacing.look(time.Now(), grown, some)
			s.pacing.crowded.Store(s.pacing.fast.Load() && s.crowded())
			if yielding && !s.yields() {
				wake(s.publishNow)
			}
			if !again {
				continue
			}
		}
		s.sendEarly(ctx, &sending, s.pacing.fast.Load())
		if !ticking {
			timer.Reset(watchEvery)
			ticking = true
			s.watching.Store(true)
		}
	}
}

// lookAtWriting looks at the size of the files that are being written. It returns by
// how much they grew since the last look, and whether there are any.
func (s *Space) lookAtWriting() (grown int64, some bool) {
	at := time.Now()
	s.mu.Lock()
	ids := slices.Collect(maps.Keys(s.mu.writing))
	s.mu.Unlock()
	for _, id := range ids {
		var st syscall.Stat_t
		if err := syscall.Stat(s.path(id), &st); err != nil {
			continue // it was unlinked, or is somewhere else by now
		}
		s.mu.Lock()
		if w := s.mu.writing[id]; w != nil {
			grown += max(st.Size-w.size, 0)
			w.cut = w.cut || w.log && st.Size < w.size
			w.growth.note(w.size, st.Size, at)
			w.size = st.Size
		}
		s.mu.Unlock()
	}
	s.commitLogs(at)
	return grown, len(ids) > 0
}

// sendEarly sends parts of files that are being written, as many as may be in flight
// now. What programs wait for comes first.
func (s *Space) sendEarly(ctx context.Context, sending *sync.WaitGroup, fast bool) {
	if s.cfg.Busy != nil && !s.hurried() && s.cfg.Busy() {
		return
	}
	s.mu.Lock()
	ids := slices.Sorted(maps.Keys(s.mu.writing))
	s.mu.Unlock()
	for _, id := range ids {
		for _, p := range s.fullParts(id, s.candidates(ctx, sending, id, fast)) {
			if !s.startEarly(ctx, sending, id, p, fast) {
				break
			}
		}
	}
}

// earlyRoom is how many more parts of f may be sent now. s.mu is held.
func (s *Space) earlyRoom(st *state.File, fast bool) int {
	room := earlyParts
	switch {
	case s.mu.draining > 0 || s.cfg.Through != nil && s.cfg.Through(order.Join(st.Dir, st.Name)):
		room = maxPartsInFlight
	case fast:
		room = 0
	}
	return room - s.mu.early
}

// sendsEarly returns the state of a file whose parts may be sent while it is being
// written, or nil. A name that looks temporary is not the one that the object will
// have. s.mu is held.
func (s *Space) sendsEarly(w *writing) *state.File {
	st := s.mu.Files[w.file.id]
	switch {
	case st == nil || !st.Staged || !st.Linked || st.Symlink || st.IsSuspect() || temporary(st.Dir, st.Name):
		return nil
	case !w.fresh || st.PubGen != w.pubGen || w.opens <= 0 || w.held > 0:
		return nil
	case w.size <= s.cfg.limits.small || w.size < 2*s.cfg.limits.part || time.Now().Before(w.retry):
		return nil
	}
	return st
}

// candidates returns parts of a file that may be full, some of those that were not
// sent yet. Where there is no upload yet it begins one.
func (s *Space) candidates(ctx context.Context, sending *sync.WaitGroup, id order.FileID, fast bool) []numbered {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.mu.writing[id]
	if w == nil {
		return nil
	}
	st := s.sendsEarly(w)
	if st == nil || s.earlyRoom(st, fast) <= 0 {
		return nil
	}
	if w.key != st.Key {
		w.key, w.upload, w.next, w.off, w.missing = st.Key, oss.MultipartUpload{}, 0, 0, nil
	}
	if w.upload.ID == "" {
		if w.sending == 0 {
			state := *st
			s.launchEarly(sending, w, func() { s.beginEarly(ctx, w, state) })
		}
		return nil
	}
	lay := s.cfg.limits.layoutOf(0)
	for len(w.missing) < maxScan {
		p := lay.part(w.next, presence.Extent{Off: w.off})
		if p.End() > w.size || w.next == maxParts {
			break
		}
		w.missing = append(w.missing, numbered{w.next, p})
		w.next, w.off = w.next+1, p.End()
	}
	return slices.Clone(w.missing)
}

// launchEarly lets do send something of a file. s.mu is held.
func (s *Space) launchEarly(sending *sync.WaitGroup, w *writing, do func()) {
	w.sending++
	s.mu.early++
	sending.Go(func() {
		do()
		s.mu.Lock()
		w.sending--
		s.mu.early--
		s.forgetWriting(w)
		s.changed()
		s.mu.Unlock()
		wake(s.watchNow)
		wake(s.settleNow)
	})
}

// beginEarly begins the upload of a file that is being written, or goes on with that of
// an earlier content which still waits.
func (s *Space) beginEarly(ctx context.Context, w *writing, st state.File) {
	var u oss.MultipartUpload
	o, err := s.describeEarly(ctx, order.Operation{Key: st.Key}, &snapshot{state: st, timeless: s.cfg.Attrs})
	found := false
	if err == nil {
		// Of one that is being completed no part may change.
		u, found = s.findUpload(st.Key, st.ID, s.cfg.limits.part, o, true)
	}
	if found {
		defer s.unuse(u.ID)
	} else if err == nil {
		if u, err = s.createUpload(ctx, state.Upload{Key: st.Key, File: st.ID, PartSize: s.cfg.limits.part}, o); err == nil {
			defer s.unuse(u.ID)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.earlyFailed(ctx, w, err)
		return
	}
	if w.key == st.Key {
		w.upload = u
	}
}

// fullParts returns those parts that the staged file has data for everywhere.
func (s *Space) fullParts(id order.FileID, parts []numbered) []numbered {
	if len(parts) == 0 {
		return nil
	}
	file, err := os.Open(s.path(id))
	if err != nil {
		return nil
	}
	defer file.Close()
	return slices.DeleteFunc(parts, func(p numbered) bool {
		hole, err := unix.Seek(int(file.Fd()), p.Off, unix.SEEK_HOLE)
		return err != nil || hole < p.End()
	})
}

// startEarly begins to send one part, and reports whether there was room.
func (s *Space) startEarly(ctx context.Context, sending *sync.WaitGroup, id order.FileID, p numbered, fast bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.mu.writing[id]
	if w == nil {
		return false
	}
	i := slices.Index(w.missing, p)
	st := s.sendsEarly(w)
	if st == nil || i < 0 || st.Key != w.key || w.upload.ID == "" || s.earlyRoom(st, fast) <= 0 {
		return false
	}
	w.missing = slices.Delete(w.missing, i, i+1)
	u := w.upload
	s.mu.using[u.ID]++
	s.launchEarly(sending, w, func() {
		defer s.unuse(u.ID)
		err := s.sendPart(ctx, id, u, p)
		s.mu.Lock()
		defer s.mu.Unlock()
		if err == nil {
			s.mu.stats.early += p.Size
			s.mu.stats.sent += p.Size
			return
		}
		if w.upload == u {
			w.missing = append(w.missing, p)
			if !endedEarly(err) { // it was cut, and is sent on when the file has that part again
				s.earlyFailed(ctx, w, err)
			}
		}
	})
	return true
}

// sendPart sends one part. What it has is compared with the staged file when that is
// published.
func (s *Space) sendPart(ctx context.Context, id order.FileID, u oss.MultipartUpload, p numbered) error {
	release, err := s.parts.acquire(ctx, 1)
	if err != nil {
		return err
	}
	defer release()
	file, err := os.Open(s.path(id))
	if err != nil {
		return fmt.Errorf("open staged file: %w", err)
	}
	defer file.Close()
	if err := s.pace(ctx, int(p.Size)); err != nil {
		return err
	}
	_, err = s.bucket.UploadPart(ctx, u, p.index+1, pacedPart{io.NewSectionReader(file, p.Off, p.Size), s})
	if errors.Is(err, oss.ErrNotFound) {
		s.uploadEnded(u.ID)
	}
	return err
}

// earlyFailed lets a file rest for a while: what could not be sent early is sent when
// it is published, and that says what is wrong. s.mu is held.
func (s *Space) earlyFailed(ctx context.Context, w *writing, err error) {
	if ctx.Err() != nil {
		return
	}
	w.retry = time.Now().Add(earlyRetry)
	if errors.Is(err, oss.ErrNotFound) {
		w.upload, w.next, w.off, w.missing = oss.MultipartUpload{}, 0, 0, nil
	}
	s.log.Debug("a file that is being written could not be sent ahead, which will be tried again", "key", w.key, "wait", earlyRetry, "err", err)
}
