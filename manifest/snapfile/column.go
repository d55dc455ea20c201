package snapfile

import (
	"encoding/binary"
	"math/bits"
	"slices"
	"sort"
)

// A column holds one number for each of up to blockRows rows: most of them as
// so many bits above a base, those that do not fit as exceptions.
type column struct {
	base  uint64
	width uint
	// packed are the bits, least significant first.
	packed []byte
	// rows and values are the exceptions; the rows ascend.
	rows   []byte
	values []uint64
}

// appendColumn appends the encoded column of values, of which there is one at
// least.
func appendColumn(b []byte, values []uint64, scratch []uint64) []byte {
	base, width := fit(values, scratch)
	outside := func(v uint64) bool { return v < base || bits.Len64(v-base) > int(width) }
	exceptions := 0
	for _, v := range values {
		if outside(v) {
			exceptions++
		}
	}
	b = append(b, byte(width))
	b = binary.AppendUvarint(b, base)
	b = binary.AppendUvarint(b, uint64(exceptions))
	for i, v := range values {
		if outside(v) {
			b = append(b, byte(i))
			b = binary.AppendUvarint(b, v)
		}
	}
	if width == 0 {
		return b
	}
	var word uint64
	have := uint(0)
	for _, v := range values {
		v -= base
		if outside(v + base) {
			v = 0
		}
		word |= v << have
		if have += width; have < 64 {
			continue
		}
		b = binary.LittleEndian.AppendUint64(b, word)
		have -= 64
		word = 0
		if have > 0 {
			word = v >> (width - have)
		}
	}
	for ; have > 0; have -= min(have, 8) {
		b = append(b, byte(word))
		word >>= 8
	}
	return b
}

// fit returns the base and the width that make the encoded column of values
// small.
func fit(values, scratch []uint64) (base uint64, width uint) {
	sorted := append(scratch[:0], values...)
	slices.Sort(sorted)
	n := len(sorted)
	width = uint(bits.Len64(sorted[n-1] - sorted[0]))
	base = sorted[0]
	cost := (n*int(width) + 7) / 8
	for w, worse := int(width)-1, 0; w >= 0 && worse < 8; w-- {
		// The longest stretch of sorted values that fits into w bits.
		first, longest := 0, 0
		for i, j := 0, 0; j < n; j++ {
			for bits.Len64(sorted[j]-sorted[i]) > w {
				i++
			}
			if j+1-i > longest {
				first, longest = i, j+1-i
			}
		}
		c := (n*w+7)/8 + (n-longest)*(2+bits.Len64(sorted[n-1])/7)
		if c < cost {
			base, width, cost, worse = sorted[first], uint(w), c, 0
		} else {
			worse++
		}
	}
	return base, width
}

// column decodes the column of n rows that comes next. It shares the memory of
// the input.
func (in *input) column(n int) column {
	var c column
	c.width = uint(in.byte())
	c.base = in.uvarint()
	exceptions := in.uvarint()
	if c.width > 64 || exceptions > uint64(n) {
		in.fail()
		return column{}
	}
	if exceptions > 0 {
		c.rows = make([]byte, exceptions)
		c.values = make([]uint64, exceptions)
	}
	for i := range c.rows {
		c.rows[i] = in.byte()
		c.values[i] = in.uvarint()
		if int(c.rows[i]) >= n || (i > 0 && c.rows[i] <= c.rows[i-1]) {
			in.fail()
			return column{}
		}
	}
	c.packed = in.bytes((uint64(n)*uint64(c.width) + 7) / 8)
	if in.bad {
		return column{}
	}
	return c
}

// at returns the number of row i, which must be one.
func (c *column) at(i int) uint64 {
	if len(c.rows) > 0 {
		j := sort.Search(len(c.rows), func(j int) bool { return int(c.rows[j]) >= i })
		if j < len(c.rows) && int(c.rows[j]) == i {
			return c.values[j]
		}
	}
	if c.width == 0 {
		return c.base
	}
	bit := uint(i) * c.width
	at, shift := bit/8, bit%8
	var v uint64
	if uint(len(c.packed)) >= at+8 {
		v = binary.LittleEndian.Uint64(c.packed[at:]) >> shift
	} else {
		for k, x := range c.packed[at:] {
			v |= uint64(x) << (8 * k)
		}
		v >>= shift
	}
	if shift+c.width > 64 {
		v |= uint64(c.packed[at+8]) << (64 - shift)
	}
	if c.width < 64 {
		v &= 1<<c.width - 1
	}
	return c.base + v
}

// size returns what the column takes in memory beside the input.
func (c *column) size() int { return 9 * len(c.rows) }
