package seeks_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pailfs/pailfs/fs/internal/seeks"
)

// answer reads from offset, where as many entries fit as fits says, and returns how many came.
func answer(e *seeks.Ends, offset uint64, fits int) int {
	limit := e.Limit(offset)
	given := fits
	if limit > 0 {
		given = min(limit, fits)
	}
	e.Answered(offset+uint64(given), limit)
	return given
}

// reads returns how long the answers are of a reader that goes on n times.
func reads(e *seeks.Ends, offset uint64, n int) (answers []int) {
	for range n {
		given := answer(e, offset, 1500)
		answers = append(answers, given)
		offset += uint64(given)
	}
	return answers
}

func TestWhoSeeksGetsLittleAndTheMoreTheLongerItReadsOn(t *testing.T) {
	var e seeks.Ends
	if d := cmp.Diff([]int{16, 64, 256, 1024, 1500, 1500}, reads(&e, 5000, 6)); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]int{1500, 1500, 1500}, reads(&e, 0, 3)); d != "" {
		t.Errorf("from the start: %s", d)
	}
}

func TestWhoGoesToEveryPositionGetsLittleAtEach(t *testing.T) {
	var e seeks.Ends
	for at := range uint64(3000) {
		if given := answer(&e, at+1, 1500); given != seeks.First {
			t.Fatalf("%d entries at position %d", given, at+1)
		}
	}
}

// TestReadersSideBySideAreEachGivenAllThatFits: as many as there are ends kept.
func TestReadersSideBySideAreEachGivenAllThatFits(t *testing.T) {
	var e seeks.Ends
	offsets := make([]uint64, 15)
	for range 5 {
		for r := range offsets {
			given := answer(&e, offsets[r], 1500-r)
			if given != 1500-r {
				t.Fatalf("reader %d got %d entries of %d", r, given, 1500-r)
			}
			offsets[r] += uint64(given)
		}
	}
}

// TestReadersAtOnePlaceAreTwo: both have come to it by reading.
func TestReadersAtOnePlaceAreTwo(t *testing.T) {
	var e seeks.Ends
	for range 2 {
		answer(&e, 0, 1500)
	}
	for range 2 {
		if given := answer(&e, 1500, 1500); given != 1500 {
			t.Errorf("%d entries", given)
		}
	}
	if given := answer(&e, 1500, 1500); given != seeks.First {
		t.Errorf("%d entries for a third", given)
	}
}
