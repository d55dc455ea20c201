package oss

import (
	"context"
	"io"
)

// RangeReader reads byte ranges of object versions.
type RangeReader interface {
	// ReadRange fills r.Buffer with the bytes of exactly the version r.Object,
	// beginning at r.Offset. Either the whole buffer is filled and the error is
	// nil, or the error is not nil and only the bytes announced through
	// r.Arrived are meaningful.
	//
	// Errors, to be tested with errors.Is: [ErrChanged] when the key holds another
	// version now, [ErrNotFound] when it holds none, [ErrAccessDenied],
	// context.Canceled and context.DeadlineExceeded from ctx. Transient failures
	// are retried inside; what comes out after that wraps [ErrUnavailable].
	ReadRange(ctx context.Context, r RangeRequest) (RangeResult, error)
}

// RangeRequest names the bytes that a [RangeReader] must deliver.
type RangeRequest struct {
	Object Object
	// Offset is the position of Buffer[0] in the object.
	Offset int64
	// Buffer is filled. It must not be empty, and Offset+len(Buffer) must not
	// exceed Object.Size.
	Buffer []byte
	// Arrived, if set, is told how many leading bytes of Buffer are final. The
	// numbers grow strictly and end with len(Buffer) if the read succeeds. It is
	// never called concurrently with itself nor after ReadRange has returned, and it
	// must not block. Bytes that were announced are never written again.
	Arrived func(n int)
}

// RangeResult is what the server said about the object as a whole.
type RangeResult struct {
	// CRC64 is the CRC-64/XZ (crc64.ECMA) of the whole object, if HasCRC64.
	CRC64    uint64
	HasCRC64 bool
}

// Lister lists keys.
type Lister interface {
	// List returns one page in the byte order of keys. An empty page with a Next
	// is legal.
	List(ctx context.Context, r ListRequest) (ListPage, error)
}

// ListRequest asks for one page of a listing.
type ListRequest struct {
	// Prefix limits the listing to keys that begin with it.
	Prefix string
	// Delimiter, "" or "/", folds keys that contain it after Prefix.
	Delimiter string
	// StartAfter begins the listing after this key; ignored when Token is set.
	StartAfter string
	// Token continues a listing: the Next of the page before.
	Token string
	// MaxKeys is the largest number of objects and prefixes together; 0 means 1000,
	// which is also the most that OSS gives.
	MaxKeys int
}

// ListPage is one page of a listing.
type ListPage struct {
	Objects []ListedObject
	// Prefixes are the folded common prefixes, each ending with the delimiter.
	Prefixes []string
	// Next is the Token of the next page, "" on the last one.
	Next string
}

// ListedObject is an object as a listing shows it.
type ListedObject struct {
	Object
	// Symlink says that the key is an OSS symlink object; Size is then the
	// length of the target's name.
	Symlink bool
}

// Stater asks for what is known of one key.
type Stater interface {
	// Head returns the version that key holds now, or [ErrNotFound].
	Head(ctx context.Context, key string) (Info, error)
	// SymlinkTarget returns the target key of the OSS symlink object at key.
	SymlinkTarget(ctx context.Context, key string) (string, error)
}

// Info is an object's identity and its headers.
type Info struct {
	Object
	// CRC64 is the CRC-64/XZ of the whole object, if HasCRC64.
	CRC64    uint64
	HasCRC64 bool
	// ContentType is what Head says; other calls leave it empty.
	ContentType string
	// Meta holds the user metadata, names in lower case and without the
	// x-oss-meta- prefix.
	Meta map[string]string
	// Symlink says that the key is an OSS symlink object. A Head describes what the
	// link leads to, not the link.
	Symlink bool
}

// Body is content that can be sent again: a retry seeks to its start.
// [bytes.Reader] and [io.SectionReader] are Bodies.
type Body interface {
	io.ReadSeeker
	Size() int64
}

// PutOptions are the optional parts of creating an object.
type PutOptions struct {
	// ContentType is sent when not empty.
	ContentType string
	// Meta becomes x-oss-meta-*.
	Meta map[string]string
	// ForbidOverwrite makes the call fail with [ErrExists] if the key holds an
	// object. A retry after a lost answer finds its own object and succeeds.
	ForbidOverwrite bool
	// RoughTime saves Put the request that asks for the object's time: ModTime may then
	// be the time of the server's answer, which differs from what listings show by the
	// length of the request at most: it is asked for after one of half a minute.
	// [Object.Same] compares such an identity.
	RoughTime bool
}

// Writer creates and removes objects. Every upload is verified: the CRC-64 of
// what was sent is compared with what the server says it stored.
type Writer interface {
	// Put stores body under key in one request, at most 5 GB.
	Put(ctx context.Context, key string, body Body, o PutOptions) (Info, error)
	// Copy stores a copy of src under key inside the server, if src is still the
	// version there (else [ErrChanged]). Without ContentType and Meta the copy keeps
	// those of src; with either it has what o says alone. The Info holds no Meta.
	Copy(ctx context.Context, key string, src Object, o PutOptions) (Info, error)
	// Delete removes keys. Keys that do not exist count as removed.
	Delete(ctx context.Context, keys ...string) error
}

// Part is one uploaded part of a multipart upload.
type Part struct {
	// Number is 1 to 10,000.
	Number int
	ETag   string
	Size   int64
	CRC64  uint64
}

// MultipartUpload names an upload in progress.
type MultipartUpload struct {
	Key string
	ID  string
}

// MultipartUploader creates objects from parts.
type MultipartUploader interface {
	CreateUpload(ctx context.Context, key string, o PutOptions) (MultipartUpload, error)
	// UploadPart stores one part, 100 KB (but for the last) to 5 GB. The same
	// number again replaces it.
	UploadPart(ctx context.Context, u MultipartUpload, number int, body Body) (Part, error)
	// CopyPart makes a part of size bytes of src at offset inside the server. The
	// part's CRC64 is not known by the server's answer and is 0.
	CopyPart(ctx context.Context, u MultipartUpload, number int, src Object, offset, size int64) (Part, error)
	// ListParts returns every part the server holds, by number.
	ListParts(ctx context.Context, u MultipartUpload) ([]Part, error)
	// CompleteUpload makes the object of parts, which must ascend by Number.
	// A retry after a lost answer finds the finished object and succeeds.
	CompleteUpload(ctx context.Context, u MultipartUpload, parts []Part, o PutOptions) (Info, error)
	// AbortUpload forgets the upload. An unknown one counts as aborted.
	AbortUpload(ctx context.Context, u MultipartUpload) error
	// ListUploads returns the uploads in progress whose key begins with prefix.
	ListUploads(ctx context.Context, prefix string) ([]MultipartUpload, error)
}

// Bucket is everything that can be asked of one bucket.
type Bucket interface {
	RangeReader
	Lister
	Stater
	Writer
	MultipartUploader
}
