package writeback

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"

	"golang.org/x/sync/errgroup"

	"github.com/pailfs/pailfs/fs/writeback/internal/attrs"
	"github.com/pailfs/pailfs/fs/writeback/internal/order"
	"github.com/pailfs/pailfs/fs/writeback/internal/state"
	"github.com/pailfs/pailfs/oss"
)

const (
	// maxPartsInFlight is how many parts are sent at once, of all files together.
	maxPartsInFlight = 32
	// maxCopy is the largest object that is copied in one request.
	maxCopy = 512 << 20
	// copyPart is the size of the parts that larger ones are copied in.
	copyPart = 256 << 20
)

// prepared is a large file of which all parts are in the object store.
type prepared struct {
	upload oss.MultipartUpload
	parts  []oss.Part
	gen    order.Generation
	opens  int64
	crc    uint64
	// attr, xattrs and stamp are in the metadata, the stamp unless it is timeless.
	attr     attrs.Attrs
	xattrs   *attrs.XAttrs
	stamp    int64
	timeless bool
}

// publishLarge uploads a file in parts, and makes the object of them if it is ready.
func (s *Space) publishLarge(ctx context.Context, op order.Operation, snap *snapshot, ready bool) error {
	release, err := s.holdEarly(ctx, op.File)
	if err != nil {
		return err
	}
	defer release()
	s.mu.Lock()
	run := s.mu.runs[op.ID]
	p := run.ahead
	if p != nil {
		run.ahead = nil
		s.mu.prepared--
	}
	s.mu.Unlock()
	if p == nil || p.gen != snap.state.Gen || p.opens != snap.opens || p.attr != snap.state.Attr || !p.xattrs.Same(snap.state.XAttrs) || p.stamp != snap.state.Stamp || !snap.sealed {
		if p, err = s.uploadParts(ctx, op, snap); err != nil {
			return err
		}
	}
	s.mu.Lock()
	if !ready {
		defer s.mu.Unlock()
		if s.mu.Ops[op.ID] == nil || !snap.sealed {
			return errSuperseded
		}
		run.ahead = p
		s.mu.prepared++
		return nil
	}
	s.mu.Unlock()
	s.use(p.upload.ID)
	defer s.unuse(p.upload.ID)
	snap.upload, snap.timeless = p.upload.ID, p.timeless
	i := state.Intent{Kind: order.Put, Size: snap.state.Size, CRC: p.crc}
	return s.replace(ctx, op, snap, i, func(there oss.Info) (oss.PutOptions, error) {
		return s.describe(ctx, snap, there)
	}, func(o oss.PutOptions) (oss.Info, error) {
		info, err := s.complete(ctx, p.upload, p.parts, o)
		if errors.Is(err, oss.ErrNotFound) {
			err = fmt.Errorf("%w: %w", oss.ErrUnavailable, err)
		}
		return info, err
	})
}

// complete makes the object of an upload. One that is there without it stays, and is
// aborted when nobody needs it.
func (s *Space) complete(ctx context.Context, u oss.MultipartUpload, parts []oss.Part, o oss.PutOptions) (oss.Info, error) {
	info, err := s.bucket.CompleteUpload(ctx, u, parts, o)
	if err == nil || errors.Is(err, oss.ErrNotFound) {
		s.uploadEnded(u.ID)
	}
	if err == nil {
		// The same parts have the same ETag, whatever the metadata is.
		s.noted(info.Object, nil)
	}
	return info, err
}

// uploadParts brings all parts of a file to the object store, those excepted that an
// earlier attempt has left there. The parts are those of one moment.
func (s *Space) uploadParts(ctx context.Context, op order.Operation, snap *snapshot) (*prepared, error) {
	lay := s.cfg.limits.layoutOf(snap.state.Size)
	u, have, err := s.resume(ctx, op, snap, lay)
	if err != nil {
		return nil, err
	}
	defer s.unuse(u.ID)
	parts := lay.parts(snap.state.Size)
	if have, err = s.seed(ctx, op, snap, u, parts, have); err != nil {
		return nil, err
	}
	p := &prepared{upload: u, parts: make([]oss.Part, len(parts)), gen: snap.state.Gen, opens: snap.opens, attr: snap.state.Attr, xattrs: snap.state.XAttrs, stamp: snap.state.Stamp, timeless: snap.timeless}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(maxPartsInFlight)
	for i, part := range parts {
		section := io.NewSectionReader(snap.file, part.Off, part.Size)
		release, err := s.partSlot(ctx)
		if err != nil {
			g.Go(func() error { return err })
			break
		}
		g.Go(func() error {
			defer release()
			var err error
			p.parts[i], err = s.bringPart(ctx, op, snap, u, i+1, section, have)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, snap.explain(err)
	}
	for _, part := range p.parts {
		p.crc = oss.CombineCRC64(p.crc, part.CRC64, part.Size)
	}
	return p, snap.still(p.crc)
}

// bringPart makes a part of an upload what section holds: the one of that number that
// the upload has, if it is that, or a new one.
func (s *Space) bringPart(ctx context.Context, op order.Operation, snap *snapshot, u oss.MultipartUpload, number int, section *io.SectionReader, have map[int]oss.Part) (oss.Part, error) {
	if err := s.wanted(op, snap); err != nil {
		return oss.Part{}, err
	}
	if old, ok := have[number]; ok && old.Size == section.Size() {
		if crc, err := sum(section); err != nil || crc == old.CRC64 {
			return old, err
		}
	}
	if err := s.pace(ctx, int(section.Size())); err != nil {
		return oss.Part{}, err
	}
	part, err := s.bucket.UploadPart(ctx, u, number, pacedPart{section, s})
	if err == nil {
		s.sent(section.Size())
	}
	return part, s.vanished(u, err)
}

// vanished returns err, which making a part came to. If it is that the upload is gone,
// that is forgotten, and the next attempt begins another one.
func (s *Space) vanished(u oss.MultipartUpload, err error) error {
	if !errors.Is(err, oss.ErrNotFound) {
		return err
	}
	s.uploadEnded(u.ID)
	return fmt.Errorf("%w: %w", oss.ErrUnavailable, err)
}

// wanted says whether it is worth going on with op.
func (s *Space) wanted(op order.Operation, snap *snapshot) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.Ops[op.ID] == nil {
		return errSuperseded
	}
	return snap.current(s, op)
}

// sum returns the CRC-64 of what r holds.
func sum(r *io.SectionReader) (uint64, error) {
	if _, err := r.Seek(0, io.SeekStart); err != nil {
		return 0, err
	}
	var h oss.CRC64Writer
	if _, err := io.CopyBuffer(&h, struct{ io.Reader }{r}, make([]byte, 256<<10)); err != nil {
		return 0, fmt.Errorf("read staged file: %w", err)
	}
	return uint64(h), nil
}

// resume returns an upload for op, to be given to unuse: the one that was begun
// before, with its parts, or a new one. The metadata of an upload is fixed when it
// begins. One that was begun while the file was written lacks the time of the last write,
// and will do where no program has set that: it is the object's own then.
func (s *Space) resume(ctx context.Context, op order.Operation, snap *snapshot, lay layout) (oss.MultipartUpload, map[int]oss.Part, error) {
	o, err := s.describeEarly(ctx, op, snap)
	if err != nil {
		return oss.MultipartUpload{}, nil, err
	}
	known, ok := s.findUpload(op.Key, op.File, lay.first, o, false)
	if !ok && s.cfg.Attrs && snap.unset() {
		early := o
		early.Meta = maps.Clone(o.Meta)
		attrs.DropMtime(early.Meta)
		known, ok = s.findUpload(op.Key, op.File, lay.first, early, false)
		snap.timeless = ok
	}
	if ok {
		have, err := s.partsOf(ctx, known)
		if err == nil {
			return known, have, nil
		}
		s.unuse(known.ID)
		snap.timeless = false
		if !errors.Is(err, oss.ErrNotFound) {
			return oss.MultipartUpload{}, nil, fmt.Errorf("resume the upload of %q: %w", op.Key, err)
		}
		s.uploadEnded(known.ID)
	}
	u, err := s.createUpload(ctx, state.Upload{Key: op.Key, File: op.File, PartSize: lay.first}, o)
	return u, nil, err
}

// describeEarly returns the options of an upload, which are fixed when it begins.
func (s *Space) describeEarly(ctx context.Context, op order.Operation, snap *snapshot) (oss.PutOptions, error) {
	var there oss.Info
	if from := snap.state.Described(); from.ETag != "" && from.Key == snap.state.Key {
		var err error
		if there, err = s.bucket.Head(ctx, op.Key); err != nil && !errors.Is(err, oss.ErrNotFound) {
			return oss.PutOptions{}, fmt.Errorf("ask for the metadata of %q: %w", op.Key, err)
		}
	}
	return s.describe(ctx, snap, there)
}

// copyParts copies a large object within the bucket.
func (s *Space) copyParts(ctx context.Context, op order.Operation, source oss.Info, o oss.PutOptions, snap *snapshot) (oss.Info, error) {
	u, err := s.createUpload(ctx, state.Upload{Key: op.Key, File: op.File}, oss.PutOptions{ContentType: o.ContentType, Meta: o.Meta})
	if err != nil {
		return oss.Info{}, err
	}
	defer s.unuse(u.ID)
	extents := evenly(source.Size, s.cfg.limits.copyPart)
	parts := make([]oss.Part, len(extents))
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(maxPartsInFlight)
	for i, e := range extents {
		g.Go(func() error {
			var err error
			parts[i], err = s.bucket.CopyPart(gctx, u, i+1, source.Object, e.Off, e.Size)
			return s.vanished(u, err)
		})
	}
	if err := g.Wait(); err != nil {
		return oss.Info{}, err
	}
	return s.complete(ctx, u, parts, o)
}

// pace waits until n more bytes may be sent.
func (s *Space) pace(ctx context.Context, n int) error {
	if s.limit == nil {
		return nil
	}
	for burst := s.limit.Burst(); n > 0; n -= burst {
		if s.hurried() {
			return nil
		}
		if err := s.limit.WaitN(ctx, min(n, burst)); err != nil {
			return err
		}
	}
	return nil
}

// removeStaged removes the staged file of a file that does not need it.
func (s *Space) removeStaged(id order.FileID) {
	if err := os.Remove(s.path(id)); err != nil && !errors.Is(err, os.ErrNotExist) {
		s.log.Warn("removing a staged file failed", "err", err)
	}
}
