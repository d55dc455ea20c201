package residency

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
	"github.com/pailfs/pailfs/prefetch/internal/prefetchtest"
	"github.com/pailfs/pailfs/prefetch/rights"
	"github.com/pailfs/pailfs/prefetch/session"
)

// slowRights take a while for every file, and count who asks at once.
type slowRights struct {
	prefetchtest.Rights
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
	return r.Rights.Open(ctx, who, name)
}

func TestOneUserWhoMeasuresMuchDoesNotKeepOthersWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		paths := prefetchtest.Names("train", 10)
		tree := prefetchtest.NewTree(1000, paths...)
		var now, most int
		shown := slowRights{prefetchtest.Rights{Names: tree}, &sync.Mutex{}, &now, &most}
		p := New(shown, prefetchtest.NewCache(1<<30))
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
	prefetchtest.Rights
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
	return r.Rights.Open(ctx, who, name)
}

func (r stuckRights) ReadDir(ctx context.Context, who session.Who, name, after string) ([]rights.Found, error) {
	r.wait(ctx, "stuck") // at any directory
	return r.Rights.ReadDir(ctx, who, name, after)
}

// TestWhoWaitsForTheStoreKeepsNobodyFromMeasuring: one who does lends its turn.
func TestWhoWaitsForTheStoreKeepsNobodyFromMeasuring(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tree := prefetchtest.NewTree(1000, "stuck", "d/a", "x")
		shown := stuckRights{prefetchtest.Rights{Names: tree}, make(chan struct{})}
		p := New(shown, prefetchtest.NewCache(1<<30))
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
		close(shown.stuck)
		all.Wait()
		if free := p.measuring.Free(); free != atOnce {
			t.Errorf("%d turns are free", free)
		}
	})
}

func TestWhoStopsMeasuringGivesItsTurnBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		paths := prefetchtest.Names("train", 10)
		tree := prefetchtest.NewTree(1000, paths...)
		var now, most int
		shown := slowRights{prefetchtest.Rights{Names: tree}, &sync.Mutex{}, &now, &most}
		p := New(shown, prefetchtest.NewCache(1<<30))
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
		if free := p.measuring.Free(); free != max(1, runtime.GOMAXPROCS(0)/2) {
			t.Errorf("%d turns are free", free)
		}
	})
}
