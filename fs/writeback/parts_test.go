package writeback

import "testing"

// TestPartsHoldTheLargestObject: whatever the size, there are at most 10,000 parts of
// at most 5 GiB, without a gap, and the first ones do not depend on the size unless
// that is beyond what the usual ones reach.
func TestPartsHoldTheLargestObject(t *testing.T) {
	for _, size := range []int64{1, minPart, minPart + 1, 8 << 30, 120 << 30, 1 << 40, 7 << 40, 9 << 40, maxParts * maxPart} {
		lay := usualLimits.layoutOf(size)
		parts := lay.parts(size)
		if len(parts) > maxParts {
			t.Errorf("%d bytes are %d parts", size, len(parts))
		}
		at := int64(0)
		for i, p := range parts {
			last := i == len(parts)-1
			if p.Off != at || p.Size <= 0 || p.Size > maxPart || !last && p.Size < minPart {
				t.Fatalf("part %d of %d bytes is %+v, want one from %d", i, size, p, at)
			}
			at = p.End()
		}
		if at != size {
			t.Errorf("the parts of %d bytes end at %d", size, at)
		}
		if size <= 7<<40 && lay.first != minPart {
			t.Errorf("the first parts of %d bytes have %d, want %d", size, lay.first, minPart)
		}
	}
	parts := usualLimits.layoutOf(1).parts(120 << 30)
	for at, want := range map[int]int64{0: 8 << 20, 999: 8 << 20, 1000: 16 << 20, 3000: 64 << 20} {
		if got := parts[at].Size; got != want {
			t.Errorf("part %d has %d bytes, want %d", at, got, want)
		}
	}
}

func TestEvenPartsAreNeverTiny(t *testing.T) {
	for _, size := range []int64{1, 256 << 20, 256<<20 + 1, 10 << 30, maxParts * maxPart} {
		at := int64(0)
		parts := evenly(size, copyPart)
		for _, p := range parts {
			if p.Off != at || p.Size <= 0 || len(parts) > 1 && p.Size < copyPart/2 {
				t.Fatalf("a part of %d bytes is %+v, want one from %d", size, p, at)
			}
			at = p.End()
		}
		if at != size || len(parts) > maxParts {
			t.Errorf("%d parts end at %d, want %d", len(parts), at, size)
		}
	}
}
