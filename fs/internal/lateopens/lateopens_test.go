package lateopens_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pailfs/pailfs/fs/internal/lateopens"
)

// shelf keeps numbers, and knows what was released.
type shelf struct {
	lateopens.Keeper[int]
	mu       sync.Mutex
	released []int
}

func (s *shelf) keep(key int, bytes int64) {
	s.Keep(key, bytes, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.released = append(s.released, key)
	})
}

// has fails unless so many things are kept and these were released, in this order.
func (s *shelf) has(t *testing.T, kept int, released ...int) {
	t.Helper()
	if n := s.Len(); n != kept {
		t.Errorf("%d things are kept, want %d", n, kept)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if d := cmp.Diff(released, s.released); d != "" && len(released)+len(s.released) > 0 {
		t.Error(d)
	}
}

func TestForgettingReleasesOnce(t *testing.T) {
	var s shelf
	s.Drop(1)
	s.keep(1, 10)
	s.keep(2, 10)
	s.has(t, 2)
	s.Drop(1)
	s.Drop(1)
	s.has(t, 1, 1)
	s.Clear()
	s.Clear()
	s.has(t, 0, 1, 2)
}

func TestWhatIsKeptAgainIsReleasedBefore(t *testing.T) {
	var s shelf
	s.keep(1, 10)
	s.keep(1, 10)
	s.has(t, 1, 1)
}

func TestTheOldestGoWhereThereAreTooMany(t *testing.T) {
	var s shelf
	for i := range lateopens.Most + 3 {
		s.keep(i, 0)
	}
	s.has(t, lateopens.Most, 0, 1, 2)
}

func TestTheOldestGoWhereTheirBytesAreTooMany(t *testing.T) {
	var s shelf
	for i := range 5 {
		s.keep(i, lateopens.MostBytes/4)
	}
	s.has(t, 4, 0)
	s.keep(5, 2*lateopens.MostBytes)
	s.has(t, 1, 0, 1, 2, 3, 4)
	s.keep(6, 0)
	s.has(t, 1, 0, 1, 2, 3, 4, 5)
}

func TestForgettingByTheKernelIsNotWaitedForForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s shelf
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { s.Run(ctx) })
		s.keep(1, 0)
		time.Sleep(lateopens.Age - time.Second)
		s.keep(2, 0)
		synctest.Wait()
		s.has(t, 2)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		s.has(t, 1, 1)
		cancel()
		running.Wait()
		s.has(t, 0, 1, 2)
	})
}

// TestAReleaseMayComeBack: what is released may lead to something being kept or dropped.
func TestAReleaseMayComeBack(t *testing.T) {
	var k lateopens.Keeper[string]
	var order []string
	k.Keep("a", 0, func() {
		order = append(order, "a")
		k.Drop("a")
		k.Keep("b", 0, func() { order = append(order, "b") })
	})
	k.Drop("a")
	k.Clear()
	if want := []string{"a", "b"}; !slices.Equal(order, want) {
		t.Errorf("%q, want %q", order, want)
	}
}

// TestWhatTakesLongToReleaseHoldsUpNothing: the file may be fetched just then.
func TestWhatTakesLongToReleaseHoldsUpNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s shelf
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { s.Run(ctx) })
		fetched := make(chan struct{})
		s.Keep(1, 0, func() { <-fetched })
		time.Sleep(2 * time.Second)
		s.keep(2, 0)
		time.Sleep(lateopens.Age + time.Second)
		synctest.Wait()
		s.has(t, 0, 2)
		close(fetched)
		cancel()
		running.Wait()
	})
}
