package build

import (
	"cmp"
	"slices"
	"strings"
)

// span is a stretch of the keys in byte order: those greater than After, up to
// and with Through. An empty Through means that it has no upper end.
type span struct {
	After   string `json:"after"`
	Through string `json:"through"`
}

// open reports whether s has no upper end.
func (s span) open() bool { return s.Through == "" }

// holds reports whether key lies in s.
func (s span) holds(key string) bool {
	return key > s.After && (s.open() || key <= s.Through)
}

// empty reports whether no key can lie in s.
func (s span) empty() bool { return !s.open() && s.Through <= s.After }

// joined returns the spans in order, with those that touch or overlap as one.
func joined(spans []span) []span {
	sorted := slices.Clone(spans)
	sorted = slices.DeleteFunc(sorted, span.empty)
	slices.SortFunc(sorted, func(a, b span) int {
		return cmp.Or(strings.Compare(a.After, b.After), strings.Compare(a.Through, b.Through))
	})
	var out []span
	for _, s := range sorted {
		last := len(out) - 1
		switch {
		case last >= 0 && out[last].open():
			return out
		case last >= 0 && s.After <= out[last].Through:
			if s.open() || s.Through > out[last].Through {
				out[last].Through = s.Through
			}
		default:
			out = append(out, s)
		}
	}
	return out
}

// gaps returns the parts of all that no span of done covers, in order. The parts
// are what is left of whole, which must contain done.
func gaps(whole span, done []span) []span {
	var out []span
	at := whole.After
	for _, d := range joined(done) {
		if d.After > at {
			out = append(out, span{After: at, Through: d.After})
		}
		if d.open() {
			return out
		}
		at = max(at, d.Through)
	}
	if rest := (span{After: at, Through: whole.Through}); !rest.empty() {
		out = append(out, rest)
	}
	return out
}
