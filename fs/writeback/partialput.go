package writeback

import (
	"context"
	"errors"
	"fmt"
	"io"

	"golang.org/x/sync/errgroup"

	"github.com/pailfs/pailfs/fs/writeback/internal/order"
	"github.com/pailfs/pailfs/fs/writeback/internal/presence"
	"github.com/pailfs/pailfs/fs/writeback/internal/state"
	"github.com/pailfs/pailfs/oss"
)

// piece is a part of the next version of a partial file.
type piece struct {
	presence.Extent
	// copied says that it is the base's alone, and nothing of it is sent. likely says
	// that the base may have the same: it is copied first, and compared.
	copied, likely bool
}

// plan cuts size bytes of a partial file into the parts of its next version: copies of
// what is absent, and what was written. What is absent but less than the server takes as
// a part is fetched and sent with what is around it, and so is more where there would be
// too many parts. Of what was written the first published bytes may be the base's.
func (l *limits) plan(size int64, absent []presence.Extent, published int64) []piece {
	for least, part := l.base, l.part; ; least, part = 2*least, min(2*part, maxPart) {
		if pieces := l.planWith(size, absent, published, least, part); len(pieces) <= maxParts {
			return pieces
		}
	}
}

func (l *limits) planWith(size int64, absent []presence.Extent, published, least, part int64) []piece {
	var pieces []piece
	own := func(from, to int64) {
		for _, e := range evenly(to-from, part) {
			pieces = append(pieces, piece{presence.Extent{Off: from + e.Off, Size: e.Size}, false, from+e.End() <= published})
		}
	}
	// A cut where the version before ended keeps what it had apart from what is new.
	written := func(from, to int64) {
		if published-from >= least && published < to && (to == size || to-published >= least) {
			own(from, published)
			from = published
		}
		own(from, to)
	}
	at := int64(0)
	for _, e := range absent {
		e.Size = min(e.End(), size) - e.Off
		if e.Size <= 0 || e.Size < least && e.End() < size {
			continue
		}
		if e.Off > at {
			written(at, e.Off)
		}
		for _, c := range evenly(e.Size, l.copyPart) {
			pieces = append(pieces, piece{presence.Extent{Off: e.Off + c.Off, Size: c.Size}, true, false})
		}
		at = e.End()
	}
	if at < size {
		written(at, size)
	}
	return pieces
}

// planSum tells a plan, and what it copies from, from others. It is negative, as no size
// of parts is.
func planSum(base oss.Object, pieces []piece) int64 {
	var h oss.CRC64Writer
	fmt.Fprintf(&h, "%q%q", base.Key, base.ETag)
	for _, p := range pieces {
		fmt.Fprintf(&h, " %d %d %v", p.Off, p.Size, p.copied)
	}
	return -int64(uint64(h)>>1) - 1
}

// publishPartial makes the object of copies of what the staged file lacks, which is neither
// fetched nor compared, and of what was written.
func (s *Space) publishPartial(ctx context.Context, op order.Operation, snap *snapshot) error {
	s.mu.Lock()
	f, blocking := s.mu.files[op.File], s.blocking(&op)
	s.mu.Unlock()
	if f == nil {
		return errSuperseded
	}
	if len(blocking) > 0 {
		// It is asked before anything is sent.
		return s.free(ctx, op, blocking)
	}
	if !snap.sealed && !snap.log {
		if err := s.momentPartial(ctx, op, f, snap); err != nil {
			return err
		}
	}
	size := snap.state.Size
	n, w, absent, base, published, err := f.standStill(snap)
	if err != nil {
		return err
	}
	defer n.Unwatch(w)
	pieces := s.cfg.limits.plan(size, absent, published)
	release, err := s.holdEarly(ctx, op.File)
	if err != nil {
		return err
	}
	defer release()
	u, parts, crc, err := s.bringPieces(ctx, op, snap, f, base, pieces)
	if u.ID != "" {
		defer s.unuse(u.ID)
	}
	if errors.Is(err, errNoCopy) {
		s.log.Info("an object cannot be copied in parts: the rest of a file is fetched to be sent", "path", order.Join(op.Dir, op.Name), "key", base.Key, "err", err)
		if err := f.fill(ctx); err != nil {
			return err
		}
		return errSuperseded
	}
	if err != nil {
		return err
	}
	snap.upload = u.ID
	i := state.Intent{Kind: order.Put, Size: size, CRC: crc}
	return s.replace(ctx, op, snap, i, func(there oss.Info) (oss.PutOptions, error) {
		if !n.Undisturbed(w) {
			return oss.PutOptions{}, errUnsteady
		}
		return s.describe(ctx, snap, there)
	}, func(o oss.PutOptions) (oss.Info, error) {
		info, err := s.complete(ctx, u, parts, o)
		if errors.Is(err, oss.ErrNotFound) {
			err = fmt.Errorf("%w: %w", oss.ErrUnavailable, err)
		}
		return info, err
	})
}

// standStill returns what the file of snap lacks, and whom it has that from, as it is until
// the watch is disturbed. published is how much of it the base may have, beside that.
func (f *File) standStill(snap *snapshot) (n *presence.Set, w *presence.Watch, absent []presence.Extent, base oss.Object, published int64, err error) {
	size := snap.state.Size
	f.content.RLock()
	defer f.content.RUnlock()
	st := f.state()
	if n = f.present.Load(); n == nil || st.Partial == nil || st.Gen != snap.state.Gen {
		return nil, nil, nil, base, 0, errSuperseded
	}
	info, err := snap.file.Stat()
	if err != nil {
		return nil, nil, nil, base, 0, fmt.Errorf("stat staged file: %w", err)
	}
	if info.Size() < size || info.Size() > size && !snap.sealed && !snap.log {
		return nil, nil, nil, base, 0, errUnsteady
	}
	base = st.Partial.Base
	if st.PubGen > st.BaseGen && state.SameBytes(base, st.Published) {
		published = base.Size
	}
	return n, n.Watch(size), n.Absent(0, size), base, published, nil
}

// momentPartial is moment of a partial file: if that has grown since it was committed, it is
// committed anew, as it is. That nothing changes while it is read, the watch tells.
func (s *Space) momentPartial(ctx context.Context, op order.Operation, f *File, snap *snapshot) error {
	if err := f.committing.wait(ctx); err != nil {
		return err
	}
	defer f.committing.Unlock()
	info, err := snap.file.Stat()
	if err != nil {
		return fmt.Errorf("stat staged file: %w", err)
	}
	switch {
	case f.state().Gen != snap.state.Gen, info.Size() < snap.state.Size:
		return errUnsteady
	case info.Size() == snap.state.Size:
		return nil
	}
	if err := s.commitGrown(f, snap.file, info.Size()); err != nil {
		return err
	}
	return s.nowOf(op, snap)
}

// bringPieces makes the parts of an upload, those excepted that an earlier attempt with the
// same plan has left there, and returns the CRC-64 of all together.
func (s *Space) bringPieces(ctx context.Context, op order.Operation, snap *snapshot, f *File, base oss.Object, pieces []piece) (u oss.MultipartUpload, parts []oss.Part, crc uint64, err error) {
	u, have, err := s.resume(ctx, op, snap, layout{first: planSum(base, pieces)})
	if err != nil {
		return u, nil, 0, err
	}
	copied, err := s.copyPieces(ctx, op, snap, f, u, base, pieces, have)
	if err != nil {
		return u, nil, 0, err
	}
	if copied {
		if have, err = s.partsOf(ctx, u); err != nil {
			return u, nil, 0, s.vanished(u, err)
		}
	}
	parts = make([]oss.Part, len(pieces))
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(maxPartsInFlight)
	for i, p := range pieces {
		if p.copied {
			old, ok := have[i+1]
			if !ok || old.Size != p.Size {
				g.Go(func() error { return fmt.Errorf("%w: the server does not tell its CRC-64", errNoCopy) })
				break
			}
			parts[i] = old
			continue
		}
		release, err := s.partSlot(gctx)
		if err != nil {
			g.Go(func() error { return err })
			break
		}
		g.Go(func() error {
			defer release()
			r := &mixed{ctx: gctx, file: f}
			var err error
			parts[i], err = s.bringPart(gctx, op, snap, u, i+1, io.NewSectionReader(r, p.Off, p.Size), have)
			if err != nil && r.err != nil {
				return r.err // what the body could not be read for
			}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return u, nil, 0, snap.explain(err)
	}
	for _, p := range parts {
		crc = oss.CombineCRC64(crc, p.CRC64, p.Size)
	}
	return u, parts, crc, nil
}

// copyPieces copies what the upload does not have of the base yet, and reports whether
// there was anything.
func (s *Space) copyPieces(ctx context.Context, op order.Operation, snap *snapshot, f *File, u oss.MultipartUpload, base oss.Object, pieces []piece, have map[int]oss.Part) (copied bool, err error) {
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(maxPartsInFlight)
	for i, p := range pieces {
		if !p.copied && !p.likely || have[i+1].Size == p.Size {
			continue
		}
		copied = true
		g.Go(func() error {
			if err := s.wanted(op, snap); err != nil {
				return err
			}
			_, err := s.bucket.CopyPart(gctx, u, i+1, base, p.Off, p.Size)
			return err
		})
	}
	switch err := g.Wait(); {
	case err == nil:
		return copied, nil
	case errors.Is(err, oss.ErrChanged):
		return false, s.withoutBase(ctx, op, f, base, err)
	case permanent(err):
		return false, fmt.Errorf("%w: %w", errNoCopy, err)
	default:
		return false, s.vanished(u, err)
	}
}

// withoutBase is what happens when the base of the file of op is not there: it moved, or
// somebody else has the key of op as well, which is a conflict, or the rest cannot be had.
func (s *Space) withoutBase(ctx context.Context, op order.Operation, f *File, base oss.Object, cause error) error {
	err := s.follow(ctx, f, base, cause)
	if err == nil {
		return errSuperseded
	}
	if !errors.Is(err, errBaseGone) {
		return err
	}
	if _, met := s.check(ctx, op, state.Intent{}, ""); met != nil {
		return met
	}
	return err
}
