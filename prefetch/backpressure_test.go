package prefetch

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pailfs/pailfs/prefetch/budget"
	"github.com/pailfs/pailfs/prefetch/internal/prefetchtest"
	"github.com/pailfs/pailfs/prefetch/session"
)

// withNames returns a configuration with so many bytes for the names of all users.
func withNames(bytes int64) Config {
	limits := budget.DefaultLimits()
	limits[budget.Names] = bytes
	return Config{Ledger: budget.New(limits, 0)}
}

func TestAnEpochLargerThanTheBudgetOfNamesIsAnnouncedInTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		paths := prefetchtest.Names("train", 500)
		p, stop := running(t, withNames(128<<10), prefetchtest.NewTree(1000, paths...), prefetchtest.NewCache(1<<30))
		defer stop()
		n := open(t, p, one, 1000)
		announced := make(chan int)
		go func() {
			out, _, err := p.Sessions.PreloadPatiently(t.Context(), n, paths)
			if err != nil {
				t.Error(err)
			}
			announced <- out.Accepted
		}()
		for _, path := range paths {
			for wait(t, p, n, []string{path})[0].State == "unknown" {
				synctest.Wait() // it is announced when there is room
			}
			if _, _, err := p.Sessions.Release(n, []string{path}); err != nil {
				t.Fatal(err)
			}
		}
		if got := <-announced; got != len(paths) {
			t.Errorf("%d of %d were announced", got, len(paths))
		}
		if totals := p.Overview().Totals; totals.Dropped != 0 {
			t.Errorf("dropped: %+v", totals)
		}
	})
}

func TestWhoWaitsForRoomCanStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		paths := prefetchtest.Names("train", 500)
		p, stop := running(t, withNames(128<<10), prefetchtest.NewTree(1000, paths...), prefetchtest.NewCache(1<<30))
		defer stop()
		n, other := open(t, p, one, 1000), open(t, p, session.Key{UID: one.UID, Task: "other"}, 1000)
		if out, _, err := p.Sessions.Preload(n, paths); err != nil || out.NoRoom == 0 {
			t.Fatalf("%+v, %v", out, err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		began := time.Now()
		out, quota, err := p.Sessions.PreloadPatiently(ctx, other, paths)
		if err != nil || out.Accepted != 0 || out.Dropped != 0 || quota != 0 || time.Since(began) != time.Minute {
			t.Errorf("%+v, quota %d, %v after %v", out, quota, err, time.Since(began))
		}
	})
}
