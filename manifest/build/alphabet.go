package build

import (
	"slices"
	"unicode/utf8"
)

// alphabet is what has been seen of keys, of which split points are made: which
// letters occur, and at which place. It only guides; a letter that was never seen
// costs balance, no key.
type alphabet struct {
	// everywhere holds the letters of all places, at those of one place, counted in
	// letters from the start of the key.
	everywhere letters
	at         []letters
}

const (
	// maxPlaces is how many places have letters of their own.
	maxPlaces = 256
	// maxLetters is the most letters that are remembered of a place. More would not
	// split better.
	maxLetters = 512
)

// letters is a sorted set.
type letters []rune

func (l *letters) add(r rune) {
	if i, found := slices.BinarySearch(*l, r); !found && len(*l) < maxLetters {
		*l = slices.Insert(*l, i, r)
	}
}

// between returns the letters greater than low and less than high.
func (l letters) between(low, high rune) letters {
	from, found := slices.BinarySearch(l, low)
	if found {
		from++
	}
	to, _ := slices.BinarySearch(l, high)
	return l[from:max(from, to)]
}

// rank returns how many letters of l are less than r. Of a large script most
// letters have not been seen: all of them together count as one, evenly divided.
func (l letters) rank(r rune) float64 {
	i, _ := slices.BinarySearch(l, min(r, utf8.RuneSelf))
	return float64(i) + float64(max(0, r-utf8.RuneSelf))/top
}

// see learns from a key.
func (a *alphabet) see(key string) {
	place := 0
	for _, r := range key {
		if r == utf8.RuneError {
			return
		}
		if place < maxPlaces {
			if place == len(a.at) {
				a.at = append(a.at, nil)
			}
			learn(&a.at[place], r)
		}
		learn(&a.everywhere, r)
		place++
	}
}

// learn adds r, and with a digit all digits: numbers count through them.
func learn(l *letters, r rune) {
	if _, known := slices.BinarySearch(*l, r); known {
		return
	}
	l.add(r)
	if '0' <= r && r <= '9' {
		for d := '0'; d <= '9'; d++ {
			l.add(d)
		}
	}
}

// pick returns the letter in the middle of those between low and high, of the
// place if there are any, else of all places.
func (a *alphabet) pick(place int, low, high rune) (rune, bool) {
	if place < len(a.at) {
		if l := a.at[place].between(low, high); len(l) > 0 {
			return l[len(l)/2], true
		}
	}
	if l := a.everywhere.between(low, high); len(l) > 0 {
		return l[len(l)/2], true
	}
	return 0, false
}

// top is greater than every letter.
const top = utf8.MaxRune + 1

// split returns a key in the middle of s, as far as can be known: greater than
// s.After, and less than s.Through. ok is false if s cannot be split.
func (a *alphabet) split(s span) (key string, ok bool) {
	if !utf8.ValidString(s.After) || !utf8.ValidString(s.Through) {
		return "", false // the parts of a letter cannot be sent as a marker
	}
	low, high := []rune(s.After), []rune(s.Through)
	place := 0
	for place < len(low) && place < len(high) && low[place] == high[place] {
		place++
	}
	end := rune(top)
	if place < len(high) {
		end = high[place]
	}
	if r, found := a.pick(place, letterAt(low, place), end); found {
		return short(low, place, r)
	}
	if r, found := halfway(letterAt(low, place), end); found {
		return short(low, place, r)
	}
	// Neighbours: what begins with the greater one can be told from what does not.
	if len(high) > place+1 {
		return string(high[:place+1]), true
	}
	for place++; place <= len(low); place++ {
		if r, found := a.pick(place, letterAt(low, place), top); found {
			return short(low, place, r)
		}
	}
	return "", false
}

// halfway returns a letter in the middle of two of a large script, in which most
// letters that occur have not been seen yet.
func halfway(low, high rune) (rune, bool) {
	const surrogates, behind = 0xd800, 0xe000 // no letters in between
	r := low + (high-low)/2
	if surrogates <= r && r < behind {
		r = surrogates - 1
	}
	return r, low >= utf8.RuneSelf && low < r && r < high
}

// letterAt returns the letter at a place, or less than all where there is none.
func letterAt(key []rune, place int) rune {
	if place < len(key) {
		return key[place]
	}
	return -1
}

// short returns the key of the first letters of low and r.
func short(low []rune, place int, r rune) (string, bool) {
	key := string(low[:place]) + string(r)
	return key, len(key) <= maxKey
}

// maxKey is the longest key in bytes that OSS takes.
const maxKey = 1023

// ahead estimates how far it is from key to the end of s, in units of the way
// from s.After to key. It is huge where nothing is known.
func (a *alphabet) ahead(s span, key string) float64 {
	const unknown = 1e12
	place := commonLength(s.After, key)
	if !s.open() {
		place = min(place, commonLength(s.After, s.Through))
	}
	end := 1.0
	if !s.open() {
		end = a.position(s.Through, place)
	}
	at, begin := a.position(key, place), a.position(s.After, place)
	if at <= begin {
		return unknown
	}
	return max(0, end-at) / (at - begin)
}

// commonLength returns how many letters two keys have in common from the start.
func commonLength(a, b string) int {
	n := 0
	for a != "" && b != "" {
		x, size := utf8.DecodeRuneInString(a)
		y, _ := utf8.DecodeRuneInString(b)
		if x != y {
			break
		}
		a, b = a[size:], b[min(size, len(b)):]
		n++
	}
	return n
}

// position maps the letters of key from a place on to the numbers from 0 to 1, in
// order.
func (a *alphabet) position(key string, place int) float64 {
	const depth = 12 // more letters tell a float64 nothing
	i, value, unit := 0, 0.0, 1.0
	for _, r := range key {
		if i >= place+depth {
			break
		}
		if i >= place {
			l := a.everywhere
			if i < len(a.at) {
				l = a.at[i]
			}
			// A key that ends sorts before all that go on: the first part is its.
			unit /= float64(len(l) + 2)
			value += unit * (l.rank(r) + 1)
		}
		i++
	}
	return value
}
