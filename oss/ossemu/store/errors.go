package store

import "errors"

// What a caller must tell apart.
var (
	// ErrInUse means that another process has the directory open.
	ErrInUse = errors.New("in use by another process")
	// ErrNoBucket means that the bucket does not exist.
	ErrNoBucket = errors.New("no such bucket")
	// ErrBucketExists means that the bucket exists already.
	ErrBucketExists = errors.New("bucket already exists")
	// ErrNotEmpty means that the bucket holds objects or unfinished uploads.
	ErrNotEmpty = errors.New("bucket is not empty")
	// ErrNoKey means that the key does not exist.
	ErrNoKey = errors.New("no such key")
	// ErrExists means that the key exists and was not to be replaced.
	ErrExists = errors.New("key already exists")
	// ErrNotAppendable means that the key holds an object of another type.
	ErrNotAppendable = errors.New("object is not appendable")
	// ErrPosition means that an append does not begin where the object ends.
	ErrPosition = errors.New("position is not the object's length")
	// ErrTooLarge means that content exceeds the limit given for it.
	ErrTooLarge = errors.New("content too large")
	// ErrNoUpload means that the multipart upload does not exist.
	ErrNoUpload = errors.New("no such upload")
	// ErrInvalidPart means that a named part does not exist or has another ETag.
	ErrInvalidPart = errors.New("no such part")
	// ErrPartOrder means that the parts do not ascend by number.
	ErrPartOrder = errors.New("parts out of order")
	// ErrPartTooSmall means that a part other than the last is too small.
	ErrPartTooSmall = errors.New("part too small")
	// ErrClosed means that the store has been closed.
	ErrClosed = errors.New("store is closed")
	// errCorrupt means that a file of the index cannot be understood.
	errCorrupt = errors.New("corrupt index")
)
