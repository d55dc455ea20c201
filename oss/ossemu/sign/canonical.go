package sign

import (
	"crypto/hmac"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// pair is a query parameter or a header line.
type pair struct {
	name, value string
}

func byName(a, b pair) int {
	if c := strings.Compare(a.name, b.name); c != 0 {
		return c
	}
	return strings.Compare(a.value, b.value)
}

// scratch holds the buffers of one verification, so that a busy server does not
// allocate them for every request.
type scratch struct {
	pairs []pair
	// text takes the canonical request or the V1 string to sign.
	text []byte
	// toSign takes the V4 string to sign.
	toSign []byte
}

var scratches = sync.Pool{New: func() any { return new(scratch) }}

func borrowScratch() *scratch {
	return scratches.Get().(*scratch)
}

func (s *scratch) giveBack() {
	clear(s.pairs[:cap(s.pairs)])
	s.pairs, s.text, s.toSign = s.pairs[:0], s.text[:0], s.toSign[:0]
	scratches.Put(s)
}

// query is a decoded query in wire order.
type query []pair

// parseQuery decodes a raw query. A name or value with a broken escape is kept
// as it is: it then cannot match a signature, nor a parameter that anybody looks
// for.
func parseQuery(raw string) query {
	if raw == "" {
		return nil
	}
	q := make(query, 0, strings.Count(raw, "&")+1)
	for part := range strings.SplitSeq(raw, "&") {
		if part == "" {
			continue
		}
		name, value, _ := strings.Cut(part, "=")
		q = append(q, pair{unescape(name), unescape(value)})
	}
	return q
}

func unescape(s string) string {
	if strings.IndexByte(s, '%') < 0 && strings.IndexByte(s, '+') < 0 {
		return s
	}
	if d, err := url.QueryUnescape(s); err == nil {
		return d
	}
	return s
}

func (q query) has(name string) bool {
	return slices.ContainsFunc(q, func(p pair) bool { return p.name == name })
}

// get returns the first value of name, "" if there is none.
func (q query) get(name string) string {
	for _, p := range q {
		if p.name == name {
			return p.value
		}
	}
	return ""
}

// appendQuery appends q as the V4 schemes want it: encoded, sorted, without the
// parameter except. They differ in how an empty value is written: bare says that
// its "=" is left out.
func (s *scratch) appendQuery(q query, except string, bare bool) {
	s.pairs = s.pairs[:0]
	for _, p := range q {
		if p.name != except || except == "" {
			s.pairs = append(s.pairs, pair{encode(p.name), encode(p.value)})
		}
	}
	slices.SortFunc(s.pairs, byName)
	for i, p := range s.pairs {
		if i > 0 {
			s.text = append(s.text, '&')
		}
		s.text = append(s.text, p.name...)
		if p.value != "" || !bare {
			s.text = append(s.text, '=')
			s.text = append(s.text, p.value...)
		}
	}
}

// appendHeaders appends the lines of s.pairs, sorted.
func (s *scratch) appendHeaders() {
	slices.SortFunc(s.pairs, byName)
	for _, p := range s.pairs {
		s.line(p.name, ":", p.value)
	}
}

// line appends parts and a line feed to the text.
func (s *scratch) line(parts ...string) {
	for _, p := range parts {
		s.text = append(s.text, p...)
	}
	s.text = append(s.text, '\n')
}

// collectHeaders fills s.pairs with the headers whose names begin with prefix,
// which must be in canonical form.
func (s *scratch) collectHeaders(h http.Header, prefix string) {
	s.pairs = s.pairs[:0]
	for name, values := range h {
		if strings.HasPrefix(name, prefix) {
			s.pairs = append(s.pairs, pair{strings.ToLower(name), joined(values)})
		}
	}
}

// joined makes one value of a repeated header.
func joined(values []string) string {
	if len(values) == 1 {
		return strings.TrimSpace(values[0])
	}
	trimmed := make([]string, len(values))
	for i, v := range values {
		trimmed[i] = strings.TrimSpace(v)
	}
	return strings.Join(trimmed, ",")
}

// headerValues returns the values of the lower-case name in r, also of those
// that net/http keeps beside the header.
func headerValues(r *http.Request, name string) ([]string, bool) {
	if values, ok := r.Header[http.CanonicalHeaderKey(name)]; ok {
		return values, true
	}
	switch {
	case name == "host":
		return []string{r.Host}, true
	case name == "content-length" && r.ContentLength >= 0:
		return []string{strconv.FormatInt(r.ContentLength, 10)}, true
	case name == "transfer-encoding" && len(r.TransferEncoding) > 0:
		return r.TransferEncoding, true
	}
	return nil, false
}

// The bytes that are never percent-encoded.
const unreserved = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~"

var isUnreserved = func() (table [256]bool) {
	for i := range len(unreserved) {
		table[unreserved[i]] = true
	}
	return table
}()

const upperHex = "0123456789ABCDEF"

// encode percent-encodes s; "/" too.
func encode(s string) string {
	for i := range len(s) {
		if !isUnreserved[s[i]] {
			return string(appendEncoded(make([]byte, 0, len(s)+16), s, false))
		}
	}
	return s
}

// appendEncoded appends s percent-encoded; keepSlash leaves "/" as it is.
func appendEncoded(dst []byte, s string, keepSlash bool) []byte {
	for i := range len(s) {
		if c := s[i]; isUnreserved[c] || keepSlash && c == '/' {
			dst = append(dst, c)
		} else {
			dst = append(dst, '%', upperHex[c>>4], upperHex[c&15])
		}
	}
	return dst
}

// appendPath appends a path as it came over the wire with each of its bytes
// encoded exactly once: what was escaped without need is not, what was left bare
// against the rule is escaped, and an escaped slash stays one.
func appendPath(dst []byte, escaped string) []byte {
	if escaped == "" {
		return append(dst, '/')
	}
	for i := 0; i < len(escaped); i++ {
		c, wasEscaped := escaped[i], false
		if c == '%' && i+2 < len(escaped) {
			hi, lo := unhex(escaped[i+1]), unhex(escaped[i+2])
			if hi >= 0 && lo >= 0 {
				c, wasEscaped = byte(hi<<4|lo), true
				i += 2
			}
		}
		if isUnreserved[c] || c == '/' && !wasEscaped {
			dst = append(dst, c)
		} else {
			dst = append(dst, '%', upperHex[c>>4], upperHex[c&15])
		}
	}
	return dst
}

// unhex returns the value of a hexadecimal digit, -1 for other bytes.
func unhex(c byte) int {
	switch {
	case '0' <= c && c <= '9':
		return int(c - '0')
	case 'a' <= c && c <= 'f':
		return int(c-'a') + 10
	case 'A' <= c && c <= 'F':
		return int(c-'A') + 10
	}
	return -1
}

// isHash says whether s is a SHA-256 in lower-case hexadecimal digits.
func isHash(s string) bool {
	if len(s) != 64 {
		return false
	}
	for i := range len(s) {
		if c := s[i]; unhex(c) < 0 || 'A' <= c && c <= 'F' {
			return false
		}
	}
	return true
}

// equal compares in a time that does not tell where the texts differ.
func equal(a, b string) bool { return hmac.Equal([]byte(a), []byte(b)) }
