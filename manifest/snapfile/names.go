package snapfile

import (
	"encoding/binary"
)

// nameList is a list of strings: all of them one after another, and where each
// ends.
type nameList struct {
	text []byte
	ends []uint32
}

func (l *nameList) len() int { return len(l.ends) }

func (l *nameList) start(i int) uint32 {
	if i == 0 {
		return 0
	}
	return l.ends[i-1]
}

// at returns the i-th string, which is part of the list.
func (l *nameList) at(i int) []byte { return l.text[l.start(i):l.ends[i]:l.ends[i]] }

func (l *nameList) add(s []byte) {
	l.text = append(l.text, s...)
	l.ends = append(l.ends, uint32(len(l.text)))
}

func (l *nameList) reset() { l.text, l.ends = l.text[:0], l.ends[:0] }

// size returns what the list takes in memory.
func (l *nameList) size() int { return cap(l.text) + 4*cap(l.ends) }

// search returns the index of the first of the strings from low up to, not
// including, high that is not less than s. They must be in order.
func (l *nameList) search(low, high int, s string) int {
	for low < high {
		if middle := (low + high) / 2; string(l.at(middle)) < s {
			low = middle + 1
		} else {
			high = middle
		}
	}
	return low
}

// appendNames appends the encoded list: how many bytes each string has in common
// with the one before, how many follow, and those.
func appendNames(b []byte, l *nameList) []byte {
	var last []byte
	for i := range l.ends {
		s := l.at(i)
		b = binary.AppendUvarint(b, uint64(shared(last, s)))
		last = s
	}
	last = nil
	for i := range l.ends {
		s := l.at(i)
		b = binary.AppendUvarint(b, uint64(len(s)-shared(last, s)))
		last = s
	}
	last = nil
	for i := range l.ends {
		s := l.at(i)
		b = append(b, s[shared(last, s):]...)
		last = s
	}
	return b
}

// shared returns how many leading bytes a and b have in common.
func shared(a, b []byte) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

// names decodes the list of n strings that comes next. It shares no memory with
// the input.
func (in *input) names(n int) nameList {
	var before, own [blockRows]uint32
	rest := in.suffixes(before[:n], own[:n])
	if in.bad {
		return nameList{}
	}
	// The lengths are gone through twice: first to learn how much memory is needed,
	// which is bounded by that of the input and the longest key.
	total := uint64(0)
	for i := range n {
		total += uint64(before[i]) + uint64(own[i])
	}
	l := nameList{text: make([]byte, total), ends: make([]uint32, n)}
	at, from := uint32(0), uint32(0)
	for i := range n {
		copy(l.text[at:], l.text[from:from+before[i]])
		from = at
		at += before[i]
		if own := own[i]; own > 8 {
			at += uint32(copy(l.text[at:], rest[:own]))
		} else {
			// Most are a few digits, for which a call is dear.
			for k := range own {
				l.text[at+k] = rest[k]
			}
			at += own
		}
		rest = rest[own[i]:]
		l.ends[i] = at
	}
	return l
}

// suffixes decodes a list of as many strings as before and own have elements: how
// many bytes each string shares with the one before, how many follow, and those of
// all, which are part of the input.
func (in *input) suffixes(before, own []uint32) []byte {
	in.lengths(before)
	in.lengths(own)
	total, last := uint64(0), uint64(0)
	for i := range before {
		if uint64(before[i]) > last {
			in.fail()
		}
		if last = uint64(before[i]) + uint64(own[i]); last > MaxKey {
			in.fail()
		}
		total += uint64(own[i])
	}
	if in.bad {
		return nil
	}
	return in.bytes(total)
}

// lengths decodes numbers of at most MaxKey.
func (in *input) lengths(out []uint32) {
	if len(in.b) >= len(out) {
		all := byte(0)
		for _, c := range in.b[:len(out)] {
			all |= c
		}
		if all < 0x80 {
			for i, c := range in.b[:len(out)] {
				out[i] = uint32(c)
			}
			in.b = in.b[len(out):]
			return
		}
	}
	for i := range out {
		out[i] = uint32(in.length(MaxKey))
	}
}

// length returns a number of at most limit.
func (in *input) length(limit uint64) uint64 {
	var v uint64
	if len(in.b) > 0 && in.b[0] < 0x80 {
		v = uint64(in.b[0])
		in.b = in.b[1:]
	} else {
		v = in.uvarint()
	}
	if v > limit {
		in.fail()
		return 0
	}
	return v
}
