package attributes

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// countWithdrawn counts the requests that are withdrawn of those there are. Tree.mu is held.
func countWithdrawn(tree *Tree) *int {
	withdrawn := new(int)
	for _, f := range tree.mu.flights {
		was := f.withdraw
		f.withdraw = func() { *withdrawn++; was() }
	}
	return withdrawn
}

// A listing has come to the end of a small directory at once, and another has looked since.
func TestBulkOfASmallDirectoryIsWithdrawn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 100
		tree, _ := overSlow(t, n)
		defer tree.Close()
		for range 2 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			tree.Complete(ctx, "", numbers{n: n}.page(0, n))
			cancel()
		}
		tree.mu.Lock()
		withdrawn := countWithdrawn(tree)
		tree.mu.Unlock()
		time.Sleep(time.Minute)
		tree.mu.Lock()
		defer tree.mu.Unlock()
		if *withdrawn != n {
			t.Errorf("%d of %d requests that nobody waits for are withdrawn", *withdrawn, n)
		}
	})
}
