package ossemu

import (
	"math"
	"strings"
)

// rangeRules says how a Range header is understood.
type rangeRules uint8

const (
	// rangeLenient is the service's own default: a range that does not lie wholly
	// in the object is no range, and the whole object is served.
	rangeLenient rangeRules = iota
	// rangeStandard is x-oss-range-behavior: standard. It follows RFC 9110, but a
	// whole range of an empty object is served.
	rangeStandard
	// rangeRFC follows RFC 9110 to the end, as S3 clients expect.
	rangeRFC
)

// rangeVerdict says what to serve.
type rangeVerdict uint8

const (
	rangeWhole rangeVerdict = iota
	rangePartial
	rangeUnsatisfiable
)

// resolveRange says which n bytes from offset off of an object of the given
// size a Range header asks for. Only the first of several ranges counts.
func resolveRange(header string, size int64, rules rangeRules) (off, n int64, verdict rangeVerdict) {
	first, last, suffix, ok := parseRange(header)
	if !ok {
		return 0, size, rangeWhole
	}
	inside := first < size && last < size
	if suffix {
		inside = last <= size && last > 0
		first = max(0, size-last)
		if last == 0 {
			first = size // nothing can satisfy it
		}
		last = size - 1
	} else if last == openEnd {
		inside = first < size
	}
	last = min(last, size-1)
	switch {
	case inside:
		return first, last - first + 1, rangePartial
	case rules == rangeLenient:
		return 0, size, rangeWhole
	case first >= size && rules == rangeStandard && size == 0 && first == 0:
		return 0, 0, rangeWhole
	case first >= size:
		return 0, 0, rangeUnsatisfiable
	}
	return first, last - first + 1, rangePartial
}

// openEnd stands for the end that a range does not name. No object reaches it.
const openEnd = math.MaxInt64

// parseRange reads the first range of a header. A suffix range has its length
// in last. Numbers that are too large are as good as the largest.
func parseRange(header string) (first, last int64, suffix, ok bool) {
	spec, found := strings.CutPrefix(header, "bytes=")
	if !found {
		return 0, 0, false, false
	}
	spec, _, _ = strings.Cut(spec, ",")
	from, to, found := strings.Cut(strings.TrimSpace(spec), "-")
	if !found {
		return 0, 0, false, false
	}
	if from == "" {
		last, ok = parseDigits(to)
		return 0, last, true, ok
	}
	if first, ok = parseDigits(from); !ok {
		return 0, 0, false, false
	}
	if to == "" {
		return first, openEnd, false, true
	}
	last, ok = parseDigits(to)
	return first, last, false, ok && first <= last
}

// parseDigits reads a decimal number, at most one less than openEnd.
func parseDigits(s string) (int64, bool) {
	if s == "" {
		return 0, false
	}
	var n int64
	for i := range len(s) {
		c := s[i]
		if c < '0' || c > '9' {
			return 0, false
		}
		if n > (openEnd-1-int64(c-'0'))/10 {
			n = openEnd - 1
			continue
		}
		n = n*10 + int64(c-'0')
	}
	return n, true
}
