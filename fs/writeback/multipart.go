package writeback

import (
	"context"
	"errors"
	"fmt"
	"hash/crc64"
	"io"
	"os"

	"golang.org/x/sync/errgroup"

	"github.com/pailfs/pailfs/oss"
)

const (
	// minPart is the size of the parts of files up to 70 GiB, in bytes; larger files
	// have larger parts, so that usualParts are enough.
	minPart = 8 << 20
	// usualParts is the most parts of a file; OSS takes 10,000.
	usualParts = 9000
	// maxPartsInFlight is how many parts are sent at once, of all files together.
	maxPartsInFlight = 32
	// maxCopy is the largest object that is copied in one request.
	maxCopy = 512 << 20
	// copyPart is the size of the parts that larger ones are copied in.
	copyPart = 256 << 20
)

// partSize returns the size of the parts of a file, in bytes: whole mebibytes.
func partSize(size, least int64) int64 {
	need := (size + usualParts - 1) / usualParts
	if need > least {
		need = (need + 1<<20 - 1) >> 20 << 20
	}
	return max(least, need)
}

// prepared is a large file of which all parts are in the object store.
type prepared struct {
	upload oss.MultipartUpload
	parts  []oss.Part
	gen    generation
	opens  int64
	crc    uint64
}

// publishLarge uploads a file in parts, and makes the object of them if it is ready.
func (s *Space) publishLarge(ctx context.Context, op operation, snap *snapshot, ready bool) error {
	s.mu.Lock()
	run := s.mu.runs[op.ID]
	p := run.ahead
	if p != nil {
		run.ahead = nil
		s.mu.prepared--
	}
	s.mu.Unlock()
	if p == nil || p.gen != snap.state.Gen || p.opens != snap.opens || !snap.sealed {
		var err error
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
	i := intent{Kind: opPut, Size: snap.state.Size, CRC: p.crc}
	err := s.replace(ctx, op, snap, i, func(there oss.Info) (oss.PutOptions, error) {
		return s.describe(ctx, snap, there)
	}, func(o oss.PutOptions) (oss.Info, error) {
		return s.bucket.CompleteUpload(ctx, p.upload, p.parts, o)
	})
	if err == nil || errors.Is(err, oss.ErrNotFound) {
		s.uploadEnded(p.upload.ID)
	}
	if errors.Is(err, oss.ErrNotFound) {
		return fmt.Errorf("%w: %w", oss.ErrUnavailable, err)
	}
	return err
}

// uploadEnded forgets an upload.
func (s *Space) uploadEnded(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.mu.Uploads[id]; ok {
		s.record(&uploadEndedRecord{ID: id})
	}
}

// uploadParts brings all parts of a file to the object store, those excepted that an
// earlier attempt has left there. The parts are those of one moment.
func (s *Space) uploadParts(ctx context.Context, op operation, snap *snapshot) (*prepared, error) {
	size := partSize(snap.state.Size, s.cfg.limits.part)
	u, have, err := s.resume(ctx, op, snap, size)
	if err != nil {
		return nil, err
	}
	count := int((snap.state.Size + size - 1) / size)
	p := &prepared{upload: u, parts: make([]oss.Part, count), gen: snap.state.Gen, opens: snap.opens}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(maxPartsInFlight)
	for i := range p.parts {
		off := int64(i) * size
		section := io.NewSectionReader(snap.file, off, min(size, snap.state.Size-off))
		release, err := s.parts.acquire(ctx, 1)
		if err != nil {
			g.Go(func() error { return err })
			break
		}
		g.Go(func() error {
			defer release()
			if err := s.wanted(op, snap); err != nil {
				return err
			}
			if old, ok := have[i+1]; ok && old.Size == section.Size() {
				if crc, err := sum(section); err != nil || crc == old.CRC64 {
					p.parts[i] = old
					return err
				}
			}
			if err := s.pace(ctx, int(section.Size())); err != nil {
				return err
			}
			var err error
			p.parts[i], err = s.bucket.UploadPart(ctx, u, i+1, section)
			if errors.Is(err, oss.ErrNotFound) {
				s.uploadEnded(u.ID)
				return fmt.Errorf("%w: %w", oss.ErrUnavailable, err)
			}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	for _, part := range p.parts {
		p.crc = oss.CombineCRC64(p.crc, part.CRC64, part.Size)
	}
	if snap.sealed {
		return p, nil
	}
	// Somebody may have written while the parts were read: they are one moment's
	// content only if they are still what the file holds.
	crc, err := sum(io.NewSectionReader(snap.file, 0, snap.state.Size))
	if err == nil && crc != p.crc {
		err = errUnsteady
	}
	return p, err
}

// wanted says whether it is worth going on with op.
func (s *Space) wanted(op operation, snap *snapshot) error {
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
	h := crc64.New(crcTable)
	if _, err := io.CopyBuffer(h, struct{ io.Reader }{r}, make([]byte, 256<<10)); err != nil {
		return 0, fmt.Errorf("read staged file: %w", err)
	}
	return h.Sum64(), nil
}

// resume returns an upload for op: the one that an earlier attempt has begun, with
// its parts, or a new one.
func (s *Space) resume(ctx context.Context, op operation, snap *snapshot, size int64) (oss.MultipartUpload, map[int]oss.Part, error) {
	s.mu.Lock()
	var known *upload
	for _, u := range s.mu.Uploads {
		if u.Key == op.Key && u.File == op.File && u.PartSize == size && (known == nil || u.ID < known.ID) {
			known = &u
		}
	}
	repeated := op.ID < s.mu.recovered || s.mu.runs[op.ID].attempts > 0
	s.mu.Unlock()
	if known != nil {
		u := oss.MultipartUpload{Key: known.Key, ID: known.ID}
		parts, err := s.bucket.ListParts(ctx, u)
		if err == nil {
			have := make(map[int]oss.Part, len(parts))
			for _, p := range parts {
				if p.CRC64 != 0 {
					have[p.Number] = p
				}
			}
			return u, have, nil
		}
		if !errors.Is(err, oss.ErrNotFound) {
			return oss.MultipartUpload{}, nil, fmt.Errorf("resume the upload of %q: %w", op.Key, err)
		}
		s.uploadEnded(known.ID)
	}
	if repeated {
		// The answer that told an upload's name may have been lost.
		if err := s.abortUnknown(ctx, op.Key); err != nil {
			return oss.MultipartUpload{}, nil, err
		}
	}
	o, err := s.describeEarly(ctx, op, snap)
	if err != nil {
		return oss.MultipartUpload{}, nil, err
	}
	return s.createUpload(ctx, op, snap.state.Gen, size, o)
}

// describeEarly returns the options of an upload, which are fixed when it begins.
func (s *Space) describeEarly(ctx context.Context, op operation, snap *snapshot) (oss.PutOptions, error) {
	var there oss.Info
	if st := &snap.state; st.Origin.ETag != "" && st.Origin.Key == st.Key {
		var err error
		if there, err = s.bucket.Head(ctx, op.Key); err != nil && !errors.Is(err, oss.ErrNotFound) {
			return oss.PutOptions{}, fmt.Errorf("ask for the metadata of %q: %w", op.Key, err)
		}
	}
	return s.describe(ctx, snap, there)
}

func (s *Space) createUpload(ctx context.Context, op operation, gen generation, size int64, o oss.PutOptions) (oss.MultipartUpload, map[int]oss.Part, error) {
	u, err := s.bucket.CreateUpload(ctx, op.Key, o)
	if err != nil {
		return oss.MultipartUpload{}, nil, err
	}
	s.mu.Lock()
	pos := s.record(&uploadBegunRecord{Upload: upload{Key: u.Key, ID: u.ID, File: op.File, Gen: gen, PartSize: size}})
	s.mu.Unlock()
	return u, nil, s.journal.write(pos)
}

// abortUnknown aborts uploads to a key that are not ours as far as we know: an
// earlier attempt may have begun them without learning their names.
func (s *Space) abortUnknown(ctx context.Context, key string) error {
	uploads, err := s.bucket.ListUploads(ctx, key)
	if err != nil {
		return fmt.Errorf("look for uploads of %q: %w", key, err)
	}
	for _, u := range uploads {
		s.mu.Lock()
		_, ours := s.mu.Uploads[u.ID]
		s.mu.Unlock()
		if u.Key != key || ours {
			continue
		}
		if err := s.bucket.AbortUpload(ctx, u); err != nil {
			return fmt.Errorf("abort an upload of %q: %w", key, err)
		}
	}
	return nil
}

// copyParts copies a large object within the bucket.
func (s *Space) copyParts(ctx context.Context, op operation, source oss.Info, o oss.PutOptions, snap *snapshot) (oss.Info, error) {
	u, _, err := s.createUpload(ctx, op, snap.state.Gen, 0, oss.PutOptions{ContentType: o.ContentType, Meta: o.Meta})
	if err != nil {
		return oss.Info{}, err
	}
	size := partSize(source.Size, s.cfg.limits.copyPart)
	parts := make([]oss.Part, (source.Size+size-1)/size)
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(maxPartsInFlight)
	for i := range parts {
		off := int64(i) * size
		g.Go(func() error {
			var err error
			parts[i], err = s.bucket.CopyPart(gctx, u, i+1, source.Object, off, min(size, source.Size-off))
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return oss.Info{}, err
	}
	info, err := s.bucket.CompleteUpload(ctx, u, parts, o)
	if err == nil {
		s.uploadEnded(u.ID)
	}
	return info, err
}

// abortUseless aborts uploads that no operation needs any more.
func (s *Space) abortUseless(ctx context.Context) {
	s.mu.Lock()
	var useless []upload
	for _, u := range s.mu.Uploads {
		k := s.mu.Keys[u.Key]
		if k != nil {
			op := s.mu.Ops[k.Pending]
			if op == nil {
				op = s.mu.Ops[k.Flight]
			}
			if op != nil && op.Kind == opPut && op.File == u.File {
				continue
			}
		}
		useless = append(useless, u)
	}
	s.mu.Unlock()
	for _, u := range useless {
		err := s.bucket.AbortUpload(ctx, oss.MultipartUpload{Key: u.Key, ID: u.ID})
		if err != nil {
			if ctx.Err() == nil {
				s.log.Warn("aborting an upload failed and will be tried again", "key", u.Key, "err", err)
			}
			return
		}
		s.uploadEnded(u.ID)
	}
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
func (s *Space) removeStaged(id fileID) {
	if err := os.Remove(s.path(id)); err != nil && !errors.Is(err, os.ErrNotExist) {
		s.log.Warn("removing a staged file failed", "err", err)
	}
}
