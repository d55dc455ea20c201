package cache

import "math/bits"

// sketch estimates how often each identity was used lately: four rows of small
// counters, of which the least is the estimate, too high at times and never too
// low. All are halved after a while, so that what was popular once is forgotten.
type sketch struct {
	rows [4][]uint8
	mask uint64
	// uses counts the additions since the last halving.
	uses int
}

const (
	// sketchMax is the largest count.
	sketchMax = 15
	// sketchAge is how many uses for each counter of a row come before all are
	// halved. With as many counters as objects that is many epochs of a training
	// that reads everything once in each.
	sketchAge = 10
	// minSketch is the least number of counters in a row.
	minSketch = 1 << 10
)

// newSketch returns a sketch that tells apart about n identities.
func newSketch(n int) *sketch {
	width := max(minSketch, 1<<bits.Len(uint(max(n, 1)-1)))
	s := &sketch{mask: uint64(width - 1)}
	for i := range s.rows {
		s.rows[i] = make([]uint8, width)
	}
	return s
}

// width returns the number of counters in a row.
func (s *sketch) width() int { return int(s.mask + 1) }

// add counts a use of id.
func (s *sketch) add(id identity) {
	for i := range s.rows {
		if c := &s.rows[i][id.row(i)&s.mask]; *c < sketchMax {
			*c++
		}
	}
	if s.uses++; s.uses < sketchAge*s.width() {
		return
	}
	s.uses = 0
	for _, row := range s.rows {
		for i := range row {
			row[i] /= 2
		}
	}
}

// estimate returns how often id was used.
func (s *sketch) estimate(id identity) uint8 {
	least := uint8(sketchMax)
	for i := range s.rows {
		least = min(least, s.rows[i][id.row(i)&s.mask])
	}
	return least
}

// row returns 32 bits of the identity, which is random already, for a row.
func (id identity) row(i int) uint64 {
	return uint64(id[4*i]) | uint64(id[4*i+1])<<8 | uint64(id[4*i+2])<<16 | uint64(id[4*i+3])<<24
}
