package content

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"

	"github.com/pailfs/pailfs/oss"
)

// Identity is the name of an object version in memory and on SSD: half of a
// SHA-256, far beyond what collides by chance. The index keeps the key and etag
// as well and compares them, so even a collision could not mix two versions.
//
// The time of modification is left out: a key that is overwritten with the same
// content keeps its etag and its cached bytes.
type Identity [16]byte

// Identify returns the identity of obj in bucket.
func Identify(bucket string, obj oss.Object) Identity {
	buf := make([]byte, 0, 256)
	buf = append(buf, "pailfs object 1\x00"...)
	for _, s := range [...]string{bucket, obj.Key, obj.ETag} {
		buf = binary.LittleEndian.AppendUint32(buf, uint32(len(s)))
		buf = append(buf, s...)
	}
	buf = binary.LittleEndian.AppendUint64(buf, uint64(obj.Size))
	sum := sha256.Sum256(buf)
	return Identity(sum[:16])
}

// String returns the identity in hexadecimal.
func (id Identity) String() string { return hex.EncodeToString(id[:]) }

// Shard returns a number below n that depends on the identity alone.
func (id Identity) Shard(n uint64) uint64 { return binary.LittleEndian.Uint64(id[:]) % n }

// BlockKey returns a number for a block of the object that no other block is
// likely to have: what the memory tier knows an extent by.
func (id Identity) BlockKey(segment, block int) uint64 {
	x := binary.LittleEndian.Uint64(id[8:]) + (uint64(segment)*SegmentBlocks+uint64(block))*0x9E3779B97F4A7C15
	// The finaliser of splitmix64: neighbours end up far apart, no two in one place.
	x = (x ^ x>>30) * 0xBF58476D1CE4E5B9
	x = (x ^ x>>27) * 0x94D049BB133111EB
	return x ^ x>>31
}
