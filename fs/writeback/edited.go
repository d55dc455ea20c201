package writeback

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"

	"github.com/pailfs/pailfs/fs/writeback/internal/order"
	"github.com/pailfs/pailfs/fs/writeback/internal/presence"
	"github.com/pailfs/pailfs/fs/writeback/internal/state"
	"github.com/pailfs/pailfs/oss"
)

// baseOf returns the object that a content was made from, or has become, if the key of
// op is believed to hold it still; none, whose ETag is empty, if it was made from
// nothing. s.mu is held.
func (s *Space) baseOf(op order.Operation, st *state.File) oss.Object {
	k, f := s.mu.Keys[op.Key], s.mu.files[op.File]
	if k == nil || !k.Present() || len(k.Maybe) > 0 || k.Remote != st.Published || f != nil && f.fresh {
		return oss.Object{}
	}
	return k.Remote
}

// seed makes parts of an upload that has none of their number and size yet copies of the object
// that the content was made from, inside the server, and returns all that the upload
// has. What was changed is not known: it shows in the CRC-64 that the server lists of
// each copy. Parts are compared with the content by that in any case.
func (s *Space) seed(ctx context.Context, op order.Operation, snap *snapshot, u oss.MultipartUpload, parts []presence.Extent, have map[int]oss.Part) (map[int]oss.Part, error) {
	s.mu.Lock()
	base := s.baseOf(op, &snap.state)
	s.mu.Unlock()
	if base.Size < s.cfg.limits.base {
		return have, nil
	}
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(maxPartsInFlight)
	copied := false
	for i, e := range parts {
		if have[i+1].Size == e.Size || e.End() > base.Size {
			continue
		}
		copied = true
		g.Go(func() error {
			if err := s.wanted(op, snap); err != nil {
				return err
			}
			_, err := s.bucket.CopyPart(gctx, u, i+1, base, e.Off, e.Size)
			return err
		})
	}
	err := g.Wait()
	if err == nil && !copied {
		return have, nil
	}
	if err == nil {
		var all map[int]oss.Part
		if all, err = s.partsOf(ctx, u); err == nil {
			return all, nil
		}
	}
	if err = s.vanished(u, err); ctx.Err() != nil || errors.Is(err, oss.ErrUnavailable) {
		return nil, fmt.Errorf("copy unchanged parts of %q: %w", op.Key, err)
	}
	// It was replaced, which publication will meet, or may not be copied or compared:
	// archived, or not for us to read. All can be sent.
	return have, nil
}

// partsOf returns the parts of an upload whose CRC-64 the server knows, by number.
func (s *Space) partsOf(ctx context.Context, u oss.MultipartUpload) (map[int]oss.Part, error) {
	parts, err := s.bucket.ListParts(ctx, u)
	if err != nil {
		return nil, err
	}
	have := make(map[int]oss.Part, len(parts))
	for _, p := range parts {
		if p.CRC64 != 0 {
			have[p.Number] = p
		}
	}
	return have, nil
}
