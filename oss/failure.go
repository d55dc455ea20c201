package oss

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	sdk "github.com/aliyun/aliyun-oss-go-sdk/oss"

	"github.com/pailfs/pailfs/oss/credentials"
	"github.com/pailfs/pailfs/oss/internal/oneline"
)

// failure is why one request failed: who said so, what it means to callers, and
// whether repeating it may help. It is the error that calls return, too.
type failure struct {
	op  operation
	key string

	// kind is the sentinel that callers test for.
	kind error
	// outcome is what metrics count.
	outcome outcome
	// transient says that the same request may succeed later.
	transient bool
	// ambiguous says that the server may have carried the request out.
	ambiguous bool
	// wait is how long the server asked to wait; 0 if it did not say.
	wait time.Duration

	// status, code, message, requestID and endpoint are the server's words, empty
	// if it was not reached.
	status    int
	code      string
	message   string
	requestID string
	endpoint  string
	// date is the server's clock in the answer.
	date time.Time
	// keys are what the request was signed with, nil if it was not.
	keys *credentials.Keys
	// cause is what happened below HTTP.
	cause error
}

// Error returns one line: what was asked, what went wrong, where to look it up.
func (f *failure) Error() string {
	var b strings.Builder
	b.WriteString(f.op.String())
	if f.key != "" {
		fmt.Fprintf(&b, " %q", f.key)
	}
	b.WriteString(": ")
	b.WriteString(f.kind.Error())
	if f.status != 0 {
		for _, text := range []string{f.code, f.message} {
			if text != "" {
				b.WriteString(": ")
				b.WriteString(text)
			}
		}
		fmt.Fprintf(&b, " (%d %s)", f.status, http.StatusText(f.status))
	}
	if f.cause != nil {
		fmt.Fprintf(&b, ": %v", f.cause)
	}
	if f.requestID != "" {
		fmt.Fprintf(&b, " [request %s]", f.requestID)
	}
	return b.String()
}

// is says whether callers see the failure as one of kind.
func (f *failure) is(kind error) bool { return errors.Is(f.kind, kind) }

// Unwrap lets errors.Is see both the kind and what happened below HTTP.
func (f *failure) Unwrap() []error {
	if f.cause == nil {
		return []error{f.kind}
	}
	return []error{f.kind, f.cause}
}

// The causes that this package itself makes.
var (
	errFirstByte = errors.New("no answer in time")
	errStalled   = errors.New("the connection stalled")
	errHedgeLost = errors.New("the other request answered first")
	errBadAnswer = errors.New("bad answer")
)

// codeKinds maps the server's codes to kinds where the status alone would
// mislead. Source: the error tables of the OSS API reference.
var codeKinds = map[string]error{
	"NoSuchKey":                    ErrNotFound,
	"NoSuchUpload":                 ErrNotFound,
	"SymlinkTargetNotExist":        ErrNotFound,
	"NoSuchBucket":                 ErrNoBucket,
	"FileAlreadyExists":            ErrExists,
	"ObjectAlreadyExists":          ErrExists,
	"PreconditionFailed":           ErrChanged,
	"FileImmutable":                ErrAccessDenied,
	"InvalidObjectState":           ErrInvalid,
	"InvalidBucketName":            ErrInvalid,
	"SecurityTokenExpired":         ErrAccessDenied,
	"InvalidSecurityToken":         ErrAccessDenied,
	"InvalidAccessKeyId":           ErrAccessDenied,
	"RequestTimeTooSkewed":         ErrAccessDenied,
	"UserDisable":                  ErrAccessDenied,
	"RequestIsNotMultiPartContent": ErrInvalid,
}

// staleKeyCodes are the refusals that newer credentials may overcome.
var staleKeyCodes = map[string]bool{
	"InvalidAccessKeyId":   true,
	"SecurityTokenExpired": true,
	"InvalidSecurityToken": true,
	"AccessKeyIdNotFound":  true,
}

// throttleCode says whether the server's code means "too many", whatever its
// status.
func throttleCode(code string) bool {
	return strings.HasSuffix(code, "LimitExceeded") && code != "EntityLimitExceeded"
}

// failed classifies err, which came out of a request after the header of resp,
// nil if there was none. cause is why the request's context was cancelled, if it
// was.
func (c *Client) failed(op operation, key string, err, cause error, header http.Header) *failure {
	f := &failure{op: op, key: key, kind: ErrUnavailable}
	var already *failure
	var service sdk.ServiceError
	switch {
	case errors.As(err, &already):
		return already
	case cause != nil:
		f.fromCause(cause)
	case errors.As(err, &service):
		f.fromService(service)
	default:
		f.fromNetwork(err)
	}
	if header != nil {
		f.fromHeader(header)
	}
	if c != nil {
		f.message = c.cfg.Credentials.Redact(f.message)
	}
	return f
}

// fromCause classifies a request that this side gave up.
func (f *failure) fromCause(cause error) {
	f.cause = cause
	f.ambiguous = true
	switch {
	case errors.Is(cause, errFirstByte), errors.Is(cause, errStalled):
		f.outcome, f.transient = outcomeTimeout, true
	case errors.Is(cause, errHedgeLost):
		f.outcome, f.transient = outcomeCanceled, true
	default:
		f.outcome = outcomeCanceled
		if errors.Is(cause, context.Canceled) || errors.Is(cause, context.DeadlineExceeded) {
			f.kind = cause
			f.cause = nil
		}
	}
}

// fromService classifies what the server said.
func (f *failure) fromService(e sdk.ServiceError) {
	f.status = e.StatusCode
	f.code = oneline.Of(e.Code, 80)
	f.message = oneline.Of(e.Message, 300)
	f.requestID = oneline.Of(e.RequestID, 80)
	f.endpoint = oneline.Of(e.Endpoint, 200)
	f.byStatus()
}

// byStatus fills in kind, outcome and whether to repeat.
func (f *failure) byStatus() {
	status := f.status
	switch {
	case throttleCode(f.code) || status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable:
		f.outcome, f.transient = outcomeThrottled, true
		return
	case f.code == "RequestTimeout" || status == http.StatusRequestTimeout:
		f.outcome, f.transient = outcomeServerError, true
		return
	case status >= 500 && status < 600 && status != http.StatusNotImplemented:
		// It may have failed after the deed.
		f.outcome, f.transient, f.ambiguous = outcomeServerError, true, true
		return
	}
	f.kind = codeKinds[f.code]
	if f.kind == nil {
		f.kind = kindOfStatus(status)
	}
	f.outcome = outcomeInvalid
	if o, ok := kindOutcomes[f.kind]; ok {
		f.outcome = o
	}
}

func kindOfStatus(status int) error {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden:
		return ErrAccessDenied
	case http.StatusNotFound:
		return ErrNotFound
	case http.StatusPreconditionFailed:
		return ErrChanged
	default:
		return ErrInvalid
	}
}

// kindOutcomes says how metrics count the kinds; what is missing counts as
// invalid.
var kindOutcomes = map[error]outcome{
	ErrNotFound:     outcomeNotFound,
	ErrNoBucket:     outcomeNotFound,
	ErrChanged:      outcomeChanged,
	ErrExists:       outcomeExists,
	ErrAccessDenied: outcomeDenied,
}

// fromNetwork classifies what happened below HTTP, or instead of it.
func (f *failure) fromNetwork(err error) {
	if u, ok := errors.AsType[*url.Error](err); ok {
		// Its text repeats the URL, which op and key say already.
		err = u.Err
	}
	f.cause = &networkError{err}
	f.outcome, f.transient, f.ambiguous = outcomeNetworkError, true, !isDialError(err)
	var local *bodyError
	switch {
	case errors.As(err, &local):
		// The content could not be read on this side.
		f.cause, f.kind, f.transient = local, ErrInvalid, false
		f.outcome = outcomeCanceled
	case permanentNetworkError(err):
		f.transient = false
	case errors.Is(err, errBadAnswer):
		f.cause, f.kind, f.outcome = err, ErrBadAnswer, outcomeBadAnswer
	case notHTTP(err):
		f.kind, f.outcome = ErrBadAnswer, outcomeBadAnswer
	}
}

// notHTTPTexts are what net/http says of an answer that breaks the protocol, or its
// bounds. It has no types for them.
var notHTTPTexts = []string{
	"malformed HTTP", "malformed MIME", "response headers exceeded", "message too large", "1xx informational", "Content-Length",
	"transfer encoding", "chunked", "chunk length", "header line too long", "trailer",
}

// notHTTP says that something answered, and that it was no HTTP. A connection that
// broke, at whatever place, is not meant.
func notHTTP(err error) bool {
	if _, ok := errors.AsType[net.Error](err); ok || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return false
	}
	text := err.Error()
	return slices.ContainsFunc(notHTTPTexts, func(part string) bool { return strings.Contains(text, part) })
}

// permanentNetworkError says that no repetition can help: whoever answers is not
// who was meant, or does not speak TLS.
func permanentNetworkError(err error) bool {
	var cert *tls.CertificateVerificationError
	var authority x509.UnknownAuthorityError
	var host x509.HostnameError
	var record tls.RecordHeaderError
	return errors.As(err, &cert) || errors.As(err, &authority) || errors.As(err, &host) || errors.As(err, &record) ||
		errors.Is(err, http.ErrSchemeMismatch)
}

// networkError keeps a foreign error to one line. It does not unwrap: net's own
// timeouts claim to be context.DeadlineExceeded, and callers must be able to
// take that for the end of their own context.
type networkError struct{ err error }

func (e *networkError) Error() string { return oneline.Of(e.err.Error(), 300) }

// fromHeader adds what only the header tells.
func (f *failure) fromHeader(h http.Header) {
	if f.requestID == "" {
		f.requestID = oneline.Of(h.Get("X-Oss-Request-Id"), 80)
	}
	f.wait = serverWait(h)
	if t, err := http.ParseTime(h.Get("Date")); err == nil {
		f.date = t
	}
}

// maxServerWait bounds what a server may ask for.
const maxServerWait = 10 * time.Second

// serverWait returns how long the server asks to wait before the next request.
func serverWait(h http.Header) time.Duration {
	var wait time.Duration
	if ms, err := strconv.ParseInt(h.Get("X-Oss-Qos-Delay-Time"), 10, 64); err == nil && ms > 0 {
		wait = time.Duration(min(ms, int64(maxServerWait/time.Millisecond))) * time.Millisecond
	}
	if s, err := strconv.ParseInt(h.Get("Retry-After"), 10, 64); err == nil && s > 0 {
		wait = max(wait, time.Duration(min(s, int64(maxServerWait/time.Second)))*time.Second)
	}
	return wait
}

// isDialError says that the request cannot have reached the server.
func isDialError(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}
