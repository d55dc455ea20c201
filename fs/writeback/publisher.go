package writeback

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/pailfs/pailfs/fs/writeback/internal/order"
	"github.com/pailfs/pailfs/fs/writeback/internal/state"
	"github.com/pailfs/pailfs/manifest"
	"github.com/pailfs/pailfs/oss"
)

const (
	// smallLimit is the largest file that is sent in one request, from memory.
	smallLimit = 8 << 20
	// maxSmallBytes bounds the memory for small files. It is in the heap, so that it costs half as
	// much again.
	maxSmallBytes = 64 << 20
	// maxPrepared is how many large files are uploaded ahead of their turn.
	maxPrepared = 8
	// lookAhead is how many waiting operations are considered at a time.
	lookAhead = 4096
	// temporaryWait is how long a name that looks temporary waits for its rename.
	temporaryWait = 5 * time.Second
	// idleLook is when a loop looks at what it has to do if nothing reminds it.
	idleLook = time.Hour
	// markerWait is how long a directory waits for its removal.
	markerWait = time.Second
)

// opRun is what is known of an operation beside the state. Space.mu guards it.
type opRun struct {
	// pos is where its record ends in the journal.
	pos    int64
	wanted time.Time
	// running says that a goroutine is at it.
	running bool
	// attempts counts failures in a row; next is when to try again, err why.
	attempts int
	next     time.Time
	err      error
	// failing says that it cannot succeed as things are. waiting, that it waits for
	// the program that has the file open, unfinished, that this is still writing what
	// was committed only by the way. unsteady counts how often that has changed the
	// file while it was read.
	failing, waiting, unfinished bool
	unsteady                     int
	// renewed counts how often the content was committed again.
	renewed int
	// outpaced counts the attempts for which its large file changed too soon.
	outpaced int
	// written is when it was last found unfinished. meant says that the file was synced,
	// closed or committed since the present attempt began, which may have looked before.
	written time.Time
	meant   bool
	// open says that it waits for one of these reasons, for people.
	open bool
	// began is when the last attempt did, failedFrom when the last one that failed did.
	began, failedFrom time.Time
	// ahead is the upload that only has to be completed, tail what is known of how much
	// has to be sent.
	ahead *prepared
	tail  *tail
}

// The ways in which an attempt ends without success or failure.
var (
	errSuperseded = errors.New("superseded")
	errOpen       = errors.New("the file is open for writing")
	errLooked     = errors.New("a program may be about to open what was there")
	errNotDurable = errors.New("the content is not on disk yet")
	errDependent  = errors.New("other files need the object first")
	errConflict   = errors.New("somebody else changed the object")
	errNoCopy     = errors.New("the object may not be copied")
)

// publisher starts operations whose time has come until ctx ends, and waits for
// those that run.
func (s *Space) publisher(ctx context.Context) {
	var running sync.WaitGroup
	defer running.Wait()
	wake(s.publishNow)
	timer := time.NewTimer(idleLook)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.publishNow:
		case <-timer.C:
		}
		if s.cfg.Busy != nil && !s.hurried() && s.cfg.Busy() {
			// The programs' own reads come first; but nothing waits for ever.
			sleep(ctx, 20*time.Millisecond)
		}
		if s.yields() {
			// The watcher, or who is in a hurry, wakes us; those who close files do as well,
			// thousands of times a second.
			sleep(ctx, yieldPoll)
			continue
		}
		began := time.Now()
		next := s.dispatch(func(op order.Operation, ready bool) {
			running.Go(func() {
				s.attempt(ctx, op, ready)
				wake(s.publishNow)
			})
		})
		rest(ctx, began)
		timer.Stop()
		if !next.IsZero() {
			timer.Reset(max(time.Until(next), time.Millisecond))
		}
	}
}

// dispatch starts what may begin and returns when to look again, if not before.
func (s *Space) dispatch(start func(op order.Operation, ready bool)) (next time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.running >= order.MaxRunning {
		return next // the end of one of them wakes us
	}
	at := time.Now()
	synced := s.journal.Synced()
	later := func(t time.Time) {
		if next.IsZero() || t.Before(next) {
			next = t
		}
	}
	seen := 0
	verdicts := s.mu.Queue.Scan(s.standing, func(op *order.Operation) bool {
		if run := s.mu.runs[op.ID]; !run.failing && !run.waiting {
			seen++
		}
		return seen >= s.cfg.limits.ahead
	})
	for _, v := range verdicts {
		op, run := v.Op, s.mu.runs[v.Op.ID]
		switch {
		case s.mu.running >= order.MaxRunning:
			return next
		case run.running || op.Begun || s.mu.Keys[op.Key].Flight != 0:
			continue
		case run.pos > synced && !s.outrun(op, run):
			// The committer wakes us.
			continue
		case s.lostBefore(op) != nil:
			// Whoever writes it again wakes us.
			continue
		}
		if due := s.due(op, run); due.After(at) {
			later(due)
			continue
		}
		ahead := !v.Ready && s.large(op) && run.ahead == nil && !s.extends(op, run) && s.mu.prepared < maxPrepared
		if !v.Ready && !ahead {
			continue
		}
		run.running, run.meant, run.began = true, false, at
		s.mu.running++
		start(*op, v.Ready)
	}
	return next
}

// standing is what the order asks. s.mu is held.
func (s *Space) standing(op *order.Operation) order.Standing {
	run := s.mu.runs[op.ID]
	kept := s.mu.KeptFor(op)
	held := s.lastCopy(op, kept)
	refused := run.failing || s.lostBefore(op) != nil
	return order.Standing{
		Failing: refused || run.waiting || run.unsteady >= maxUnsteady,
		Refused: refused,
		Absent:  run.unfinished && !s.mu.Kept[op.ID] || held,
		Kept:    kept,
		Held:    held,
		Small:   s.small(op),
	}
}

// small reports whether op is a new small file or a directory. s.mu is held.
func (s *Space) small(op *order.Operation) bool {
	f := s.mu.Files[op.File]
	return op.Kind == order.Marker || op.Kind == order.Put && !op.Barrier && f != nil && f.Size <= s.cfg.limits.small
}

// large reports whether op uploads a file in parts. s.mu is held.
func (s *Space) large(op *order.Operation) bool {
	f := s.mu.Files[op.File]
	return op.Kind == order.Put && f != nil && f.Staged && f.Size > s.cfg.limits.small
}

// extends reports whether it is known that little of a large file has to be sent. s.mu
// is held.
func (s *Space) extends(op *order.Operation, run *opRun) bool {
	f := s.mu.Files[op.File]
	if f != nil && f.Partial != nil {
		return true
	}
	return run.tail != nil && !run.tail.none() && f != nil && run.tail.gen == f.Gen
}

// due is when op may be tried. s.mu is held.
func (s *Space) due(op *order.Operation, run *opRun) time.Time {
	if s.mu.draining > 0 {
		return run.next
	}
	due := run.next
	switch {
	case op.Kind == order.Marker:
		due = latest(due, run.wanted.Add(markerWait))
	case op.Kind == order.Put && temporary(op.Dir, op.Name):
		due = latest(due, run.wanted.Add(temporaryWait))
	}
	return due
}

// temporary reports whether a name looks as if it will be renamed.
func temporary(dir, base string) bool {
	if strings.HasPrefix(base, ".") || strings.HasSuffix(base, ".tmp") || strings.HasSuffix(base, ".part") || strings.HasPrefix(base, "tmp_obj_") ||
		strings.HasPrefix(base, "tmp_pack_") || strings.HasPrefix(base, "tmp_idx_") {
		return true
	}
	return strings.HasSuffix(dir, ".tmp") || strings.Contains(dir, ".tmp/")
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// attempt tries to carry out op, or if it is not ready, what can be done before.
func (s *Space) attempt(ctx context.Context, op order.Operation, ready bool) {
	var err error
	s.mu.Lock()
	was, large := order.Generation(0), s.large(&op)
	if large {
		was = s.mu.Files[op.File].Gen
	}
	s.mu.Unlock()
	switch op.Kind {
	case order.Delete:
		err = s.publishDelete(ctx, op)
	case order.Marker:
		err = s.publishMarker(ctx, op)
	default:
		err = s.publishPut(ctx, op, ready)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.running--
	run := s.mu.runs[op.ID]
	now := s.mu.Ops[op.ID]
	if now == nil {
		delete(s.mu.runs, op.ID)
		return
	}
	run.running = false
	if f := s.mu.Files[op.File]; large && f != nil && f.Gen != was && (errors.Is(err, errSuperseded) || errors.Is(err, errUnsteady)) || large && errors.Is(err, errCut) {
		run.outpaced++
		s.mu.troubles.unquiet(op.ID)
	}
	if now.Begun {
		// It was sent, and what became of it is not known.
		s.record(s.mu.Undoing(now))
		if s.mu.Ops[op.ID] == nil {
			delete(s.mu.runs, op.ID)
			return
		}
	}
	s.judge(ctx, &op, run, err)
}

// judge decides when to try again. s.mu is held.
func (s *Space) judge(ctx context.Context, op *order.Operation, run *opRun, err error) {
	at := time.Now()
	run.open = errors.Is(err, errRipening) || errors.Is(err, errUnfinished) || errors.Is(err, errUnsteady) || errors.Is(err, errOpen) || errors.Is(err, errLooked)
	run.waiting, run.unfinished = false, false
	delete(s.mu.unfinished, op.ID)
	if s.mu.Kept[op.ID] && ctx.Err() == nil && s.restless(op, run, err) {
		s.giveUpKept(*op)
		return
	}
	switch {
	case err == nil:
		run.next = time.Time{}
		return
	case ctx.Err() != nil:
		return
	case errors.Is(err, errRipening):
		run.next = at.Add(openPoll)
		return
	case errors.Is(err, errUnfinished) && run.meant:
		// What was closed since must not appear without it.
		run.next = time.Time{}
		return
	case errors.Is(err, errUnfinished):
		run.unfinished, run.written = true, at
		s.mu.unfinished[op.ID] = true
		run.next = at.Add(openPoll)
		return
	case errors.Is(err, errUnsteady):
		run.unsteady++
		s.mu.troubles.unquiet(op.ID)
		run.next = at.Add(min(openPoll<<min(run.unsteady-1, 8), openWait))
		return
	case errors.Is(err, errOpen):
		run.waiting = true
		run.next = at.Add(openPoll)
		return
	case errors.Is(err, errSuperseded), errors.Is(err, errLooked), errors.Is(err, errNotDurable), errors.Is(err, errDependent), errors.Is(err, errConflict):
		run.next = at.Add(20 * time.Millisecond)
		return
	}
	run.attempts++
	run.failing = permanent(err)
	wait := min(time.Second<<min(run.attempts-1, 6), time.Minute)
	if run.failing {
		wait = min(10*time.Second<<min(run.attempts-1, 5), 5*time.Minute)
	}
	run.next, run.err, run.failedFrom = at.Add(wait), err, run.began
	s.mu.stats.failures++
	s.mu.troubles.fail(op.ID, run.failing)
	if f := s.mu.files[op.File]; f != nil && op.File != 0 && run.failing {
		if f.failure == nil || f.failure.Error() != err.Error() {
			f.failure, f.told = err, false
		}
	}
	s.log.Warn("publishing failed and will be tried again", "doing", op.Kind.String(), "path", order.Join(op.Dir, op.Name), "key", op.Key,
		"attempt", run.attempts, "wait", wait, "err", err)
	s.changed()
}

// permanent reports whether trying again soon cannot help.
func permanent(err error) bool {
	return errors.Is(err, errBaseGone) || errors.Is(err, errDamaged) || errors.Is(err, oss.ErrAccessDenied) || errors.Is(err, oss.ErrNoBucket) || errors.Is(err, oss.ErrInvalid) || errors.Is(err, oss.ErrCorrupted)
}

// begin records that the request of op is about to be sent. It fails with
// errSuperseded if op is not wanted any more.
func (s *Space) begin(op order.Operation, gen order.Generation, i state.Intent, still func() error) error {
	s.mu.Lock()
	if s.mu.Ops[op.ID] == nil || s.mu.Keys[op.Key].Flight != 0 {
		s.mu.Unlock()
		return errSuperseded
	}
	if run := s.mu.runs[op.ID]; run.pos > s.journal.Synced() {
		// What loss of power could undo must not be seen by others.
		s.mu.Unlock()
		wake(s.commitNow)
		return errNotDurable
	}
	if still != nil {
		if err := still(); err != nil {
			s.mu.Unlock()
			return err
		}
	}
	pos := s.record(&state.Begun{Op: op.ID, Gen: gen, Intent: i})
	s.mu.Unlock()
	// After the loss of power the object is known as ours only by this record. Those who
	// begin at once share a flush.
	return s.journal.Sync(pos)
}

// done records the success of op.
func (s *Space) done(op order.Operation, obj oss.Object, crc uint64) error {
	dir, base := op.Target()
	// Before the record, with which the key may cease to be hidden: nobody may see
	// then what the base tree remembers of it.
	s.renew(dir, base)
	s.mu.Lock()
	before := oss.Object{}
	if k := s.mu.Keys[op.Key]; k != nil {
		before = k.Remote
	}
	records := []state.Record{&state.Done{Op: op.ID, Object: obj, CRC: crc}}
	if r := s.mu.Carried(op, before, obj, crc); r != nil {
		records = append(records, r)
	}
	pos := s.record(state.OneOf(records))
	if s.mu.Keys[op.Key] == nil {
		s.mu.forgets++
	}
	s.mu.stats.published[op.Kind]++
	if f := s.mu.files[op.File]; f != nil && op.File != 0 {
		f.failure, f.told = nil, false
		if st := s.mu.Files[op.File]; st != nil && st.PubGen == st.Gen {
			f.fresh = false
		}
	}
	s.mu.Unlock()
	if op.Kind != order.Marker && before.ETag != "" && !state.SameBytes(before, obj) {
		s.cache.Drop(before)
	}
	s.settleLater(dir, base, pos)
	return s.journal.Write(pos)
}

// sent counts bytes that the object store took.
func (s *Space) sent(n int64) {
	s.mu.Lock()
	s.mu.stats.sent += n
	s.mu.Unlock()
}

// check compares the key of op with what is believed of it. It returns what the key
// holds; errConflict if that is somebody else's doing. want is the content that op
// would put there, upload what it would be made of, if it is.
func (s *Space) check(ctx context.Context, op order.Operation, want state.Intent, upload string) (oss.Info, error) {
	if err := s.silence(ctx, op.Key, upload); err != nil {
		return oss.Info{}, err
	}
	info, err := s.bucket.Head(ctx, op.Key)
	if errors.Is(err, oss.ErrNotFound) {
		info, err = oss.Info{Object: state.Absent(op.Key)}, nil
	}
	if err != nil {
		return oss.Info{}, fmt.Errorf("compare %q: %w", op.Key, err)
	}
	s.mu.Lock()
	var ours []state.Intent
	if s.mu.Ops[op.ID] != nil && !s.mu.Expected(op, info) {
		ours = s.mu.OursAt(op, want)
	}
	s.mu.Unlock()
	if info, err = s.undisputed(ctx, info, ours); err != nil {
		return oss.Info{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.Ops[op.ID] == nil {
		return oss.Info{}, errSuperseded
	}
	k := s.mu.Keys[op.Key]
	if s.mu.Expected(op, info) {
		return info, nil
	}
	found := want.Matches(info)
	for _, i := range k.Maybe {
		found = found || i.Matches(info)
	}
	if found {
		s.record(&state.Seen{Key: op.Key, Object: info.Object})
		return info, nil
	}
	if info.ETag == "" {
		// Somebody removed it. There is nothing that could be lost.
		s.record(&state.Seen{Key: op.Key, Object: info.Object})
		return info, nil
	}
	s.conflicting(op, info.Object)
	return oss.Info{}, errConflict
}

// conflicting leaves the key of op to found. s.mu is held.
func (s *Space) conflicting(op order.Operation, found oss.Object) {
	if s.mu.Kept[op.ID] {
		// What has taken its name meets the same.
		s.giveUpKept(op)
		return
	}
	r := &state.Conflicted{Op: op.ID, Time: now(), Found: found}
	var late []state.Record
	if op.Kind == order.Put {
		r.To = s.conflictPlace(op)
		if f := s.mu.Files[op.File]; f != nil {
			late = s.mu.PuttingOff(f, r.To.Key, r.Time)
		}
	}
	s.record(state.Together(r, late))
	s.log.Warn("somebody else changed what was changed here: both are kept", "path", order.Join(op.Dir, op.Name), "key", op.Key, "ours", order.Join(r.To.Dir, r.To.Name))
	s.mu.stats.conflicts++
	s.mu.notices = append(s.mu.notices, state.NameID{Dir: op.Dir, Name: op.Name})
	if op.Kind == order.Put {
		s.mu.notices = append(s.mu.notices, state.NameID{Dir: r.To.Dir, Name: r.To.Name})
	}
}

// conflictPlace returns where ours goes. s.mu is held.
func (s *Space) conflictPlace(op order.Operation) state.Place {
	suffix := ".conflict-" + time.Now().UTC().Format("20060102T150405Z") + "-" + s.cfg.Host
	stem := op.Name
	if over := max(len(stem)+len(suffix)+4-maxName, len(op.Key)+len(suffix)+4-maxKey); over > 0 {
		// Names are bytes; one with half a character is still a name.
		stem = stem[:max(len(stem)-over, 1)]
	}
	for n := 1; ; n++ {
		tail := suffix
		if n > 1 {
			tail += fmt.Sprintf("-%d", n)
		}
		key, err := manifest.KeyOf(s.cfg.Prefix, op.Dir, stem+tail)
		if err != nil {
			// An escaped name that cannot be lengthened.
			stem, key = "conflict", op.Key[:strings.LastIndexByte(op.Key, '/')+1]+"conflict"+tail
		}
		if _, taken := s.mu.Lookup(op.Dir, stem+tail); !taken {
			return state.Place{Dir: op.Dir, Name: stem + tail, Key: key, Base: state.Absent(key)}
		}
	}
}
