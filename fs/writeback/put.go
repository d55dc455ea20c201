package writeback

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/pailfs/pailfs/fs/writeback/internal/attrs"
	"github.com/pailfs/pailfs/fs/writeback/internal/order"
	"github.com/pailfs/pailfs/fs/writeback/internal/state"
	"github.com/pailfs/pailfs/oss"
)

// snapshot is the content of one generation that nobody changes any more, or did
// not while it was read.
type snapshot struct {
	state state.File
	file  *os.File
	// opens is what File.opens was before; sealed says that it could not change.
	opens  int64
	sealed bool
	// mark is the moment among the cuts of the file since which it was read.
	cuts *cuts
	mark cutMark
	// log says that it grows at its end alone. crc is the CRC-64 that it had at one moment,
	// if it is not sealed.
	log bool
	crc uint64
	// outrun says that it was committed again and again before it could be published.
	outrun bool
	// upload has the parts that the object is made of, if it is; timeless says that it was
	// begun before the time of the last write was known.
	upload   string
	timeless bool
	// anew, if set, reads what there is when the request is about to be sent, and
	// holds it until release is called.
	anew func() (release func(), now state.Intent, err error)
}

// snapshot takes the content of the file of op. It fails with errOpen while
// somebody may still change it, unless that has lasted long enough.
func (s *Space) snapshot(op order.Operation) (*snapshot, error) {
	s.mu.Lock()
	f := s.mu.files[op.File]
	if s.mu.Files[op.File] != nil && f == nil {
		f = s.file(op.File)
	}
	s.mu.Unlock()
	if f == nil {
		return nil, errSuperseded
	}
	opens, mark := f.opens.Load(), f.cuts.mark()
	look := glance{open: f.HasWriters()}
	before := f.state().Gen
	if !look.open {
		// A change through a mapping, after the last close, counts as well.
		if err := f.commit(false); err != nil {
			return nil, err
		}
	}
	s.mu.Lock()
	st := s.mu.Files[op.File]
	same := st != nil && s.mu.Ops[op.ID] != nil && (st.Linked || s.mu.Kept[op.ID]) && st.Key == op.Key
	var state state.File
	there, outrun := false, false
	if same {
		state = *st
		run := s.mu.runs[op.ID]
		look.wanted, look.written, look.meant = run.wanted, run.written, f.meant > st.PubGen
		look.changed = st.Gen != before
		k := s.mu.Keys[op.Key]
		there = k.Remote.Same(st.Object) && len(k.Maybe) == 0
		outrun = s.outrun(&op, run) && (st.Described().ETag == "" || st.Described().Key == st.Key)
	}
	growing := s.mu.writing[op.File] != nil && s.mu.writing[op.File].log
	s.mu.Unlock()
	switch {
	case !same:
		return nil, errSuperseded
	case !state.Linked && look.changed:
		return nil, errUnfinished
	case !state.Staged:
		return &snapshot{state: state, opens: opens, cuts: &f.cuts, mark: mark, sealed: true}, nil
	case state.IsSuspect():
		return nil, errOpen
	case state.Gen == state.BaseGen:
		// Nothing of it was committed: renamed while it is being written, or only its
		// attributes were set. Then the key has what a crash would lead back to.
		if !state.Linked {
			return nil, errUnfinished
		}
		if !look.open {
			s.released(f)
		}
		if there {
			return nil, errUnfinished
		}
		return nil, errOpen
	case state.Durable < state.Gen && !outrun:
		return nil, errNotDurable
	}
	file, err := openStagedFile(s.path(f.id), os.O_RDONLY)
	if err != nil {
		return nil, fmt.Errorf("open staged file: %w", err)
	}
	snap := &snapshot{state: state, file: file, opens: opens, cuts: &f.cuts, mark: mark, log: growing}
	if snap.sealed, err = sealed(file); err != nil {
		snap.close()
		return nil, err
	}
	snap.sealed = snap.sealed && !look.open
	snap.outrun = outrun && snap.sealed
	if state.Durable < state.Gen && !snap.outrun {
		snap.close()
		return nil, errNotDurable
	}
	if !snap.sealed && !growing && !s.through(op) {
		err := s.rewritten(f, file, &state, look)
		if err == nil {
			err = s.ripe(f, file, &state, look)
		}
		if err != nil {
			snap.close()
			return nil, err
		}
	}
	return snap, nil
}

func (n *snapshot) close() {
	if n.file != nil {
		n.file.Close() //nolint:errcheck // it was only read
	}
}

// current says whether what was read is what the file had all the time. Space.mu is
// held.
func (n *snapshot) current(s *Space, op order.Operation) error {
	st := s.mu.Files[op.File]
	f := s.mu.files[op.File]
	switch {
	case st != nil && st.Gen != n.state.Gen && !n.sealed:
		return errUnsteady
	case st == nil || st.Gen != n.state.Gen || st.Key != op.Key || st.Staged != n.state.Staged || st.Object != n.state.Object || st.Attr != n.state.Attr || !st.XAttrs.Same(n.state.XAttrs) || st.Stamp != n.state.Stamp:
		return errSuperseded
	case n.sealed && f != nil && f.opens.Load() != n.opens:
		return errRipening
	}
	return nil
}

// through reports whether close and fsync of the file of op wait for its
// publication.
func (s *Space) through(op order.Operation) bool {
	return s.cfg.Through != nil && s.cfg.Through(order.Join(op.Dir, op.Name))
}

// publishPut makes the key of op hold what its file holds. Where it is not ready,
// the parts of a large file are uploaded ahead.
func (s *Space) publishPut(ctx context.Context, op order.Operation, ready bool) error {
	if err := s.heldBack(op.Key); err != nil && ready {
		return err
	}
	snap, err := s.snapshot(op)
	if err != nil {
		return err
	}
	defer snap.close()
	switch {
	case !snap.state.Staged:
		if !ready {
			return errSuperseded
		}
		return s.publishCopy(ctx, op, snap)
	case s.lacks(op.File):
		if !ready {
			return errSuperseded
		}
		return s.publishPartial(ctx, op, snap)
	case snap.state.Size > s.cfg.limits.small && !ready && !snap.sealed:
		// What is uploaded ahead counts only if nobody can write any more.
		return errRipening
	}
	if snap.outrun && ready {
		return s.publishSmall(ctx, op, snap)
	}
	if !snap.sealed {
		if err := s.moment(ctx, op, snap); err != nil {
			return err
		}
	}
	t, err := s.tailOf(ctx, op, snap)
	switch {
	case err != nil:
		return err
	case !t.none() && !ready:
		// There is nothing to send ahead.
		return errSuperseded
	case !t.none():
		err := s.publishTail(ctx, op, snap, t)
		// An upload that is gone is unavailable and not found: the tail is sent again.
		if errors.Is(err, oss.ErrUnavailable) || !errors.Is(err, oss.ErrChanged) && !errors.Is(err, oss.ErrNotFound) && !errors.Is(err, errNoCopy) {
			return err
		}
		// Somebody has replaced the object, and what follows meets him; or all has to be sent.
	}
	switch {
	case snap.state.Size > s.cfg.limits.small:
		return s.publishLarge(ctx, op, snap, ready)
	case !ready:
		return errSuperseded
	default:
		return s.publishSmall(ctx, op, snap)
	}
}

// publishSmall sends a file in one request.
func (s *Space) publishSmall(ctx context.Context, op order.Operation, snap *snapshot) error {
	size := snap.state.Size
	if snap.outrun {
		// It is read anew, and may have grown.
		size = s.cfg.limits.small
	}
	release, err := s.memory.acquire(ctx, size)
	if err != nil {
		return err
	}
	defer release()
	content := make([]byte, snap.state.Size)
	if err := readFull(snap.file, content); err != nil {
		return snap.explain(err)
	}
	i := state.Intent{Kind: order.Put, Size: int64(len(content)), CRC: oss.CRC64(content)}
	if err := snap.still(i.CRC); err != nil {
		return err
	}
	if err := s.pace(ctx, len(content)); err != nil {
		return err
	}
	if snap.outrun {
		snap.anew = func() (release func(), now state.Intent, err error) {
			if release, err = s.hold(ctx, op, snap); err != nil {
				return nil, state.Intent{}, err
			}
			content = make([]byte, snap.state.Size)
			if err := readFull(snap.file, content); err != nil {
				release()
				return nil, state.Intent{}, snap.explain(err)
			}
			return release, state.Intent{Kind: order.Put, Size: int64(len(content)), CRC: oss.CRC64(content)}, nil
		}
	}
	return s.replace(ctx, op, snap, i, func(there oss.Info) (oss.PutOptions, error) {
		return s.describe(ctx, snap, there)
	}, func(o oss.PutOptions) (oss.Info, error) {
		o.RoughTime = true
		info, err := s.bucket.Put(ctx, op.Key, bytes.NewReader(content), o)
		if err == nil {
			s.sent(int64(len(content)))
			s.noted(info.Object, o.Meta)
		}
		return info, err
	})
}

// readFull fills b from the beginning of file, which may have become shorter.
func readFull(file *os.File, b []byte) error {
	n, err := file.ReadAt(b, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read staged file: %w", err)
	}
	if n < len(b) {
		return errTooShort
	}
	return nil
}

// replace compares the key, begins op, makes the object with send and the options
// that describe returns, and records what became of it.
func (s *Space) replace(ctx context.Context, op order.Operation, snap *snapshot, i state.Intent,
	describe func(there oss.Info) (oss.PutOptions, error), send func(o oss.PutOptions) (oss.Info, error),
) error {
	if err := s.heldBack(op.Key); err != nil {
		return err
	}
	s.mu.Lock()
	if s.mu.Ops[op.ID] == nil {
		s.mu.Unlock()
		return errSuperseded
	}
	if blocking := s.blocking(&op); len(blocking) > 0 {
		s.mu.Unlock()
		return s.free(ctx, op, blocking)
	}
	k := s.mu.Keys[op.Key]
	unseen := !k.Present() && len(k.Maybe) == 0
	s.mu.Unlock()
	var there oss.Info
	var err error
	if !unseen {
		if there, err = s.check(ctx, op, i, snap.upload); err != nil {
			return err
		}
	}
	release := func() {}
	if snap.anew != nil {
		if release, i, err = snap.anew(); err != nil {
			return err
		}
	}
	o, err := describe(there)
	if err == nil {
		o.ForbidOverwrite = there.ETag == ""
		err = s.begin(op, snap.state.Gen, i, func() error {
			if len(s.blocking(&op)) > 0 {
				return errDependent
			}
			return snap.current(s, op)
		})
	}
	release()
	if err != nil {
		return err
	}
	if i.Matches(there) && maps.Equal(there.Meta, o.Meta) {
		// An earlier attempt, perhaps before a crash, has come so far.
		s.noted(there.Object, o.Meta)
		return s.done(op, there.Object, i.CRC)
	}
	info, err := send(o)
	if errors.Is(err, oss.ErrExists) {
		return s.met(ctx, op, i, err)
	}
	if err != nil {
		return err
	}
	return s.done(op, info.Object, i.CRC)
}

// noted tells what metadata an object has that was made here in one request. That of
// an upload in parts was fixed when it began, and is asked for: nil forgets what was known.
func (s *Space) noted(obj oss.Object, meta map[string]string) {
	if s.cfg.Noted != nil {
		s.cfg.Noted(obj, meta)
	}
}

// met is what happens when an object is there where none was expected.
func (s *Space) met(ctx context.Context, op order.Operation, i state.Intent, exists error) error {
	info, err := s.bucket.Head(ctx, op.Key)
	if errors.Is(err, oss.ErrNotFound) {
		return fmt.Errorf("%w, and was gone a moment later", exists)
	}
	if err != nil {
		return fmt.Errorf("look what is at %q: %w", op.Key, err)
	}
	if info, err = s.undisputed(ctx, info, []state.Intent{i}); err != nil {
		return err
	}
	if i.Matches(info) {
		s.noted(info.Object, nil)
		return s.done(op, info.Object, i.CRC)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.mu.Ops[op.ID]
	if now == nil || !now.Begun {
		return errSuperseded
	}
	s.record(s.mu.Undoing(now))
	if s.mu.Ops[op.ID] != nil {
		s.conflicting(op, info.Object)
	}
	return errConflict
}

// describe returns what goes with an uploaded content: the attributes, and of an
// object that was edited what else it had. there is what the key holds.
func (s *Space) describe(ctx context.Context, snap *snapshot, there oss.Info) (oss.PutOptions, error) {
	st := &snap.state
	var source oss.Info
	switch from := st.Described(); {
	case from.ETag == "":
	case from.Key == st.Key:
		source = there
	default:
		info, err := s.bucket.Head(ctx, from.Key)
		if err != nil && !errors.Is(err, oss.ErrNotFound) {
			return oss.PutOptions{}, fmt.Errorf("ask for the metadata of %q: %w", from.Key, err)
		}
		if state.SameBytes(info.Object, from) {
			source = info
		}
	}
	o := s.withAttributes(st, source)
	if snap.timeless {
		attrs.DropMtime(o.Meta)
	}
	return o, nil
}

// unset reports whether the time of the last write is that of a write. Where a program has
// set it, it differs from the time of the last change, which no program can set.
func (n *snapshot) unset() bool {
	var stat syscall.Stat_t
	return n.file != nil && syscall.Fstat(int(n.file.Fd()), &stat) == nil && stat.Mtim == stat.Ctim
}

// withAttributes lays the attributes of a file over what an object has.
func (s *Space) withAttributes(st *state.File, source oss.Info) oss.PutOptions {
	o := oss.PutOptions{ContentType: source.ContentType, Meta: maps.Clone(source.Meta)}
	if s.cfg.Attrs || st.Symlink {
		o.Meta = st.Attr.Meta(o.Meta, st.Symlink, st.Mtime())
	}
	if source.ETag == "" || st.XAttrs.Changed() {
		// Otherwise they are the object's, whatever is remembered of them.
		o.Meta = st.XAttrs.Meta(o.Meta)
	}
	return o
}

// publishCopy makes the key hold a copy of the object that is the file's content.
func (s *Space) publishCopy(ctx context.Context, op order.Operation, snap *snapshot) error {
	src := snap.state.Object
	if src.ETag == "" {
		return errSuperseded
	}
	source, err := s.bucket.Head(ctx, src.Key)
	switch {
	case errors.Is(err, oss.ErrNotFound):
		return s.lose(op, snap)
	case err != nil:
		return fmt.Errorf("look at the source %q: %w", src.Key, err)
	case !state.SameBytes(source.Object, src):
		followed, err := s.follows(ctx, op, src, source)
		switch {
		case err != nil:
			return err
		case followed:
			return errSuperseded
		}
		return s.lose(op, snap)
	}
	i := state.Intent{Kind: order.Put, Size: src.Size, CRC: source.CRC64}
	return s.replace(ctx, op, snap, i, func(oss.Info) (oss.PutOptions, error) {
		return s.withAttributes(&snap.state, source), nil
	}, func(o oss.PutOptions) (oss.Info, error) {
		info, err := s.copy(ctx, op, source, o, snap)
		if errors.Is(err, oss.ErrChanged) {
			return info, fmt.Errorf("%w: %w", oss.ErrUnavailable, err)
		}
		return info, err
	})
}

// copy copies an object within the bucket. Large ones go in parts.
func (s *Space) copy(ctx context.Context, op order.Operation, source oss.Info, o oss.PutOptions, snap *snapshot) (oss.Info, error) {
	if source.Size > s.cfg.limits.copy {
		return s.copyParts(ctx, op, source, o, snap)
	}
	meta := o.Meta
	if maps.Equal(o.Meta, source.Meta) {
		o.Meta, o.ContentType = nil, ""
	} else if o.ContentType == "" {
		o.ContentType = "application/octet-stream"
	}
	info, err := s.bucket.Copy(ctx, op.Key, source.Object, o)
	if err == nil {
		s.noted(info.Object, meta)
	}
	return info, err
}

// lose gives up a file whose content somebody else has removed or replaced before
// it could be copied, unless the cache has all of it.
func (s *Space) lose(op order.Operation, snap *snapshot) error {
	s.mu.Lock()
	f := s.mu.files[op.File]
	s.mu.Unlock()
	if f != nil && s.rescue(f, snap.state.Object) == nil {
		return errSuperseded
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := snap.current(s, op); err != nil {
		return err
	}
	if s.mu.Kept[op.ID] {
		// Nobody misses what was replaced, but what has its name must not come later.
		s.giveUpKept(op)
		return errConflict
	}
	if f != nil {
		f.forget()
	}
	s.record(&state.Lost{File: op.File, Time: now(), Path: order.Join(op.Dir, op.Name)})
	s.log.Error("somebody else removed an object before its renaming was published", "path", order.Join(op.Dir, op.Name), "key", snap.state.Object.Key)
	s.mu.stats.conflicts++
	s.mu.notices = append(s.mu.notices, state.NameID{Dir: op.Dir, Name: op.Name})
	return errConflict
}

// free makes op possible where other files still have its key's object as their
// content. Those that are published earlier are waited for; the others get their
// content as a staged file.
func (s *Space) free(ctx context.Context, op order.Operation, files []order.FileID) error {
	for _, id := range files {
		s.mu.Lock()
		st := s.mu.Files[id]
		if st != nil && st.Staged && (st.Partial == nil || st.Linked && st.Gen == st.BaseGen) {
			// Somebody edits it: until that is closed, a crash would lead back to the object.
			s.mu.Unlock()
			return errOpen
		}
		if run := s.mu.runs[op.ID]; st != nil && !st.Linked && s.mu.KeptOf[id] == 0 && s.mu.draining == 0 && run != nil && time.Since(run.wanted) < openWait {
			// It has no name any more, and goes when it is closed, if that is soon.
			s.mu.Unlock()
			return errOpen
		}
		f := s.file(id)
		wait := false
		if st != nil {
			if k := s.mu.Keys[st.Key]; k != nil {
				other := s.mu.Ops[k.Pending]
				if k.Flight != 0 {
					other = s.mu.Ops[k.Flight]
				}
				if kept := s.mu.KeptOf[id]; kept != 0 {
					other = s.mu.Ops[kept]
				}
				wait = other != nil && (other.Begun || other.Order < op.Order || other.Order == op.Order && other.ID < op.ID)
			}
		}
		s.mu.Unlock()
		if st == nil || wait {
			continue
		}
		if err := s.rescueContent(ctx, f); err != nil {
			return err
		}
	}
	return errDependent
}

// rescueContent fetches the content of f, an object that is about to go.
func (s *Space) rescueContent(ctx context.Context, f *File) error {
	err := f.committing.wait(ctx)
	if err != nil {
		return err
	}
	if err = f.stage(ctx, false, true); err == nil {
		f.touched.Store(true)
	}
	f.committing.Unlock()
	if err == nil {
		err = f.fill(ctx)
	}
	if err != nil {
		return err
	}
	return f.commit(true)
}

// lacks reports whether a file lacks bytes of what is staged.
func (s *Space) lacks(id order.FileID) bool {
	s.mu.Lock()
	f := s.mu.files[id]
	s.mu.Unlock()
	return f != nil && f.lacks()
}

// blocking returns the files that need the object at the key of op and are others than its
// own. One that somebody else has taken away is needed by nobody. s.mu is held.
func (s *Space) blocking(op *order.Operation) []order.FileID {
	return slices.DeleteFunc(s.mu.Depends(op.Key), func(id order.FileID) bool {
		f := s.mu.files[id]
		return f != nil && f.baseGone.Load() || op.Kind == order.Put && op.File == id
	})
}

// rescue does the same where the object is gone already: the cache may have it.
func (s *Space) rescue(f *File, obj oss.Object) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if _, staged := f.Content(); staged {
		return nil
	}
	return s.rescueContent(ctx, f)
}

// publishDelete removes the key of op.
func (s *Space) publishDelete(ctx context.Context, op order.Operation) error {
	if err := s.heldBack(op.Key); err != nil {
		return err
	}
	s.mu.Lock()
	if s.mu.Ops[op.ID] == nil {
		s.mu.Unlock()
		return errSuperseded
	}
	if blocking := s.blocking(&op); len(blocking) > 0 {
		s.mu.Unlock()
		return s.free(ctx, op, blocking)
	}
	s.mu.Unlock()
	i := state.Intent{Kind: order.Delete}
	if op.Key[len(op.Key)-1] != '/' {
		there, err := s.check(ctx, op, i, "")
		if err != nil {
			return err
		}
		if there.ETag == "" {
			if err := s.begin(op, 0, i, nil); err != nil {
				return err
			}
			return s.done(op, state.Absent(op.Key), 0)
		}
	}
	if err := s.begin(op, 0, i, func() error {
		if len(s.blocking(&op)) > 0 || s.mu.KeptFor(&op) != nil {
			return errDependent
		}
		return nil
	}); err != nil {
		return err
	}
	if err := s.bucket.Delete(ctx, op.Key); err != nil {
		return err
	}
	return s.done(op, state.Absent(op.Key), 0)
}
