package sessionstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"sync"

	"github.com/pailfs/pailfs/oss"
	"github.com/pailfs/pailfs/prefetch/keep"
	"github.com/pailfs/pailfs/prefetch/session"
)

// Shared keeps the state of loader sessions in the bucket, in the directory that
// the loader names, for other nodes.
//
// It is not written through the mount: what the last writer says of a session is
// right, and must not be kept back behind, or beside, files that are published in
// their order. Whose session may be kept where, package rights says.
type Shared struct {
	bucket oss.Bucket
	prefix string
	// attrs says that the mount shows the mode and the owner that metadata says.
	attrs bool

	mu struct {
		sync.Mutex
		// seen are the objects that were loaded or saved last.
		seen map[session.Key]oss.Object
	}
}

var _ keep.Store = (*Shared)(nil)

// mostRead bounds the file of a session that is read: anybody may have put it there who
// may write. What one user may hold fits.
const mostRead = 8 << 20

// NewShared returns a store in the bucket, below prefix. attrs says that the mount shows the mode and
// the owner that metadata says.
func NewShared(bucket oss.Bucket, prefix string, attrs bool) *Shared {
	s := &Shared{bucket: bucket, prefix: prefix, attrs: attrs}
	s.mu.seen = make(map[session.Key]oss.Object)
	return s
}

// path is where the state of a session lies, relative to the mount.
func (s *Shared) path(key session.Key) string {
	return fmt.Sprintf("%s/worker-%d.session", key.Task, key.Worker)
}

func (s *Shared) key(key session.Key) string { return s.prefix + s.path(key) }

// Where implements [keep.Store].
func (s *Shared) Where(key session.Key) keep.Persistence {
	switch {
	case key.Task == "" || strings.HasPrefix(key.Task+"/", ".pailfs/"):
		return keep.Persistence{Reason: "the root of the mount and .pailfs are no directories for it"}
	default:
		return keep.Persistence{Kind: keep.KindMount, Path: s.path(key)}
	}
}

// Load implements [keep.Store].
func (s *Shared) Load(ctx context.Context, key session.Key) ([]byte, error) {
	info, found, err := s.head(ctx, key)
	if err != nil {
		return nil, err
	}
	there := info.Object
	s.note(key, there)
	if !found {
		return nil, fs.ErrNotExist
	}
	if there.Size > mostRead {
		return nil, fmt.Errorf("load session: %q has %d bytes, the limit is %d", there.Key, there.Size, mostRead)
	}
	data := make([]byte, there.Size)
	if len(data) == 0 {
		return data, nil
	}
	if _, err := s.bucket.ReadRange(ctx, oss.RangeRequest{Object: there, Buffer: data}); err != nil {
		return nil, fmt.Errorf("load session: %w", err)
	}
	return data, nil
}

// head returns the object of a session, and whether there is one.
func (s *Shared) head(ctx context.Context, key session.Key) (oss.Info, bool, error) {
	info, err := s.bucket.Head(ctx, s.key(key))
	switch {
	case errors.Is(err, oss.ErrNotFound):
		return oss.Info{}, false, nil
	case err != nil:
		return oss.Info{}, false, fmt.Errorf("look for session: %w", err)
	}
	return info, true, nil
}

// note remembers what is there.
func (s *Shared) note(key session.Key, there oss.Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.seen[key] = there
}

// ours fails with [keep.ErrTaken] if somebody else has saved the session. What
// was removed is nobody's. It returns the metadata that the object is to have.
func (s *Shared) ours(ctx context.Context, key session.Key) (map[string]string, error) {
	there, found, err := s.head(ctx, key)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	seen := s.mu.seen[key]
	s.mu.Unlock()
	// The tag, not the time: an upload's answer tells the time of the answer.
	switch {
	case found && there.Object.ETag != seen.ETag:
		return nil, fmt.Errorf("%q: %w", there.Object.Key, keep.ErrTaken)
	case found || !s.attrs:
		return there.Meta, nil
	}
	// As if its user had made the file, for nobody else.
	const mode = 0o100600
	return map[string]string{"mode": strconv.Itoa(mode), "uid": strconv.FormatUint(uint64(key.UID), 10)}, nil
}

// Save implements [keep.Store].
func (s *Shared) Save(ctx context.Context, key session.Key, data []byte) error {
	meta, err := s.ours(ctx, key)
	if err != nil {
		return err
	}
	info, err := s.bucket.Put(ctx, s.key(key), bytes.NewReader(data), oss.PutOptions{ContentType: "application/json", Meta: meta})
	if err != nil {
		return fmt.Errorf("save session: %w", err)
	}
	s.note(key, info.Object)
	return nil
}

// Remove implements [keep.Store].
func (s *Shared) Remove(ctx context.Context, key session.Key) error {
	_, err := s.ours(ctx, key)
	if err == nil {
		err = s.bucket.Delete(ctx, s.key(key))
	}
	if err != nil && !errors.Is(err, keep.ErrTaken) {
		return fmt.Errorf("forget session: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.mu.seen, key)
	return nil
}
