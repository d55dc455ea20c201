package oss

import (
	"errors"
	"fmt"
)

// The kinds of failure that callers distinguish, for errors.Is. The errors that
// wrap them carry the operation, the key and the server's own code, message
// and request id; none carries a secret.
var (
	// ErrNotFound means that the key, or the upload, does not exist.
	ErrNotFound = errors.New("no such object")
	// ErrNoBucket means that the bucket does not exist at this endpoint.
	ErrNoBucket = errors.New("no such bucket")
	// ErrChanged means that the key no longer holds the asked version.
	ErrChanged = errors.New("object has changed")
	// ErrExists means that the key holds an object and overwriting was forbidden.
	ErrExists = errors.New("object already exists")
	// ErrAccessDenied means that the server refused who we are or what we may do:
	// unknown key, wrong signature, expired token, missing right, skewed clock.
	ErrAccessDenied = errors.New("access denied")
	// ErrCorrupted means that content and checksum disagree.
	ErrCorrupted = errors.New("checksum mismatch")
	// ErrInvalid means that the server refused the request as malformed or beyond
	// its limits; sending it again cannot help.
	ErrInvalid = errors.New("invalid request")
	// ErrUnavailable means that the server could not be reached or kept failing for
	// as long as retrying was worth it.
	ErrUnavailable = errors.New("object store unavailable")
	// ErrBadAnswer means that what answers is not OSS, or that something on the way
	// mangles every answer: no HTTP, endless headers, other bytes than were asked for.
	// It is an [ErrUnavailable], too, for whether a request was carried out is not
	// known either; but waiting will hardly help.
	ErrBadAnswer = fmt.Errorf("%w: it does not answer as OSS does", ErrUnavailable)
)
