package guess

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pailfs/pailfs/cache"
	"github.com/pailfs/pailfs/oss"
	"github.com/pailfs/pailfs/prefetch/internal/prefetchtest"
	"github.com/pailfs/pailfs/prefetch/internal/scheduler"
)

// watching returns what plays an open of a file, and what stops the fetches that follow.
func watching(t *testing.T, tree prefetchtest.Tree, c *prefetchtest.Cache) (open func(oss.Object), stop func()) {
	t.Helper()
	g := New(tree, c, "data/")
	s := scheduler.New(func() int { return 64 }, func() int64 { return 1 << 29 }, g.NextAhead, g.NextBehind)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.Run(ctx)
	}()
	open = func(o oss.Object) {
		if g.Opened(ctx, o) {
			s.Wake()
		}
		time.Sleep(time.Millisecond)
	}
	return open, func() {
		cancel()
		<-ended
	}
}

func TestDirectoryReadInOrderIsFetchedAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		paths := prefetchtest.Names("train", 2000)
		tree := prefetchtest.NewTree(1000, paths...)
		c := prefetchtest.NewCache(1 << 30)
		open, stop := watching(t, tree, c)
		defer stop()
		for _, path := range paths[:20] {
			open(tree[path])
		}
		time.Sleep(time.Second)
		fetches, _ := c.Count()
		if fetches < aheadFiles || fetches > aheadFiles+20 {
			t.Errorf("%d were fetched, want about %d", fetches, aheadFiles)
		}
		for _, key := range c.Fetched() {
			if key > fmt.Sprintf("data/train/%04d", 20+aheadFiles) {
				t.Errorf("%s is too far ahead", key)
			}
		}
	})
}

func TestDirectoryReadInAnyOrderIsWarmedIntoTheRoomThatIsFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		paths := prefetchtest.Names("train", 2000)
		tree := prefetchtest.NewTree(10_000, paths...)
		c := prefetchtest.NewCache(10 << 20)
		open, stop := watching(t, tree, c)
		defer stop()
		rng := rand.New(rand.NewPCG(1, 2))
		for _, i := range rng.Perm(len(paths))[:behindAfter] {
			open(tree[paths[i]])
		}
		time.Sleep(10 * time.Second)
		fetches, _ := c.Count()
		room := int(int64(9<<20) / cache.Cost(oss.Object{Size: 10_000}))
		if fetches < room-3 || fetches > room {
			t.Errorf("%d were fetched, there is room for %d", fetches, room)
		}
	})
}
