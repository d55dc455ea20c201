package oss

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/pailfs/pailfs/oss/credentials"
)

// Config says which bucket a [Client] speaks to and how. Endpoint and Bucket are
// required; the zero value of every other field is its documented default.
type Config struct {
	// Endpoint is the service's address, without the bucket: a host with an
	// optional port, or a URL of scheme http or https. Without a scheme it means
	// https; a connection without TLS is made only to an explicit http:// URL.
	Endpoint string
	// Bucket is the bucket's name.
	Bucket string
	// Region, such as cn-hangzhou, selects the V4 signature. Empty means V1, which
	// needs no region but is refused by accounts that demand V4.
	Region string
	// Credentials sign the requests. The source is not closed by the client. nil
	// means anonymous: requests are not signed.
	Credentials *credentials.Source
	// PathStyle puts the bucket into the path rather than the host name. It is
	// implied by an IP address as endpoint; OSS itself refuses it.
	PathStyle bool
	// CNAME says that Endpoint is a domain bound to the bucket.
	CNAME bool
	// Proxy is the URL of an HTTP proxy; empty means a direct connection, whatever
	// the environment says.
	Proxy string
	// CAFile is a PEM file of the authorities trusted instead of the system's.
	CAFile string
	// MaxConnections bounds the open connections; 0 means 512. More requests than
	// that wait inside the transport, so it should not be below the limiter's Max.
	MaxConnections int
	// Deadlines bound the total time of a call by its class.
	Deadlines Deadlines
	// HedgeShare is the share of demand reads that may be sent a second time when
	// the first answer is late; 0 means 0.05, negative means none.
	HedgeShare float64
}

// Deadlines are the times after which a call gives up retrying and returns an
// error that wraps [ErrUnavailable]. A call that moves a body gets one second
// more for each MiB of it.
type Deadlines struct {
	// Demand bounds calls of class [Demand]; 0 means 2 minutes.
	Demand time.Duration
	// Prefetch bounds calls of class [Prefetch]; 0 means 5 minutes.
	Prefetch time.Duration
	// Upload bounds calls of class [Upload]; 0 means 15 minutes.
	Upload time.Duration
}

const (
	defaultMaxConnections = 512
	defaultHedgeShare     = 0.05
)

func (c *Config) hedgeShare() float64 {
	switch {
	case c.HedgeShare == 0:
		return defaultHedgeShare
	case c.HedgeShare < 0:
		return 0
	default:
		return c.HedgeShare
	}
}

func (d Deadlines) of(class Class) time.Duration {
	pick := func(set, otherwise time.Duration) time.Duration {
		if set > 0 {
			return set
		}
		return otherwise
	}
	switch class {
	case Demand:
		return pick(d.Demand, 2*time.Minute)
	case Prefetch:
		return pick(d.Prefetch, 5*time.Minute)
	default:
		return pick(d.Upload, 15*time.Minute)
	}
}

var bucketName = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{1,61}[a-z0-9]$`)

// regionName refuses what is commonly pasted into the field by mistake: an
// endpoint, or a location such as oss-cn-hangzhou.
var regionName = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)

// endpointURL returns the endpoint with its scheme, and nothing behind the host.
func (c *Config) endpointURL() (*url.URL, error) {
	text := strings.TrimSpace(c.Endpoint)
	if text == "" {
		return nil, errors.New("endpoint is empty: give one such as oss-cn-hangzhou-internal.aliyuncs.com")
	}
	if !strings.Contains(text, "://") {
		text = "https://" + text
	}
	u, err := url.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("endpoint %q: not a host nor a URL", c.Endpoint)
	}
	switch {
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, fmt.Errorf("endpoint %q: scheme must be http or https", c.Endpoint)
	case u.User != nil:
		return nil, errors.New("endpoint must not carry a user name or password")
	case u.Hostname() == "":
		return nil, fmt.Errorf("endpoint %q: no host", c.Endpoint)
	case strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "":
		return nil, fmt.Errorf("endpoint %q: must end behind the host; the bucket and prefix are given elsewhere", c.Endpoint)
	case c.Bucket != "" && !c.CNAME && strings.HasPrefix(u.Hostname(), c.Bucket+".") && net.ParseIP(u.Hostname()) == nil:
		return nil, fmt.Errorf("endpoint %q: begins with the bucket; leave %q out of it", c.Endpoint, c.Bucket+".")
	}
	return &url.URL{Scheme: u.Scheme, Host: u.Host}, nil
}

// pathStyle says whether the bucket stands in the path.
func (c *Config) pathStyle(endpoint *url.URL) bool {
	return c.PathStyle || net.ParseIP(endpoint.Hostname()) != nil
}

// validate refuses what cannot work, so that Open fails before any request. It
// returns the endpoint.
func (c *Config) validate() (*url.URL, error) {
	endpoint, err := c.endpointURL()
	if err != nil {
		return nil, err
	}
	switch {
	case !bucketName.MatchString(c.Bucket):
		return nil, fmt.Errorf("bucket %q: a name has 3 to 63 letters, digits and dashes, in lower case", c.Bucket)
	case c.Region != "" && (!regionName.MatchString(c.Region) || strings.HasPrefix(c.Region, "oss-")):
		return nil, fmt.Errorf("region %q: give one such as cn-hangzhou", c.Region)
	case c.CNAME && c.pathStyle(endpoint):
		return nil, errors.New("a CNAME endpoint is a domain, and excludes path style")
	case c.MaxConnections < 0:
		return nil, fmt.Errorf("max connections %d: must not be negative", c.MaxConnections)
	case c.HedgeShare > 0.5:
		return nil, fmt.Errorf("hedge share %g: must not exceed 0.5", c.HedgeShare)
	case c.Deadlines.Demand < 0 || c.Deadlines.Prefetch < 0 || c.Deadlines.Upload < 0:
		return nil, errors.New("deadlines must not be negative")
	}
	if c.Proxy != "" {
		u, err := url.Parse(c.Proxy)
		if err != nil || u.Host == "" {
			return nil, errors.New("proxy is not a URL such as http://host:port")
		}
	}
	return endpoint, nil
}
