package sign

import (
	"net/http"
	"net/url"
	"strings"
)

// s3Subresources are the query parameters that SigV2 signs.
var s3Subresources = set(`accelerate acl analytics cors delete encryption inventory legal-hold lifecycle location
	logging metrics notification object-lock partNumber policy publicAccessBlock replication requestPayment
	response-cache-control response-content-disposition response-content-encoding response-content-language
	response-content-type response-expires restore retention select select-type tagging torrent uploadId uploads
	versionId versioning versions website`)

// sigV2Header verifies "Authorization: AWS key:signature".
func (v *Verifier) sigV2Header(s *scratch, r *http.Request, t target, text string) (Identity, *Error) {
	id, signature, ok := strings.Cut(text, ":")
	if !ok || id == "" || signature == "" {
		return Identity{}, malformedHeader(true, "The authorization header is malformed; it must be \"AWS AccessKeyId:Signature\".", "")
	}
	if _, e := v.headerStamp(r.Header, "X-Amz-Date", true); e != nil {
		return Identity{}, e
	}
	// With x-amz-date, which is signed among the headers, the Date line is empty.
	date := ""
	if r.Header.Get("X-Amz-Date") == "" {
		date = r.Header.Get("Date")
	}
	return v.sigV2(s, r, t, parseQuery(r.URL.RawQuery), id, signature, date)
}

// sigV2Query verifies a URL with AWSAccessKeyId, Expires and Signature.
func (v *Verifier) sigV2Query(s *scratch, r *http.Request, t target, q query) (Identity, *Error) {
	expires := q.get("Expires")
	if e := v.untilExpires(expires); e != nil {
		return Identity{}, e
	}
	id, e := v.sigV2(s, r, t, q, q.get("AWSAccessKeyId"), q.get("Signature"), expires)
	id.Presigned = e == nil
	return id, e
}

func (v *Verifier) sigV2(s *scratch, r *http.Request, t target, q query, id, signature, date string) (Identity, *Error) {
	c, e := v.lookup(id, s3Token(r.Header, q), true)
	if e != nil {
		return Identity{}, e
	}
	sigV2ToSign(s, r, t, q, date)
	if !equal(signature, signBase64(c.AccessKeySecret, s.text)) {
		return Identity{}, mismatch(true, id, signature, s.text, nil)
	}
	return Identity{AccessKeyID: id, S3: true, payload: r.Header.Get("X-Amz-Content-Sha256")}, nil
}

// sigV2ToSign writes the SigV2 string to sign into s.text. Unlike OSS V1 it
// signs the path as it was sent, with its escapes.
func sigV2ToSign(s *scratch, r *http.Request, t target, q query, date string) {
	s.text = s.text[:0]
	s.line(r.Method)
	s.line(r.Header.Get("Content-Md5"))
	s.line(r.Header.Get("Content-Type"))
	s.line(date)
	s.collectHeaders(r.Header, "X-Amz-")
	s.appendHeaders()

	path := r.URL.EscapedPath()
	if path == "" {
		path = "/"
	}
	if t.bucket != "" && !pathNames(path, t) {
		s.text = append(s.text, '/')
		s.text = append(s.text, t.bucket...)
	}
	s.text = append(s.text, path...)
	s.appendSubresources(q, func(name string) bool {
		_, ok := s3Subresources[name]
		return ok
	})
}

// pathNames says whether the path holds the bucket. In the other styles of
// addressing the path is the key alone.
func pathNames(path string, t target) bool {
	decoded, err := url.PathUnescape(path)
	return err == nil && decoded != "/"+t.key
}
