package turns

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/pailfs/pailfs/prefetch/budget"
)

func TestTurnsGoRoundTheUsers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := New(1)
		greedy, late, gone := budget.User{UID: 1}, budget.User{UID: 1, Guest: true}, budget.User{UID: 3}
		if err := turns.take(t.Context(), greedy); err != nil {
			t.Fatal(err)
		}
		var all sync.WaitGroup
		var order []budget.User // by whoever has the turn
		wait := func(u budget.User) {
			all.Go(func() {
				if err := turns.take(t.Context(), u); err != nil {
					t.Error(err)
				}
				order = append(order, u)
				turns.give()
			})
			synctest.Wait()
		}
		for range 50 {
			wait(greedy)
		}
		ctx, cancel := context.WithCancel(t.Context())
		all.Go(func() {
			if err := turns.take(ctx, gone); err == nil {
				t.Error("it took a turn though nobody wanted it any more")
			}
		})
		synctest.Wait()
		wait(late)
		wait(late)
		cancel()
		synctest.Wait()
		turns.give()
		all.Wait()
		if len(order) != 52 || order[1] != late || order[3] != late {
			t.Errorf("the turns of %v were at %v", late, order[:8])
		}
		if turns.mu.free != 1 || len(turns.mu.waiting) != 0 || len(turns.mu.users) != 0 {
			t.Errorf("after all: %+v", &turns.mu)
		}
	})
}
