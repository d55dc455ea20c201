package eviction

import (
	"math/bits"

	"github.com/pailfs/pailfs/cache/internal/content"
)

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
	// sketchRatio is how many counters a row has for each object that is present: it
	// is read among many that are not.
	sketchRatio = 16
	// minSketch and maxSketch bound the counters of a row.
	minSketch = 64 << 10
	maxSketch = 8 << 20
)

func newSketch() *sketch {
	s := new(sketch)
	s.grow(0)
	return s
}

// grow makes the sketch wide enough for that many objects.
func (s *sketch) grow(objects int) {
	n := min(max(sketchRatio*objects, minSketch), maxSketch)
	width := uint64(1) << bits.Len(uint(n-1))
	if s.rows[0] != nil && width <= s.mask+1 {
		return
	}
	for i, old := range s.rows {
		row := make([]uint8, width)
		for from := 0; len(old) > 0 && from < len(row); from += len(old) {
			copy(row[from:], old) // an identity finds its old count, or more
		}
		s.rows[i] = row
	}
	s.mask = width - 1
}

// add counts a use of id. All counts are halved after age uses.
func (s *sketch) add(id content.Identity, age int) {
	for i := range s.rows {
		if c := &s.rows[i][row(id, i)&s.mask]; *c < sketchMax {
			*c++
		}
	}
	if s.uses++; s.uses < age {
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
func (s *sketch) estimate(id content.Identity) uint8 {
	least := uint8(sketchMax)
	for i := range s.rows {
		least = min(least, s.rows[i][row(id, i)&s.mask])
	}
	return least
}

// row returns 32 bits of the identity, which is random already, for a row.
func row(id content.Identity, i int) uint64 {
	return uint64(id[4*i]) | uint64(id[4*i+1])<<8 | uint64(id[4*i+2])<<16 | uint64(id[4*i+3])<<24
}
