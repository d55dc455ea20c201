package ossemu

import (
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// document builds an XML answer. The service uses neither attributes nor
// namespaces.
type document struct {
	b []byte
	// stamp is how second is written.
	stamp  string
	second int64
}

func newDocument(root string) *document {
	d := &document{b: make([]byte, 0, 1024)}
	d.b = append(d.b, `<?xml version="1.0" encoding="UTF-8"?>`+"\n"...)
	d.open(root)
	return d
}

func (d *document) open(name string) {
	d.b = append(d.b, '<')
	d.b = append(d.b, name...)
	d.b = append(d.b, '>')
}

func (d *document) close(name string) {
	d.b = append(d.b, "</"...)
	d.b = append(d.b, name...)
	d.b = append(d.b, '>')
}

// text adds an element with escaped text.
func (d *document) text(name, value string) {
	d.open(name)
	d.b = appendEscaped(d.b, value)
	d.close(name)
}

// optional adds an element unless its text is empty.
func (d *document) optional(name, value string) {
	if value != "" {
		d.text(name, value)
	}
}

func (d *document) int(name string, value int64) {
	d.open(name)
	d.b = strconv.AppendInt(d.b, value, 10)
	d.close(name)
}

func (d *document) uint(name string, value uint64) {
	d.open(name)
	d.b = strconv.AppendUint(d.b, value, 10)
	d.close(name)
}

func (d *document) bool(name string, value bool) {
	d.open(name)
	d.b = strconv.AppendBool(d.b, value)
	d.close(name)
}

// time adds a time with the literal .000 that clients demand.
func (d *document) time(name string, t time.Time) {
	d.open(name)
	// Objects that were loaded together have their second in common.
	if unix := t.Unix(); d.stamp == "" || unix != d.second {
		d.second, d.stamp = unix, t.UTC().Format("2006-01-02T15:04:05.000Z")
	}
	d.b = append(d.b, d.stamp...)
	d.close(name)
}

// etag adds a quoted entity tag. The quotes stay as they are: one client
// compares the element with a header byte by byte.
func (d *document) etag(value string) {
	d.b = append(d.b, `<ETag>"`...)
	d.b = append(d.b, value...)
	d.b = append(d.b, `"</ETag>`...)
}

// appendEscaped escapes what XML gives a meaning, and control characters, which
// XML 1.0 has no right way to write.
func appendEscaped(b []byte, s string) []byte {
	plain := true
	for i := range len(s) {
		if c := s[i]; c < 0x20 || c == '&' || c == '<' || c == '>' || c == 0x7f {
			plain = false
			break
		}
	}
	if plain {
		return append(b, s...)
	}
	for i := range len(s) {
		switch c := s[i]; {
		case c == '&':
			b = append(b, "&amp;"...)
		case c == '<':
			b = append(b, "&lt;"...)
		case c == '>':
			b = append(b, "&gt;"...)
		case c < 0x20 || c == 0x7f:
			b = append(b, "&#x"...)
			b = append(b, upperHex(strconv.AppendUint(nil, uint64(c), 16))...)
			b = append(b, ';')
		default:
			b = append(b, c)
		}
	}
	return b
}

// readable replaces what no XML document can hold. A refusal that nobody can
// parse hides its own reason, and a key in it is there for people.
func readable(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\t', r == '\n', r == '\r', 0x20 <= r && r <= 0xd7ff, 0xe000 <= r && r <= 0xfffd, r >= 0x10000:
			return r
		}
		return utf8.RuneError
	}, s)
}

func upperHex(b []byte) []byte {
	for i, c := range b {
		if c >= 'a' {
			b[i] = c - 'a' + 'A'
		}
	}
	return b
}

// urlEncode is the encoding of encoding-type=url: every byte but the unreserved
// is escaped, a space as %20, so that both ways of decoding give the key.
func urlEncode(s string) string {
	plain := true
	for i := range len(s) {
		if !unreserved(s[i]) {
			plain = false
			break
		}
	}
	if plain {
		return s
	}
	const digits = "0123456789ABCDEF"
	b := make([]byte, 0, len(s)+16)
	for i := range len(s) {
		if c := s[i]; unreserved(c) {
			b = append(b, c)
		} else {
			b = append(b, '%', digits[c>>4], digits[c&15])
		}
	}
	return string(b)
}

func unreserved(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_' || c == '.' || c == '~'
}
