package writeback

import (
	"context"
	"errors"
	"fmt"
	"io"

	"golang.org/x/sync/errgroup"

	"github.com/pailfs/pailfs/fs/writeback/internal/order"
	"github.com/pailfs/pailfs/fs/writeback/internal/state"
	"github.com/pailfs/pailfs/oss"
)

// leastBase is the smallest object that is copied as the beginning of its next
// version: OSS takes no smaller part, but for the last one.
const leastBase = 128 << 10

// tail is a content that is the object of its key, and more behind it.
type tail struct {
	gen   order.Generation
	opens int64
	// base is the object; none if the content is no such thing. crc is its CRC-64, rest
	// that of what follows.
	base      oss.Object
	crc, rest uint64
}

// none says that the content has to be sent whole.
func (t *tail) none() bool { return t.base.ETag == "" }

// whole is the CRC-64 of size bytes of content.
func (t *tail) whole(size int64) uint64 { return oss.CombineCRC64(t.crc, t.rest, size-t.base.Size) }

// tailOf compares a content with the object that its key is believed to hold, if it
// was made from that or has become it. What is known of a content that nobody can
// change is remembered.
func (s *Space) tailOf(ctx context.Context, op order.Operation, snap *snapshot) (*tail, error) {
	st := &snap.state
	t := &tail{gen: st.Gen, opens: snap.opens}
	s.mu.Lock()
	run := s.mu.runs[op.ID]
	if run == nil || s.mu.Keys[op.Key] == nil {
		s.mu.Unlock()
		return nil, errSuperseded
	}
	base, known := s.baseOf(op, st), run.tail
	if base.Size < s.cfg.limits.base || base.Size > st.Size || run.ahead != nil {
		base = oss.Object{}
	}
	s.mu.Unlock()
	if known != nil && known.gen == t.gen && known.opens == t.opens && (known.base == base || known.none()) {
		return known, nil
	}
	if base.ETag == "" {
		return t, nil
	}
	crc := st.PubCRC
	if st.PubGen == 0 || crc == 0 {
		info, err := s.bucket.Head(ctx, op.Key)
		if err != nil && !errors.Is(err, oss.ErrNotFound) {
			return nil, fmt.Errorf("compare %q: %w", op.Key, err)
		}
		if !state.SameBytes(info.Object, base) || !info.HasCRC64 {
			return t, nil
		}
		crc = info.CRC64
	}
	have, err := sum(io.NewSectionReader(snap.file, 0, base.Size))
	if err != nil {
		return nil, err
	}
	if have == crc {
		t.base, t.crc = base, crc
		if t.rest, err = sum(io.NewSectionReader(snap.file, base.Size, st.Size-base.Size)); err != nil {
			return nil, err
		}
	}
	if snap.sealed {
		s.mu.Lock()
		if run := s.mu.runs[op.ID]; run != nil {
			run.tail = t
		}
		s.mu.Unlock()
	}
	return t, nil
}

// publishTail makes the object of the one before and what was added to it, which
// alone is sent.
func (s *Space) publishTail(ctx context.Context, op order.Operation, snap *snapshot, t *tail) error {
	i := state.Intent{Kind: order.Put, Size: snap.state.Size, CRC: t.whole(snap.state.Size)}
	if err := snap.still(i.CRC); err != nil {
		return err
	}
	if t.base.Size == snap.state.Size {
		// Only the attributes differ, if anything.
		var source oss.Info
		return s.replace(ctx, op, snap, i, func(there oss.Info) (oss.PutOptions, error) {
			source = there
			return s.describe(ctx, snap, there)
		}, func(o oss.PutOptions) (oss.Info, error) {
			if !state.SameBytes(source.Object, t.base) {
				return oss.Info{}, errSuperseded
			}
			return s.copy(ctx, op, source, o, snap)
		})
	}
	s.mu.Lock()
	blocking := s.blocking(&op)
	s.mu.Unlock()
	if len(blocking) > 0 {
		// It is asked before anything is sent, for it would be sent again.
		return s.free(ctx, op, blocking)
	}
	release, err := s.holdEarly(ctx, op.File)
	if err != nil {
		return err
	}
	defer release()
	u, have, err := s.resume(ctx, op, snap, s.cfg.limits.layoutOf(0))
	if err != nil {
		return err
	}
	defer s.unuse(u.ID)
	snap.upload = u.ID
	parts, err := s.extend(ctx, op, snap, t, u, have)
	if err != nil {
		return err
	}
	return s.replace(ctx, op, snap, i, func(there oss.Info) (oss.PutOptions, error) {
		return s.describe(ctx, snap, there)
	}, func(o oss.PutOptions) (oss.Info, error) {
		info, err := s.complete(ctx, u, parts, o)
		if errors.Is(err, oss.ErrNotFound) {
			err = fmt.Errorf("%w: %w", oss.ErrUnavailable, err)
		}
		return info, err
	})
}

// extend makes the parts of an upload: copies of the object before, and what follows,
// those of it excepted that an earlier attempt has left there.
func (s *Space) extend(ctx context.Context, op order.Operation, snap *snapshot, t *tail, u oss.MultipartUpload, have map[int]oss.Part) ([]oss.Part, error) {
	copies := evenly(t.base.Size, s.cfg.limits.copyPart)
	rest := s.cfg.limits.layoutOf(0).parts(snap.state.Size - t.base.Size)
	parts := make([]oss.Part, len(copies)+len(rest))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(maxPartsInFlight)
	for i, e := range copies {
		g.Go(func() error {
			var err error
			parts[i], err = s.bucket.CopyPart(ctx, u, i+1, t.base, e.Off, e.Size)
			if permanent(err) {
				return fmt.Errorf("%w: %w", errNoCopy, err)
			}
			return s.vanished(u, err)
		})
	}
	for i, e := range rest {
		i += len(copies)
		release, err := s.partSlot(ctx)
		if err != nil {
			g.Go(func() error { return err })
			break
		}
		g.Go(func() error {
			defer release()
			var err error
			parts[i], err = s.bringPart(ctx, op, snap, u, i+1, io.NewSectionReader(snap.file, t.base.Size+e.Off, e.Size), have)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, snap.explain(err)
	}
	if len(copies) == 1 {
		parts[0].CRC64 = t.crc
	}
	crc := uint64(0)
	for _, p := range parts[len(copies):] {
		crc = oss.CombineCRC64(crc, p.CRC64, p.Size)
	}
	if crc != t.rest {
		return nil, errUnsteady
	}
	return parts, nil
}
