package sign

import (
	"net/http"
	"time"
)

// Credential is one key pair, or one temporary triple.
type Credential struct {
	AccessKeyID     string
	AccessKeySecret string
	// SecurityToken must come with every request of a temporary credential. Empty
	// for a permanent key pair, whose requests must carry none.
	SecurityToken string
	// Expires is when a temporary credential ends. Zero means never.
	Expires time.Time
}

// Keys finds credentials. Lookup is called once for every signed request, from
// many goroutines.
type Keys interface {
	Lookup(accessKeyID string) (Credential, bool)
}

// Config is what a [Verifier] needs.
type Config struct {
	// Keys must not be nil.
	Keys Keys
	// Now is the server's clock; nil means [time.Now].
	Now func() time.Time
	// Region, when set, is the only region that a V4 or SigV4 scope may name.
	Region string
	// S3Strict refuses every aws-chunked body but the one whose chunks are signed
	// and that has no trailer, as the real service does.
	S3Strict bool
}

// Verifier verifies requests. It is safe for concurrent use.
type Verifier struct {
	keys     Keys
	now      func() time.Time
	region   string
	s3Strict bool
}

// New returns a Verifier.
func New(cfg Config) *Verifier {
	now := cfg.Now
	if now == nil {
		now = time.Now
	}
	return &Verifier{keys: cfg.Keys, now: now, region: cfg.Region, s3Strict: cfg.S3Strict}
}

// Identity is who sent a request, and in which dialect.
type Identity struct {
	// Anonymous says that the request carries no signature.
	Anonymous bool
	// AccessKeyID is the key that signed; empty when Anonymous.
	AccessKeyID string
	// S3 says that the request speaks the S3-compatible dialect.
	S3 bool
	// Presigned says that the signature is in the query.
	Presigned bool
}

// Verify says who sent r, or why that cannot be believed. Bucket and key are
// what the request addresses, decoded, whatever the addressing style; both are
// empty for the service itself. The body is not read.
func (v *Verifier) Verify(r *http.Request, bucket, key string) (Identity, *Error) {
	return Identity{}, &Error{Status: http.StatusNotImplemented, Code: "NotImplemented", Message: "not built yet"}
}
