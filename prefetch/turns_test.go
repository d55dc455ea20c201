package prefetch

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pailfs/pailfs/prefetch/budget"
	"github.com/pailfs/pailfs/prefetch/rights"
	"github.com/pailfs/pailfs/prefetch/session"
)

func TestTurnsGoRoundTheUsers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := newTurns(1)
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

// slowRights take a while for every file, and count who asks at once.
type slowRights struct {
	fakeRights
	mu        *sync.Mutex
	now, most *int
}

func (r slowRights) Open(ctx context.Context, who session.Who, name string) (rights.Found, error) {
	r.mu.Lock()
	*r.now++
	*r.most = max(*r.most, *r.now)
	r.mu.Unlock()
	time.Sleep(2 * measureStep)
	r.mu.Lock()
	*r.now--
	r.mu.Unlock()
	return r.fakeRights.Open(ctx, who, name)
}

func TestOneUserWhoMeasuresMuchDoesNotKeepOthersWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		paths := names("train", 10)
		tree := newFakeTree(1000, paths...)
		var now, most int
		rights := slowRights{fakeRights{Tree: tree}, &sync.Mutex{}, &now, &most}
		p, stop := running(t, Config{Rights: rights}, tree, newFakeCache(1<<30))
		defer stop()
		measure := func(uid uint32) {
			if got := p.Measure(t.Context(), budget.User{UID: uid}, session.As(uid, uid, session.Groups{}, session.Base{}), paths); len(got) != len(paths) || got[9].Files != 1 {
				t.Errorf("user %d: %+v", uid, got)
			}
		}
		var all sync.WaitGroup
		for range 100 {
			all.Go(func() { measure(7) })
		}
		synctest.Wait()
		began := time.Now()
		measure(8)
		mine := time.Since(began)
		all.Wait()
		whole := time.Since(began)
		if least := max(1, runtime.GOMAXPROCS(0)/2); most != least {
			t.Errorf("%d measured at once, want %d", most, least)
		}
		if mine > whole/10 {
			t.Errorf("a user waited for %v of the %v that a hundred calls of another one took", mine, whole)
		}
	})
}

// stuckRights wait at a path until they are freed, as for a store that does not answer.
type stuckRights struct {
	fakeRights
	stuck chan struct{}
}

func (r stuckRights) wait(ctx context.Context, name string) {
	if strings.HasPrefix(name, "stuck") {
		select {
		case <-r.stuck:
		case <-ctx.Done():
		}
	}
}

func (r stuckRights) Open(ctx context.Context, who session.Who, name string) (rights.Found, error) {
	r.wait(ctx, name)
	return r.fakeRights.Open(ctx, who, name)
}

func (r stuckRights) ReadDir(ctx context.Context, who session.Who, name, after string) ([]rights.Found, error) {
	r.wait(ctx, "stuck") // at any directory
	return r.fakeRights.ReadDir(ctx, who, name, after)
}

// TestWhoWaitsForTheStoreKeepsNobodyFromMeasuring: one who does lends its turn.
func TestWhoWaitsForTheStoreKeepsNobodyFromMeasuring(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tree := newFakeTree(1000, "stuck", "d/a", "x")
		rights := stuckRights{fakeRights{Tree: tree}, make(chan struct{})}
		p, stop := running(t, Config{Rights: rights}, tree, newFakeCache(1<<30))
		defer stop()
		atOnce := max(1, runtime.GOMAXPROCS(0)/2)
		measure := func(ctx context.Context, uid uint32, path string) []Measured {
			return p.Measure(ctx, budget.User{UID: uid}, session.As(uid, uid, session.Groups{}, session.Base{}), []string{path})
		}
		var all sync.WaitGroup
		for i := range 2 * atOnce {
			all.Go(func() {
				path := []string{"stuck", "d"}[i%2] // a name, and a listing
				if got := measure(t.Context(), 7, path); len(got) != 1 || got[0].Files != 1 || got[0].Err != nil {
					t.Errorf("%s, at last: %+v", path, got)
				}
			})
		}
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if got := measure(ctx, 8, "x"); len(got) != 1 || got[0].Files != 1 || ctx.Err() != nil {
			t.Errorf("beside those who wait for the store: %+v, %v", got, ctx.Err())
		}
		close(rights.stuck)
		all.Wait()
		if free := p.measuring.mu.free; free != atOnce {
			t.Errorf("%d turns are free", free)
		}
	})
}

func TestWhoStopsMeasuringGivesItsTurnBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		paths := names("train", 10)
		tree := newFakeTree(1000, paths...)
		var now, most int
		rights := slowRights{fakeRights{Tree: tree}, &sync.Mutex{}, &now, &most}
		p, stop := running(t, Config{Rights: rights}, tree, newFakeCache(1<<30))
		defer stop()
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		for i := range 20 {
			all.Go(func() { p.Measure(ctx, budget.User{UID: uint32(i)}, session.Root(), paths) })
		}
		time.Sleep(3 * measureStep)
		cancel()
		all.Wait()
		if got := p.Measure(t.Context(), budget.User{}, session.Root(), paths); len(got) != 10 || got[0].Files != 1 {
			t.Errorf("afterwards: %v", fmt.Sprint(got))
		}
		if free := p.measuring.mu.free; free != max(1, runtime.GOMAXPROCS(0)/2) {
			t.Errorf("%d turns are free", free)
		}
	})
}
