package oss

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"syscall"
	"time"

	"github.com/pailfs/pailfs/oss/credentials"
)

const (
	// preflightTime bounds a preflight: somebody waits for it.
	preflightTime = 10 * time.Second
	// preflightKeys is how many keys it asks for: they say what kind of files there are, and
	// one request takes no longer for them.
	preflightKeys = 100
	// skewAllowed is by how much a client's clock may differ, by OSS's rules.
	skewAllowed = 15 * time.Minute
)

// Preflight makes one cheap request, a listing of the first keys under prefix, that
// proves endpoint, bucket, region, credentials and clock. It returns the objects of
// these keys, a hundred at most. Its error says in one line which of them is wrong and
// what to do. A failure that may pass is repeated for some seconds.
func (c *Client) Preflight(ctx context.Context, prefix string) (first []ListedObject, err error) {
	v := &view{client: c, class: Demand}
	r := v.retrying(opList, prefix, 0)
	r.deadline = time.Now().Add(preflightTime)
	const tries = 3
	for n := 1; ; n++ {
		page, f := v.listOnce(ctx, r, ListRequest{Prefix: prefix, MaxKeys: preflightKeys})
		if f == nil {
			return page.Objects, nil
		}
		err := error(f)
		if n < tries {
			if err = r.again(ctx, f); err == nil {
				continue
			}
		}
		return nil, fmt.Errorf("check oss://%s/%s at %s: %w", c.cfg.Bucket, prefix, c.endpoint, c.diagnose(f, err))
	}
}

// diagnosis puts what is wrong before the failure that shows it.
type diagnosis struct {
	advice string
	err    error
}

func (d *diagnosis) Error() string { return d.advice + " (" + d.err.Error() + ")" }

func (d *diagnosis) Unwrap() error { return d.err }

// diagnose finds the setting that explains f; err is what the call would return.
func (c *Client) diagnose(f *failure, err error) error {
	advice := ""
	var network *networkError
	switch {
	case f.status != 0:
		advice = c.adviceOnAnswer(f)
	case errors.As(f.cause, &network):
		advice = c.adviceOnNetwork(network.err)
	case errors.Is(f.cause, errFirstByte), errors.Is(f.cause, errStalled):
		advice = "the endpoint takes connections but does not answer: check the endpoint and its port, and whether it speaks " + c.endpoint.Scheme
	case errors.Is(f.cause, errBadAnswer):
		advice = "the endpoint does not answer like OSS: check the endpoint"
	}
	if advice == "" {
		return err
	}
	return &diagnosis{advice, err}
}

// adviceOnAnswer explains what a server said.
func (c *Client) adviceOnAnswer(f *failure) string {
	cfg := &c.cfg
	who := cfg.Credentials.Describe()
	switch {
	case f.endpoint != "":
		return fmt.Sprintf("the bucket is not at this endpoint: use %s", f.endpoint)
	case f.is(ErrNoBucket):
		return fmt.Sprintf("bucket %q does not exist at this endpoint: check its name, and that the endpoint is that of its region", cfg.Bucket)
	case f.code == "RequestTimeTooSkewed" || c.skewed(f):
		return fmt.Sprintf("this machine's clock, %s, is too far from %s: set the clock", time.Now().UTC().Format(time.RFC3339), c.serverClock(f))
	case f.code == "InvalidAccessKeyId":
		return fmt.Sprintf("the access key id of %s is unknown to the server: check it, and that it is not disabled", who)
	case f.code == "SecurityTokenExpired" || f.code == "InvalidSecurityToken":
		return fmt.Sprintf("the session token of %s has expired or is wrong: get a new one", who)
	case f.code == "SignatureDoesNotMatch" && cfg.Region != "":
		return fmt.Sprintf("the signature is wrong: check the access key secret of %s, and that the bucket's region is %q", who, cfg.Region)
	case f.code == "SignatureDoesNotMatch":
		return fmt.Sprintf("the signature is wrong: check the access key secret of %s", who)
	case cfg.Region != "" && strings.Contains(strings.ToLower(f.message), "region"):
		return fmt.Sprintf("the region %q is not the bucket's: set the bucket's own", cfg.Region)
	case f.code == "SecondLevelDomainForbidden":
		return "the service wants the bucket in the host name: switch path style off, or give the endpoint by name rather than by address"
	case f.is(ErrAccessDenied) && cfg.Credentials.Kind() == credentials.Anonymous:
		return "the bucket is not public: give credentials"
	case f.is(ErrAccessDenied):
		return fmt.Sprintf("%s may not list the bucket: grant oss:ListObjects and oss:GetObject on it, and check the bucket's policy", who)
	case f.code == "Redirect":
		return "the endpoint sends requests elsewhere: give the endpoint it points to"
	case f.code == "" && f.status == http.StatusBadRequest && c.endpoint.Scheme == "http":
		return "the endpoint does not answer plain HTTP like OSS: try https://"
	case f.code == "":
		return "the endpoint does not answer like OSS: check the endpoint"
	default:
		return ""
	}
}

// skewed says whether a refusal for no stated reason comes with clocks apart.
func (c *Client) skewed(f *failure) bool {
	return f.is(ErrAccessDenied) && !f.date.IsZero() && time.Since(f.date).Abs() > skewAllowed
}

func (c *Client) serverClock(f *failure) string {
	if !c.skewed(f) {
		return "the server's"
	}
	return "the server's, " + f.date.UTC().Format(time.RFC3339)
}

// adviceOnNetwork explains why no server was reached.
func (c *Client) adviceOnNetwork(err error) string {
	var dns *net.DNSError
	host := c.reads.host
	switch {
	case errors.As(err, &dns):
		return fmt.Sprintf("the name %s cannot be resolved: check the endpoint and the bucket's name, and this machine's DNS", dns.Name)
	case errors.Is(err, http.ErrSchemeMismatch):
		return "the endpoint speaks plain HTTP, not TLS: write it with http:// if that is meant"
	case permanentNetworkError(err):
		return fmt.Sprintf("the certificate of %s is not trusted: check the endpoint, or add its authority to those that this machine trusts (SSL_CERT_FILE names a file of them)", host)
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Sprintf("nothing listens at %s: check the endpoint and its port", host)
	case strings.Contains(err.Error(), "malformed HTTP response"):
		return "the endpoint does not speak plain HTTP: try https://"
	case isDialError(err):
		return fmt.Sprintf("%s cannot be reached: check the endpoint, the network and its firewalls", host)
	default:
		return ""
	}
}
