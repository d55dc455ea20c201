package snapfile

import (
	"strconv"
)

// ETagForm says how an ETag is written.
type ETagForm uint8

// The forms of ETags.
const (
	// NoETag: there is none.
	NoETag ETagForm = iota
	// SumETag: 32 upper-case hexadecimal digits.
	SumETag
	// PartsETag: the same, a minus sign and the number of parts.
	PartsETag
	// TextETag: anything else.
	TextETag
)

// ETag is an ETag in the form in which files hold it.
type ETag struct {
	Form  ETagForm
	Sum   [16]byte
	Parts uint64
	Text  string
}

// ParseETag returns the ETag that is written as s.
func ParseETag(s string) ETag {
	if s == "" {
		return ETag{}
	}
	sum, parts, ok := PackETag(s)
	switch {
	case !ok:
		return ETag{Form: TextETag, Text: s}
	case parts == 0:
		return ETag{Form: SumETag, Sum: sum}
	default:
		return ETag{Form: PartsETag, Sum: sum, Parts: parts}
	}
}

// Append appends the ETag as it is written.
func (e *ETag) Append(b []byte) []byte {
	switch e.Form {
	case SumETag:
		return AppendHex(b, e.Sum[:])
	case PartsETag:
		return strconv.AppendUint(append(AppendHex(b, e.Sum[:]), '-'), e.Parts, 10)
	case TextETag:
		return append(b, e.Text...)
	default:
		return b
	}
}

// PackETag splits an ETag of 32 upper-case hexadecimal digits, perhaps followed by
// a minus sign and a positive number, as OSS gives them.
func PackETag(etag string) (sum [16]byte, parts uint64, ok bool) {
	if len(etag) < 32 {
		return sum, 0, false
	}
	for i := range 16 {
		hi, lo := unhex(etag[2*i]), unhex(etag[2*i+1])
		if hi > 15 || lo > 15 {
			return sum, 0, false
		}
		sum[i] = hi<<4 | lo
	}
	if len(etag) == 32 {
		return sum, 0, true
	}
	parts, err := strconv.ParseUint(etag[33:], 10, 64)
	// Zero means none, and "-01" or "-+1" would come back as "-1".
	if err != nil || parts == 0 || etag[32] != '-' || etag[33] == '0' || etag[33] == '+' {
		return sum, 0, false
	}
	return sum, parts, true
}

// unhex returns the value of an upper-case hexadecimal digit, or more than 15.
func unhex(c byte) byte {
	switch {
	case '0' <= c && c <= '9':
		return c - '0'
	case 'A' <= c && c <= 'F':
		return c - 'A' + 10
	}
	return 0xff
}

// AppendHex appends the upper-case hexadecimal digits of s.
func AppendHex[T ~string | ~[]byte](dst []byte, s T) []byte {
	const digits = "0123456789ABCDEF"
	for i := range len(s) {
		dst = append(dst, digits[s[i]>>4], digits[s[i]&15])
	}
	return dst
}
