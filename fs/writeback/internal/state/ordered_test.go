package state

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/pailfs/pailfs/fs/writeback/internal/order"
)

// TestOrderedNamesFollowTheNames changes names at random and compares the order with one
// that is made anew.
func TestOrderedNamesFollowTheNames(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	st := NewState()
	for round := range 2000 {
		base := fmt.Sprint("name", rng.IntN(40))
		switch rng.IntN(5) {
		case 0:
			st.dropName("dir", base)
		case 1:
			st.setName("dir", base, Name{Kind: NameGone, Key: "dir/" + base})
		case 2:
			st.setName("dir", base, Name{Kind: NameDirectory, Key: "dir/" + base + "/"})
		default:
			st.setName("dir", base, Name{Kind: NameFile, File: order.FileID(round), Key: "dir/" + base})
		}
		after := fmt.Sprint("dir/name", rng.IntN(40))
		var got, want []orderedName
		st.Ordered.After("dir", after, st.Names["dir"], func(base string, n Name) bool {
			got = append(got, orderedName{base, n})
			return true
		})
		for base, n := range st.Names["dir"] {
			if n.Kind != NameGone && n.Key > after {
				want = append(want, orderedName{base, n})
			}
		}
		slices.SortFunc(want, func(a, b orderedName) int {
			if a.less(b) {
				return -1
			}
			return 1
		})
		if !slices.Equal(got, want) {
			t.Fatalf("round %d: %v, want %v", round, got, want)
		}
	}
}
