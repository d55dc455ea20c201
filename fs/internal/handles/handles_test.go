package handles

import (
	"sync"
	"testing"
)

// TestNumbersAreNeverUsedAgain: the control channel knows an open directory by its number, and
// must not take another for it.
func TestNumbersAreNeverUsedAgain(t *testing.T) {
	var table Table[string]
	seen := make(map[uint64]bool)
	for i := range 100 {
		name := "file"
		fh := table.Add(&name)
		if fh == 0 || seen[fh] {
			t.Fatalf("number %d is given out as the %dth", fh, i)
		}
		seen[fh] = true
		switch i % 3 {
		case 0:
			if got := table.Remove(fh); got != &name {
				t.Errorf("removed %v", got)
			}
		case 1:
			table.RemoveAll()
		}
	}
}

// TestWhatIsRemovedIsGone: a number that was taken away, or was never given, means nothing.
func TestWhatIsRemovedIsGone(t *testing.T) {
	var table Table[string]
	for _, fh := range []uint64{0, 7} {
		if table.Get(fh) != nil || table.Remove(fh) != nil {
			t.Errorf("an empty table has %d", fh)
		}
	}
	a, b := "a", "b"
	first, second := table.Add(&a), table.Add(&b)
	if table.Len() != 2 || table.Get(first) != &a || table.Remove(first) != &a || table.Get(first) != nil || table.Remove(first) != nil {
		t.Error("what was removed is there, or was not before")
	}
	if all := table.RemoveAll(); len(all) != 1 || all[0] != &b {
		t.Errorf("the rest is %v", all)
	}
	if table.Len() != 0 || table.Get(second) != nil || len(table.RemoveAll()) != 0 {
		t.Error("there is something after all were removed")
	}
}

// TestManyOpenAtOnce: nobody gets what another has open.
func TestManyOpenAtOnce(t *testing.T) {
	var table Table[int]
	var opening sync.WaitGroup
	for i := range 8 {
		opening.Go(func() {
			for range 200 {
				fh := table.Add(&i)
				if got := table.Get(fh); got != &i {
					t.Errorf("%d has %v", fh, got)
				}
				table.Remove(fh)
			}
		})
	}
	opening.Wait()
}
