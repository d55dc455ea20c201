package sign

import (
	"net/http"
	"strings"
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
	ring     keyring
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

	// payload is the payload hash that was signed, or what stands in its place;
	// "" where the scheme signs none.
	payload string
	// chunks continues a SigV4 signature into the body; nil for other schemes.
	chunks *chunkChain
}

// Verify says who sent r, or why that cannot be believed. Bucket and key are
// what the request addresses, decoded, whatever the addressing style; both are
// empty for the service itself. The body is not read.
func (v *Verifier) Verify(r *http.Request, bucket, key string) (Identity, *Error) {
	t := target{bucket: bucket, key: key}
	s := borrowScratch()
	defer s.giveBack()

	if auth := r.Header.Get("Authorization"); auth != "" {
		scheme, rest, _ := strings.Cut(auth, " ")
		switch scheme {
		case ossV4Algorithm:
			return v.ossV4Header(s, r, t, rest)
		case "OSS2":
			return v.ossV2Header(s, r, t, rest)
		case "OSS":
			return v.ossV1Header(s, r, t, rest)
		case sigV4Algorithm:
			return v.sigV4Header(s, r, rest)
		case "AWS":
			return v.sigV2Header(s, r, t, rest)
		default:
			return Identity{}, invalidArgument("Authorization", "Unsupported authorization type.")
		}
	}
	// Every signature in a query has a parameter whose name ends so.
	if strings.Contains(r.URL.RawQuery, "ignature") {
		q := parseQuery(r.URL.RawQuery)
		switch {
		case q.get("x-oss-signature-version") == "OSS2":
			return v.ossV2Query(s, r, t, q)
		case q.has("x-oss-signature") || q.has("x-oss-signature-version"):
			return v.ossV4Query(s, r, t, q)
		case q.has("Signature") && q.has("OSSAccessKeyId"):
			return v.ossV1Query(s, r, t, q)
		case q.has("X-Amz-Signature"):
			return v.sigV4Query(s, r, q)
		case q.has("Signature") && q.has("AWSAccessKeyId"):
			return v.sigV2Query(s, r, t, q)
		}
	}
	return Identity{Anonymous: true, S3: speaksS3(r.Header), payload: r.Header.Get("X-Amz-Content-Sha256")}, nil
}

// target is what a request addresses.
type target struct {
	bucket, key string
}

// speaksS3 tells the dialect of an unsigned request by its headers.
func speaksS3(h http.Header) bool {
	for name := range h {
		if strings.HasPrefix(name, "X-Amz-") {
			return true
		}
	}
	return false
}

// lookup finds the credential of a request and judges the security token that
// came with it.
func (v *Verifier) lookup(accessKeyID, token string, s3 bool) (Credential, *Error) {
	c, ok := v.keys.Lookup(accessKeyID)
	switch {
	case !ok, token == "" && c.SecurityToken != "":
		return Credential{}, invalidAccessKeyID(accessKeyID, s3)
	case !equal(token, c.SecurityToken):
		return Credential{}, invalidSecurityToken()
	case !c.Expires.IsZero() && !v.now().Before(c.Expires):
		return Credential{}, securityTokenExpired()
	}
	return c, nil
}
