package oss

import (
	"strings"
	"time"
)

// Object is the identity of one version of one object. It is a plain
// comparable value: two Objects are == exactly when they name the same version.
//
// An Object is made in three places only: by a listing or a manifest entry, by
// a Head, and by a finished upload. [NewObject] normalises what the server
// said, so that the three agree; but for an upload that was to save a request and
// tells its time by [PutOptions].RoughTime.
type Object struct {
	// Key is the full key in the bucket, without a leading slash.
	Key string
	// ETag is the server's entity tag, without quotes and in upper case.
	ETag string
	// Size is the length of the content in bytes.
	Size int64
	// ModTime is the time of the last modification: whole seconds, UTC, no
	// monotonic part. OSS keeps no finer time.
	ModTime time.Time
}

// NewObject returns the identity of the version of key that the server
// described by etag, size and modTime. The tag may be quoted or not and in any
// case; the time may carry a zone and fractions of a second.
func NewObject(key, etag string, size int64, modTime time.Time) Object {
	return Object{
		Key:     key,
		ETag:    normalETag(etag),
		Size:    size,
		ModTime: modTime.UTC().Truncate(time.Second),
	}
}

// roughTime is how far the time of an upload that did not ask for it may be from the
// one that listings show.
const roughTime = time.Minute

// Same reports whether o and p are one version also if the time of one of them is that
// of an answer, see [PutOptions].RoughTime: everything else is equal, and the times are
// near.
func (o Object) Same(p Object) bool {
	return o.Key == p.Key && o.ETag == p.ETag && o.Size == p.Size && o.ModTime.Sub(p.ModTime).Abs() <= roughTime
}

// normalETag strips quotes and turns to upper case: OSS quotes the tag in some
// answers, not in others, and compares it without regard to either.
func normalETag(etag string) string {
	return strings.ToUpper(strings.Trim(strings.TrimSpace(etag), `"`))
}
