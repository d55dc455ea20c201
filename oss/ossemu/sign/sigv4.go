package sign

import (
	"net/http"
	"slices"
	"strings"
)

const (
	sigV4Algorithm  = "AWS4-HMAC-SHA256"
	sigV4Terminator = "aws4_request"
)

// sigV4Header verifies "Authorization: AWS4-HMAC-SHA256 Credential=…,
// SignedHeaders=…, Signature=…".
func (v *Verifier) sigV4Header(s *scratch, r *http.Request, text string) (Identity, *Error) {
	a, ok := parseAuthorization(text, "SignedHeaders")
	if !ok {
		return Identity{}, malformedHeader(true, "The authorization header is malformed; it must hold Credential, SignedHeaders and Signature.", "0002-00000406")
	}
	if len(a.signature) != 64 {
		return Identity{}, malformedHeader(true, "The authorization header is malformed; the signature must be 64 characters.", "0002-00000408")
	}
	sc, e := v.s3Scope(a.credential, false)
	if e != nil {
		return Identity{}, e
	}
	signed, e := signedHeaders(r, a.headers, false)
	if e != nil {
		return Identity{}, e
	}
	payload := r.Header.Get("X-Amz-Content-Sha256")
	if payload == "" {
		return Identity{}, &Error{
			Status: http.StatusBadRequest, Code: "InvalidRequest",
			Message: "Missing required header for this request: x-amz-content-sha256",
		}
	}
	st, e := v.headerStamp(r.Header, "X-Amz-Date", true)
	if e != nil {
		return Identity{}, e
	}
	if st.time.Format(dayFormat) != sc.day {
		return Identity{}, malformedHeader(true, "The authorization header is malformed; the day of the credential is not that of the date.", "0002-00000409")
	}
	// Whichever header gave the time, the text that is signed has this form.
	st.text = st.time.Format(stampFormat)
	q := parseQuery(r.URL.RawQuery)
	c, e := v.lookup(sc.accessKeyID, s3Token(r.Header, q), true)
	if e != nil {
		return Identity{}, e
	}
	sigV4Canonical(s, r, q, "", signed, a.headers, payload)
	if e := v.compareV4(s, sigV4, c, sc, st, a.signature); e != nil {
		return Identity{}, e
	}
	return Identity{
		AccessKeyID: sc.accessKeyID,
		S3:          true,
		payload:     payload,
		chunks:      &chunkChain{key: v.signingKey(sigV4, c, sc), stamp: st.text, scope: sc.text, previous: a.signature},
	}, nil
}

// sigV4Query verifies a URL with X-Amz-Signature.
func (v *Verifier) sigV4Query(s *scratch, r *http.Request, q query) (Identity, *Error) {
	if q.get("X-Amz-Algorithm") != sigV4Algorithm {
		return Identity{}, malformedQuery(true, "X-Amz-Algorithm only supports \""+sigV4Algorithm+"\".", "")
	}
	signature := q.get("X-Amz-Signature")
	if len(signature) != 64 {
		return Identity{}, malformedQuery(true, "X-Amz-Signature must be 64 characters.", "0002-00000423")
	}
	sc, e := v.s3Scope(q.get("X-Amz-Credential"), true)
	if e != nil {
		return Identity{}, e
	}
	signed, e := signedHeaders(r, q.get("X-Amz-SignedHeaders"), true)
	if e != nil {
		return Identity{}, e
	}
	st, e := v.lifetime(q, "X-Amz-Date", "X-Amz-Expires", true)
	if e != nil {
		return Identity{}, e
	}
	if st.time.Format(dayFormat) != sc.day {
		return Identity{}, malformedQuery(true, "The day of X-Amz-Credential is not that of X-Amz-Date.", "0002-00000409")
	}
	c, e := v.lookup(sc.accessKeyID, s3Token(r.Header, q), true)
	if e != nil {
		return Identity{}, e
	}
	payload := unsignedPayload
	if h := r.Header.Get("X-Amz-Content-Sha256"); h != "" {
		payload = h
	} else if h := q.get("X-Amz-Content-Sha256"); h != "" {
		payload = h
	}
	sigV4Canonical(s, r, q, "X-Amz-Signature", signed, q.get("X-Amz-SignedHeaders"), payload)
	if e := v.compareV4(s, sigV4, c, sc, st, signature); e != nil {
		return Identity{}, e
	}
	return Identity{
		AccessKeyID: sc.accessKeyID,
		S3:          true,
		Presigned:   true,
		payload:     payload,
		chunks:      &chunkChain{key: v.signingKey(sigV4, c, sc), stamp: st.text, scope: sc.text, previous: signature},
	}, nil
}

// s3Scope reads a credential and judges its region and product.
func (v *Verifier) s3Scope(credential string, inQuery bool) (scope, *Error) {
	refuse := func(message, ec string) (scope, *Error) {
		if inQuery {
			return scope{}, malformedQuery(true, message, ec)
		}
		return scope{}, malformedHeader(true, "The authorization header is malformed; "+message, ec)
	}
	sc, ok := parseScope(credential, sigV4Terminator)
	switch {
	case !ok && inQuery:
		return refuse("the X-Amz-Credential is invalid.", "0002-00000413")
	case !ok:
		return refuse("the Credential is invalid.", "0002-00000404")
	case v.region != "" && sc.region != v.region:
		_, e := refuse("the region '"+sc.region+"' is wrong; expecting '"+v.region+"'.", "")
		e.Details = map[string]string{"Region": v.region}
		return scope{}, e
	case sc.product != "s3":
		return refuse("the service '"+sc.product+"' is wrong; expecting 's3'.", "")
	}
	return sc, nil
}

// signedHeaders splits the list of signed headers and refuses one that leaves
// the host or a header of the protocol unprotected.
func signedHeaders(r *http.Request, list string, inQuery bool) ([]string, *Error) {
	signed := strings.Split(list, ";")
	if !slices.Contains(signed, "host") {
		const message = "SignedHeaders must contain host."
		if inQuery {
			return nil, malformedQuery(true, message, "0002-00000426")
		}
		return nil, malformedHeader(true, "The authorization header is malformed; "+message, "0002-00000426")
	}
	for name := range r.Header {
		if strings.HasPrefix(name, "X-Amz-") && !slices.ContainsFunc(signed, func(s string) bool { return strings.EqualFold(s, name) }) {
			return nil, &Error{
				Status: http.StatusForbidden, Code: "AccessDenied",
				Message: "There were headers present in the request which were not signed",
				Details: map[string]string{"HeadersNotSigned": strings.ToLower(name)},
			}
		}
	}
	return signed, nil
}

func s3Token(h http.Header, q query) string {
	if token := h.Get("X-Amz-Security-Token"); token != "" {
		return token
	}
	return q.get("X-Amz-Security-Token")
}

// sigV4Canonical writes the SigV4 canonical request into s.text.
func sigV4Canonical(s *scratch, r *http.Request, q query, except string, signed []string, list, payload string) {
	s.text = s.text[:0]
	s.line(r.Method)
	s.text = appendPath(s.text, r.URL.EscapedPath())
	s.text = append(s.text, '\n')
	s.appendQuery(q, except, false)
	s.text = append(s.text, '\n')
	for _, name := range signed {
		values, _ := headerValues(r, name)
		s.line(name, ":", collapsed(joined(values)))
	}
	s.line()
	s.line(list)
	s.text = append(s.text, payload...)
}

// collapsed makes one space of every run of spaces.
func collapsed(value string) string {
	if !strings.Contains(value, "  ") {
		return value
	}
	b := make([]byte, 0, len(value))
	for i := range len(value) {
		if value[i] != ' ' || i == 0 || value[i-1] != ' ' {
			b = append(b, value[i])
		}
	}
	return string(b)
}
