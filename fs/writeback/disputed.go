package writeback

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/pailfs/pailfs/oss"
)

// undisputed returns info with the CRC-64 of the bytes that the bucket has, where what it
// says of them contradicts ours: an object of a size that a change of ours has, with another
// checksum or none, is either somebody else's or told of wrongly. Then all of it is read.
func (s *Space) undisputed(ctx context.Context, info oss.Info, ours []intent) (oss.Info, error) {
	same := func(i intent) bool { return i.Kind == opPut && i.Size == info.Size }
	matches := func(i intent) bool { return i.matches(info) }
	if info.ETag == "" || info.Symlink || !slices.ContainsFunc(ours, same) || slices.ContainsFunc(ours, matches) {
		return info, nil
	}
	crc, err := oss.ReadCRC64(ctx, s.bucket, info.Object)
	if errors.Is(err, oss.ErrChanged) || errors.Is(err, oss.ErrNotFound) {
		return info, fmt.Errorf("%w: %q was replaced while it was compared", oss.ErrUnavailable, info.Key)
	}
	if err != nil {
		return info, fmt.Errorf("compare the bytes of %q: %w", info.Key, err)
	}
	if told := info.CRC64; info.HasCRC64 && told != crc {
		s.log.Warn("the object store names a wrong checksum of an object", "key", info.Key, "etag", info.ETag, "told", told, "read", crc)
	}
	info.CRC64, info.HasCRC64 = crc, true
	return info, nil
}

// oursAt returns what changes of ours may have made of the key of op: want, what was tried
// before, and what its file has become last.
func (st *state) oursAt(op operation, want intent) []intent {
	k := st.Keys[op.Key]
	all := append([]intent{want}, k.Maybe...)
	if f := st.Files[op.File]; f != nil && f.PubGen > 0 && f.PubCRC != 0 && f.Published == k.Remote {
		all = append(all, intent{Kind: opPut, Size: k.Remote.Size, CRC: f.PubCRC})
	}
	return all
}
