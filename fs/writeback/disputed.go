package writeback

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/pailfs/pailfs/fs/writeback/internal/order"
	"github.com/pailfs/pailfs/fs/writeback/internal/state"
	"github.com/pailfs/pailfs/oss"
)

// undisputed returns info with the CRC-64 of the bytes that the bucket has, where what it
// says of them contradicts ours: an object of a size that a change of ours has, with another
// checksum or none, is either somebody else's or told of wrongly. Then all of it is read, once.
func (s *Space) undisputed(ctx context.Context, info oss.Info, ours []state.Intent) (oss.Info, error) {
	same := func(i state.Intent) bool { return i.Kind == order.Put && i.Size == info.Size }
	matches := func(i state.Intent) bool { return i.Matches(info) }
	if info.ETag == "" || info.Symlink || !slices.ContainsFunc(ours, same) || slices.ContainsFunc(ours, matches) {
		return info, nil
	}
	crc, err := s.readSums.of(ctx, info.Object, func() (uint64, error) {
		crc, err := oss.ReadCRC64(ctx, s.bucket, info.Object)
		if told := info.CRC64; err == nil && info.HasCRC64 && told != crc {
			s.log.Warn("the object store names a wrong checksum of an object", "key", info.Key, "etag", info.ETag, "told", told, "read", crc)
		}
		return crc, err
	})
	if errors.Is(err, oss.ErrChanged) || errors.Is(err, oss.ErrNotFound) {
		return info, fmt.Errorf("%w: %q was replaced while it was compared", oss.ErrUnavailable, info.Key)
	}
	if err != nil {
		return info, fmt.Errorf("compare the bytes of %q: %w", info.Key, err)
	}
	info.CRC64, info.HasCRC64 = crc, true
	return info, nil
}

// maxReadSums bounds how many versions are remembered.
const maxReadSums = 1024

// readSums are the checksums of versions that were read for them: who asks again, every
// reader of a partial file for example, reads nothing. A version is its key, ETag, size and time.
type readSums struct {
	sync.Mutex
	known map[oss.Object]*readSum
}

// readSum is that of one version.
type readSum struct {
	// reading is held by who reads it and by who looks at the rest.
	reading turn
	done    bool
	crc     uint64
}

// of returns the checksum of obj, which read finds out unless somebody has already.
func (r *readSums) of(ctx context.Context, obj oss.Object, read func() (uint64, error)) (uint64, error) {
	sum := r.at(obj)
	if err := sum.reading.wait(ctx); err != nil {
		return 0, err
	}
	defer sum.reading.Unlock()
	if sum.done {
		return sum.crc, nil
	}
	crc, err := read()
	if err != nil {
		return 0, err
	}
	sum.crc, sum.done = crc, true
	return crc, nil
}

// at returns what is known of obj, and forgets any other where that becomes too much.
func (r *readSums) at(obj oss.Object) *readSum {
	r.Lock()
	defer r.Unlock()
	if sum := r.known[obj]; sum != nil {
		return sum
	}
	for other := range r.known {
		if len(r.known) < maxReadSums {
			break
		}
		delete(r.known, other)
	}
	if r.known == nil {
		r.known = make(map[oss.Object]*readSum)
	}
	sum := &readSum{reading: make(turn, 1)}
	r.known[obj] = sum
	return sum
}
