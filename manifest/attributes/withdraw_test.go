package attributes

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pailfs/pailfs/manifest"
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

// Who lists again and again a directory of which the store answers nothing makes no more and more
// goroutines.
func TestBulkOverAStoreThatDoesNotAnswerDoesNotGrow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n, page = 10_000, 1024
		tree, _ := overSlow(t, n)
		defer tree.Close()
		complete := func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			tree.Complete(ctx, "", numbers{n: n}.page(0, page))
		}
		for range 5 {
			complete()
		}
		synctest.Wait()
		before := runtime.NumGoroutine()
		for range 200 {
			complete()
		}
		synctest.Wait()
		if after := runtime.NumGoroutine(); after > before+10 {
			t.Errorf("%d goroutines, after 200 more answers %d", before, after)
		}
	})
}

// What was listed by many at once is not asked for far ahead of all.
func TestBulkOfManyReadersOfOnePageIsNotFarAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n, page = 100_000, 1024
		tree, bucket := overSlow(t, n)
		defer tree.Close()
		for range 50 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour+time.Second)
			go func() {
				defer cancel()
				tree.Complete(ctx, "", numbers{n: n}.page(0, page))
			}()
		}
		time.Sleep(24 * time.Hour)
		if got := bucket.heads.Load(); got > page+2*2048 {
			t.Errorf("%d HEADs for a page of %d names", got, page)
		}
	})
}

// The entries of the caller are its own once Complete has returned.
func TestBulkLeavesTheEntriesOfItsCallerAlone(t *testing.T) {
	tree, err := New(Config{}, numbers{n: 5000}, new(slow), new(slow), new(memory), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tree.Close()
	known := make([]manifest.Entry, 5000)
	for i := range known {
		known[i] = numbers{}.entry(i)
		tree.notes.SetNote(known[i].Object, encodeNote(known[i].Object, &manifest.Attr{}, false))
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	tree.Complete(ctx, "", known)
	for i := range known {
		if known[i].Attr != nil {
			known[i].Name = "mine"
		}
	}
}

// A walk of many directories does not take from others what they wait for, and few are watched.
func TestBulkThatSomebodyWaitsForIsNotWithdrawn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 100
		tree, _ := overSlow(t, n)
		defer tree.Close()
		go tree.Complete(t.Context(), "waits", numbers{n: n}.page(0, n))
		synctest.Wait()
		tree.mu.Lock()
		withdrawn := countWithdrawn(tree)
		for i := range 3 * mostRuns {
			tree.beginLocked(fmt.Sprint(i))
		}
		runs := len(tree.mu.runs)
		tree.mu.Unlock()
		if *withdrawn > 0 {
			t.Errorf("%d requests are withdrawn that somebody waits for", *withdrawn)
		}
		if runs > mostRuns {
			t.Errorf("%d directories are watched, want %d at most", runs, mostRuns)
		}
	})
}
