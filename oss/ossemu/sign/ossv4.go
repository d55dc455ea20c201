package sign

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"slices"
	"strings"
)

const (
	ossV4Algorithm  = "OSS4-HMAC-SHA256"
	ossV4Terminator = "aliyun_v4_request"
	unsignedPayload = "UNSIGNED-PAYLOAD"
)

// ossV4Header verifies "Authorization: OSS4-HMAC-SHA256 Credential=…,Signature=…".
func (v *Verifier) ossV4Header(s *scratch, r *http.Request, t target, text string) (Identity, *Error) {
	a, ok := parseAuthorization(text, "AdditionalHeaders")
	if !ok {
		return Identity{}, malformedHeader(false, "The Authorization header is not of the V4 form.", "")
	}
	sc, e := v.ossScope(a.credential, "Authorization header")
	if e != nil {
		return Identity{}, e
	}
	payload := unsignedPayload
	if h := r.Header.Get("X-Oss-Content-Sha256"); h != "" && h != unsignedPayload {
		e := invalidArgument("x-oss-content-sha256", "The value of x-oss-content-sha256 must be UNSIGNED-PAYLOAD.")
		e.EC = "0002-00000214"
		return Identity{}, e
	}
	st, e := v.headerStamp(r.Header, "X-Oss-Date", false)
	if e != nil {
		return Identity{}, e
	}
	if st.time.Format(dayFormat) != sc.day {
		return Identity{}, malformedHeader(false, "Invalid signing date in Authorization header.", "")
	}
	q := parseQuery(r.URL.RawQuery)
	c, e := v.lookup(sc.accessKeyID, ossToken(r.Header, q), false)
	if e != nil {
		return Identity{}, e
	}
	additional, e := additionalHeaders(r, a.headers)
	if e != nil {
		return Identity{}, e
	}
	ossV4Canonical(s, r, t, q, "", additional, payload)
	if e := v.compareV4(s, ossV4, c, sc, st, a.signature); e != nil {
		return Identity{}, e
	}
	return Identity{AccessKeyID: sc.accessKeyID}, nil
}

// ossV4Query verifies a URL with x-oss-signature.
func (v *Verifier) ossV4Query(s *scratch, r *http.Request, t target, q query) (Identity, *Error) {
	if q.get("x-oss-signature-version") != ossV4Algorithm {
		return Identity{}, malformedQuery(false, "x-oss-signature-version must be "+ossV4Algorithm+".", "")
	}
	signature := q.get("x-oss-signature")
	if signature == "" {
		return Identity{}, malformedQuery(false, "x-oss-signature is missing.", "0002-00000219")
	}
	sc, e := v.ossScope(q.get("x-oss-credential"), "x-oss-credential")
	if e != nil {
		return Identity{}, e
	}
	st, e := v.lifetime(q, "x-oss-date", "x-oss-expires", false)
	if e != nil {
		return Identity{}, e
	}
	if st.time.Format(dayFormat) != sc.day {
		return Identity{}, malformedQuery(false, "Invalid signing date in x-oss-credential.", "")
	}
	c, e := v.lookup(sc.accessKeyID, ossToken(r.Header, q), false)
	if e != nil {
		return Identity{}, e
	}
	additional, e := additionalHeaders(r, q.get("x-oss-additional-headers"))
	if e != nil {
		return Identity{}, e
	}
	ossV4Canonical(s, r, t, q, "x-oss-signature", additional, unsignedPayload)
	if e := v.compareV4(s, ossV4, c, sc, st, signature); e != nil {
		return Identity{}, e
	}
	return Identity{AccessKeyID: sc.accessKeyID, Presigned: true}, nil
}

// ossScope reads a credential and judges its region and product. Where says
// where it stands, for the message.
func (v *Verifier) ossScope(credential, where string) (scope, *Error) {
	sc, ok := parseScope(credential, ossV4Terminator)
	switch {
	case !ok:
		return scope{}, malformedHeader(false, "The Credential in the "+where+" is invalid.", "0002-00000213")
	case v.region != "" && sc.region != v.region:
		return scope{}, malformedHeader(false, "Invalid signing region in "+where+".", "0002-00000226")
	case sc.product != "oss" && sc.product != "oss-cloudbox":
		return scope{}, malformedHeader(false, "Invalid signing product in "+where+".", "0002-00000227")
	}
	return sc, nil
}

// additionalHeaders splits and sorts a list of additional headers. Each must be
// there: otherwise whoever comes later could add one.
func additionalHeaders(r *http.Request, list string) ([]string, *Error) {
	if list == "" {
		return nil, nil
	}
	names := strings.Split(strings.ToLower(list), ";")
	slices.Sort(names)
	for _, name := range names {
		if _, ok := headerValues(r, name); !ok {
			return nil, invalidArgument("AdditionalHeaders", "The additional header "+name+" is not in the request.")
		}
	}
	return names, nil
}

// ossV4Canonical writes the V4 canonical request into s.text.
func ossV4Canonical(s *scratch, r *http.Request, t target, q query, except string, additional []string, payload string) {
	s.text = s.text[:0]
	s.line(r.Method)
	s.text = append(s.text, '/')
	if t.bucket != "" {
		s.text = appendEncoded(s.text, t.bucket, false)
		s.text = append(s.text, '/')
		s.text = appendEncoded(s.text, t.key, true)
	}
	s.text = append(s.text, '\n')
	s.appendQuery(q, except, true)
	s.text = append(s.text, '\n')

	s.collectHeaders(r.Header, "X-Oss-")
	for _, name := range []string{"content-md5", "content-type"} {
		s.addHeader(r, name)
	}
	for _, name := range additional {
		if name != "content-md5" && name != "content-type" && !strings.HasPrefix(name, "x-oss-") {
			s.addHeader(r, name)
		}
	}
	s.appendHeaders()
	s.line()
	s.line(strings.Join(additional, ";"))
	s.text = append(s.text, payload...)
}

// addHeader adds a header to s.pairs if r has it.
func (s *scratch) addHeader(r *http.Request, name string) {
	if values, ok := headerValues(r, name); ok {
		s.pairs = append(s.pairs, pair{name, joined(values)})
	}
}

// family is what differs between the two V4 schemes once there is a canonical
// request.
type family struct {
	algorithm, secretPrefix, terminator string
	s3                                  bool
}

var (
	ossV4 = family{ossV4Algorithm, "aliyun_v4", ossV4Terminator, false}
	sigV4 = family{sigV4Algorithm, "AWS4", sigV4Terminator, true}
)

// signingKey is the key of a scope's day.
func (v *Verifier) signingKey(f family, c Credential, sc scope) []byte {
	return v.ring.key(derivation{f.secretPrefix, c.AccessKeySecret, sc.day, sc.region, sc.product, f.terminator})
}

// compareV4 signs the canonical request in s.text and compares.
func (v *Verifier) compareV4(s *scratch, f family, c Credential, sc scope, st stamp, signature string) *Error {
	sum := sha256.Sum256(s.text)
	b := s.toSign[:0]
	for _, part := range []string{f.algorithm, st.text, sc.text} {
		b = append(b, part...)
		b = append(b, '\n')
	}
	s.toSign = hex.AppendEncode(b, sum[:])
	if !equal(signature, signHex(v.signingKey(f, c, sc), s.toSign)) {
		return mismatch(f.s3, c.AccessKeyID, signature, s.toSign, s.text)
	}
	return nil
}
