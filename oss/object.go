package oss

import "time"

// Object is the identity of one version of one object. It is a plain
// comparable value: two Objects are == exactly when they name the same version.
//
// An Object is made in three places only: by a listing or a manifest entry, by
// a Head, and by a finished upload. [NewObject] normalises what the server
// said, so that the three agree.
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

// Class says on whose behalf a request is made. The request limiter serves
// demand before prefetch before upload and starves none.
type Class uint8

// The request classes, most urgent first.
const (
	// Demand is a request that a system call is waiting for.
	Demand Class = iota
	// Prefetch is a request for what will be wanted later: warm-up, sampler
	// hints, readahead well ahead of the reader.
	Prefetch
	// Upload is write-back.
	Upload
)
