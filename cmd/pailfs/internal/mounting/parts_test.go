package mounting

import (
	"errors"
	"slices"
	"testing"
)

// TestPartsAreClosedInReverse, all of them, also behind one that fails, and each once.
func TestPartsAreClosedInReverse(t *testing.T) {
	var p parts
	var closed []string
	broken := errors.New("the disk is gone")
	for _, name := range []string{"store", "cache", "names"} {
		p.opens(name, func() error {
			closed = append(closed, name)
			if name == "cache" {
				return broken
			}
			return nil
		})
	}
	if err := p.close(); !errors.Is(err, broken) || err.Error() != "close cache: the disk is gone" {
		t.Errorf("closing failed with %v", err)
	}
	if err := p.close(); err != nil {
		t.Errorf("closing again failed with %v", err)
	}
	if want := []string{"names", "cache", "store"}; !slices.Equal(closed, want) {
		t.Errorf("closed %v, want %v", closed, want)
	}
}
