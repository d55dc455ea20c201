package sign

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"strings"
)

// ossV2Header verifies "Authorization: OSS2 AccessKeyId:…,Signature:…", the
// scheme between V1 and V4 that clients use only when told to.
func (v *Verifier) ossV2Header(s *scratch, r *http.Request, t target, text string) (Identity, *Error) {
	var id, signature, additional string
	for part := range strings.SplitSeq(text, ",") {
		name, value, ok := strings.Cut(strings.TrimSpace(part), ":")
		switch {
		case ok && name == "AccessKeyId" && id == "":
			id = value
		case ok && name == "Signature" && signature == "":
			signature = value
		case ok && name == "AdditionalHeaders" && additional == "":
			additional = value
		default:
			return Identity{}, malformedHeader(false, "The Authorization header is not of the V2 form.", "")
		}
	}
	if id == "" || signature == "" {
		return Identity{}, malformedHeader(false, "The Authorization header lacks AccessKeyId or Signature.", pick(id == "", "", "0002-00000108"))
	}
	if _, e := v.headerStamp(r.Header, "X-Oss-Date", false); e != nil {
		return Identity{}, e
	}
	q := parseQuery(r.URL.RawQuery)
	return v.ossV2(s, r, t, q, id, signature, additional, r.Header.Get("Date"))
}

// ossV2Query verifies a URL with x-oss-signature-version=OSS2.
func (v *Verifier) ossV2Query(s *scratch, r *http.Request, t target, q query) (Identity, *Error) {
	signature, expires := q.get("x-oss-signature"), q.get("x-oss-expires")
	if signature == "" {
		return Identity{}, malformedQuery(false, "x-oss-signature is missing.", "0002-00000117")
	}
	if !q.has("x-oss-expires") {
		return Identity{}, malformedQuery(false, "x-oss-expires is missing.", "0002-00000113")
	}
	if e := v.untilExpires(expires); e != nil {
		return Identity{}, e
	}
	id, e := v.ossV2(s, r, t, q, q.get("x-oss-access-key-id"), signature, q.get("x-oss-additional-headers"), expires)
	id.Presigned = e == nil
	return id, e
}

func (v *Verifier) ossV2(s *scratch, r *http.Request, t target, q query, id, signature, additional, date string) (Identity, *Error) {
	c, e := v.lookup(id, ossToken(r.Header, q), false)
	if e != nil {
		return Identity{}, e
	}
	names, e := additionalHeaders(r, additional)
	if e != nil {
		return Identity{}, e
	}
	ossV2ToSign(s, r, t, q, names, date)
	h := hmac.New(sha256.New, []byte(c.AccessKeySecret))
	h.Write(s.text)
	if !equal(signature, base64.StdEncoding.EncodeToString(h.Sum(nil))) {
		return Identity{}, mismatch(false, id, signature, s.text, nil)
	}
	return Identity{AccessKeyID: id}, nil
}

// ossV2ToSign writes the V2 string to sign into s.text. It is V1's, with the
// additional headers among the others and listed, and with a resource of which
// every byte is encoded and every parameter is signed.
func ossV2ToSign(s *scratch, r *http.Request, t target, q query, additional []string, date string) {
	s.text = s.text[:0]
	s.line(r.Method)
	s.line(r.Header.Get("Content-Md5"))
	s.line(r.Header.Get("Content-Type"))
	s.line(date)
	s.collectHeaders(r.Header, "X-Oss-")
	for _, name := range additional {
		if !strings.HasPrefix(name, "x-oss-") {
			s.addHeader(r, name)
		}
	}
	s.appendHeaders()
	s.line(strings.Join(additional, ";"))
	s.text = append(s.text, "%2F"...)
	if t.bucket != "" {
		s.text = appendEncoded(s.text, t.bucket, false)
		s.text = append(s.text, "%2F"...)
		s.text = appendEncoded(s.text, t.key, false)
	}
	resource := len(s.text)
	s.text = append(s.text, '?')
	s.appendQuery(q, "x-oss-signature", true)
	if len(s.text) == resource+1 {
		s.text = s.text[:resource]
	}
}
