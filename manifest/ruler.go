package manifest

import (
	"strings"
	"unicode/utf8"
)

const (
	// rulerBack is how many places before the first that differs a ruler may begin at,
	// rulerPlaces how many it looks at.
	rulerBack, rulerPlaces = 12, 28
	// rulerRoom is how many times what was seen should at least fit on a ruler: what
	// follows is to be on it as well.
	rulerRoom = 1e6
)

// ruler measures how far items of a directory are apart: it maps them to the numbers
// from 0 to 1, in order, so that items that count, or whose letters are drawn evenly,
// lie evenly. It is made of names that follow one another, and only guides: a guess
// that is wrong costs a request, and no name.
type ruler struct {
	// prefix begins all items that are on the ruler.
	prefix string
	places []place
}

// place is what may stand at one place of an item.
type place struct {
	letters []byte
	// ranks says how many letters are less than a byte, known whether it is one.
	ranks [256]uint16
	known [256]bool
}

// newRuler returns the ruler of items that follow one another in a listing, two at least.
func newRuler(items []string) *ruler {
	differ := share(items[0], items[len(items)-1])
	first := max(0, differ-rulerBack)
	var seen [rulerPlaces][256]bool
	for _, item := range items {
		for i := first; i < min(len(item), first+rulerPlaces) && item[i] != '/'; i++ {
			seen[i-first][item[i]] = true
		}
	}
	// The places up to the one that differs go on slowly, so that hardly any of their
	// letters were seen. What stands at the next one may stand there as well, if they
	// have anything in common; and among digits all others.
	fast := seen[differ-first+1]
	completeDigits(&fast)
	base, room := differ, 1.0
	for i := differ; i >= first && room < rulerRoom; i-- {
		letters := &seen[i-first]
		completeDigits(letters)
		if common(letters, &fast) {
			for b := range letters {
				letters[b] = letters[b] || fast[b]
			}
		}
		base = i
		if i < differ {
			room *= float64(count(letters))
		}
	}
	r := &ruler{prefix: strings.Clone(items[0][:base])}
	for i := base; i < first+rulerPlaces; i++ {
		p := place{known: seen[i-first]}
		for b, known := range p.known {
			p.ranks[b] = uint16(len(p.letters))
			if known {
				p.letters = append(p.letters, byte(b))
			}
		}
		if len(p.letters) == 0 {
			break
		}
		r.places = append(r.places, p)
	}
	return r
}

// completeDigits adds all digits to letters, if there is one: numbers count through
// them.
func completeDigits(letters *[256]bool) {
	for b := '0'; b <= '9'; b++ {
		if letters[b] {
			for b := '0'; b <= '9'; b++ {
				letters[b] = true
			}
			return
		}
	}
}

func common(a, b *[256]bool) bool {
	for i := range a {
		if a[i] && b[i] {
			return true
		}
	}
	return false
}

func count(letters *[256]bool) int {
	n := 0
	for _, known := range letters {
		if known {
			n++
		}
	}
	return n
}

// measure returns where item is. What is not on the ruler is at one of its ends.
func (r *ruler) measure(item string) float64 {
	if !strings.HasPrefix(item, r.prefix) {
		if item < r.prefix {
			return 0
		}
		return 1
	}
	item = item[len(r.prefix):]
	value, unit := 0.0, 1.0
	for i := range r.places {
		if i == len(item) {
			break
		}
		p := &r.places[i]
		unit /= float64(len(p.letters))
		value += unit * float64(p.ranks[item[i]])
		if !p.known[item[i]] {
			break
		}
	}
	return min(value, 1)
}

// at returns an item that is at value, or less than unit before it; "" if there is none
// that a request can name.
func (r *ruler) at(value, unit float64) string {
	item := []byte(r.prefix)
	size := 1.0
	for i := range r.places {
		p := &r.places[i]
		size /= float64(len(p.letters))
		n := max(0, min(len(p.letters)-1, int(value/size)))
		value -= float64(n) * size
		item = append(item, p.letters[n])
		if len(p.letters) > 1 && size < unit {
			break
		}
	}
	// A part of a letter cannot be asked for.
	for range utf8.UTFMax {
		if utf8.Valid(item) {
			return string(item)
		}
		item = item[:len(item)-1]
	}
	return ""
}
