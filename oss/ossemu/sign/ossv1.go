package sign

import (
	"net/http"
	"slices"
	"strings"
)

// ossSubresources are the query parameters that the V1 scheme signs, beside
// those whose names begin with "x-oss-".
var ossSubresources = set(`acl append asyncFetch bucketInfo callback callback-var cloudboxes cname comp
	continuation-token cors delete encryption endTime img inventory inventoryId lifecycle live location logging
	metaQuery objectMeta partNumber policy position qos qosInfo referer regionList replication
	replicationLocation replicationProgress requestPayment resourceGroup response-cache-control
	response-content-disposition response-content-encoding response-content-language response-content-type
	response-expires responseHeader restore rtc security-token sequential startTime stat status style styleName
	symlink tagging transferAcceleration udf udfApplication udfApplicationLog udfId udfImage udfImageDesc
	udfName uploadId uploads versionId versioning versions vod website withHashContext worm wormExtend wormId`)

func set(names string) map[string]struct{} {
	m := make(map[string]struct{})
	for name := range strings.FieldsSeq(names) {
		m[name] = struct{}{}
	}
	return m
}

// ossV1Header verifies "Authorization: OSS key:signature".
func (v *Verifier) ossV1Header(s *scratch, r *http.Request, t target, text string) (Identity, *Error) {
	id, signature, ok := strings.Cut(text, ":")
	if !ok || id == "" || signature == "" {
		return Identity{}, malformedHeader(false, "The Authorization header is not of the form \"OSS AccessKeyId:Signature\".", "")
	}
	st, e := v.headerStamp(r.Header, "X-Oss-Date", false)
	if e != nil {
		return Identity{}, e
	}
	q := parseQuery(r.URL.RawQuery)
	c, e := v.lookup(id, ossToken(r.Header, q), false)
	if e != nil {
		return Identity{}, e
	}
	v1ToSign(s, r, t, q, st.text)
	if equal(signature, signBase64(c.AccessKeySecret, s.text)) {
		return Identity{AccessKeyID: id}, nil
	}
	// Clients that send x-oss-date are not of one mind whether it takes the place
	// of Date in the text or only stands among the headers.
	if date := r.Header.Get("Date"); date != st.text {
		v1ToSign(s, r, t, q, date)
		if equal(signature, signBase64(c.AccessKeySecret, s.text)) {
			return Identity{AccessKeyID: id}, nil
		}
		v1ToSign(s, r, t, q, st.text)
	}
	return Identity{}, mismatch(false, id, signature, s.text, nil)
}

// ossV1Query verifies a URL with OSSAccessKeyId, Expires and Signature.
func (v *Verifier) ossV1Query(s *scratch, r *http.Request, t target, q query) (Identity, *Error) {
	id, signature, expires := q.get("OSSAccessKeyId"), q.get("Signature"), q.get("Expires")
	if e := v.untilExpires(expires); e != nil {
		return Identity{}, e
	}
	c, e := v.lookup(id, ossToken(r.Header, q), false)
	if e != nil {
		return Identity{}, e
	}
	v1ToSign(s, r, t, q, expires)
	if !equal(signature, signBase64(c.AccessKeySecret, s.text)) {
		return Identity{}, mismatch(false, id, signature, s.text, nil)
	}
	return Identity{AccessKeyID: id, Presigned: true}, nil
}

// ossToken finds the security token of a native request. Wherever it stands it
// is part of what is signed.
func ossToken(h http.Header, q query) string {
	if token := h.Get("X-Oss-Security-Token"); token != "" {
		return token
	}
	if token := q.get("x-oss-security-token"); token != "" {
		return token
	}
	return q.get("security-token")
}

// v1ToSign writes the V1 string to sign into s.text. Date is the Date line: a
// time, or the end of a URL's life.
func v1ToSign(s *scratch, r *http.Request, t target, q query, date string) {
	s.text = s.text[:0]
	s.line(r.Method)
	s.line(r.Header.Get("Content-Md5"))
	s.line(r.Header.Get("Content-Type"))
	s.line(date)
	s.collectHeaders(r.Header, "X-Oss-")
	s.appendHeaders()

	s.text = append(s.text, '/')
	if t.bucket != "" {
		s.text = append(s.text, t.bucket...)
		s.text = append(s.text, '/')
		s.text = append(s.text, t.key...)
	}
	s.appendSubresources(q, func(name string) bool {
		_, ok := ossSubresources[name]
		return ok || strings.HasPrefix(name, "x-oss-")
	})
}

// appendSubresources appends the signed parameters of the schemes before V4:
// sorted and decoded.
func (s *scratch) appendSubresources(q query, signed func(name string) bool) {
	s.pairs = s.pairs[:0]
	for _, p := range q {
		if signed(p.name) {
			s.pairs = append(s.pairs, p)
		}
	}
	slices.SortStableFunc(s.pairs, func(a, b pair) int { return strings.Compare(a.name, b.name) })
	separator := byte('?')
	for _, p := range s.pairs {
		s.text = append(s.text, separator)
		s.text = append(s.text, p.name...)
		if p.value != "" {
			s.text = append(s.text, '=')
			s.text = append(s.text, p.value...)
		}
		separator = '&'
	}
}
