package ossemu

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"time"

	"github.com/pailfs/pailfs/oss/ossemu/shape"
	"github.com/pailfs/pailfs/oss/ossemu/sign"
)

// Credential is one key pair, or one temporary triple of an STS token.
type Credential = sign.Credential

// Shape is how slow the server pretends to be. The zero value is as fast as it
// can be.
type Shape = shape.Shape

// PathStyle says what happens to a request that names its bucket in the path.
type PathStyle uint8

const (
	// PathStyleAllow serves it.
	PathStyleAllow PathStyle = iota
	// PathStyleDeny refuses it with SecondLevelDomainForbidden, as the real
	// service does.
	PathStyleDeny
)

// DefaultRegion is the region that buckets say they are in when none is
// configured.
const DefaultRegion = "cn-hangzhou"

// Config is what a [Server] is made of. Only Dir is required.
type Config struct {
	// Dir holds the buckets. It is made if missing and belongs to one server at a
	// time.
	Dir string
	// Credentials are the keys that are known from the start.
	Credentials []Credential
	// Buckets are made at start if missing.
	Buckets []string
	// Region, when set, is the region of every bucket and the only one that a
	// signature may name. When empty every region is accepted.
	Region string
	// ServiceDomains are host names of the service itself: a request to one of them
	// names its bucket in the path, a request to BUCKET.DOMAIN in the host. IP
	// addresses and localhost are service domains always.
	ServiceDomains []string
	// CNames maps further host names to buckets.
	CNames map[string]string
	// PathStyle says whether a bucket may be named in the path.
	PathStyle PathStyle
	// Shape is the latency and bandwidth from the start.
	Shape Shape
	// Gzip compresses texts on the fly for clients that accept it, as the real
	// service does; such answers have neither Content-Length nor ETag.
	Gzip bool
	// S3Strict refuses the aws-chunked uploads that the real service refuses.
	S3Strict bool
	// CheapETags makes entity tags of the CRC-64 in place of the MD5, unless the
	// client sends a Content-MD5. Uploads then cost about half the processor time,
	// which matters when client and server share a machine.
	CheapETags bool
	// CopyLimit is the largest object that one copy request copies; 0 means
	// DefaultCopyLimit.
	CopyLimit int64
	// Logger receives what goes wrong inside the server; nil discards it.
	Logger *slog.Logger
	// Now is the clock for signatures and modification times; nil means time.Now.
	Now func() time.Time
}

func (cfg Config) validate() error {
	if cfg.Dir == "" {
		return errors.New("no directory given")
	}
	for _, b := range cfg.Buckets {
		if !validBucketName(b) {
			return fmt.Errorf("bucket name %q: want 3 to 63 of a-z, 0-9 and dash, no dash at the ends", b)
		}
	}
	for _, d := range cfg.ServiceDomains {
		if d == "" || strings.ContainsAny(d, ":/") || net.ParseIP(d) != nil {
			return fmt.Errorf("service domain %q: want a host name without port", d)
		}
	}
	for host, b := range cfg.CNames {
		if host == "" || strings.ContainsAny(host, ":/") {
			return fmt.Errorf("cname %q: want a host name without port", host)
		}
		if !validBucketName(b) {
			return fmt.Errorf("cname %q: %q is not a bucket name", host, b)
		}
	}
	for _, c := range cfg.Credentials {
		if c.AccessKeyID == "" || c.AccessKeySecret == "" {
			return errors.New("a credential lacks its id or its secret")
		}
	}
	return cfg.Shape.Validate()
}

// validBucketName reports whether name may name a bucket.
func validBucketName(name string) bool {
	if len(name) < 3 || len(name) > 63 || name[0] == '-' || name[len(name)-1] == '-' {
		return false
	}
	for i := range len(name) {
		c := name[i]
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
			return false
		}
	}
	return true
}
