package limiter

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// fixedLimiter admits n requests, never more nor less.
func fixedLimiter(t *testing.T, n int) *Limiter {
	t.Helper()
	l, err := New(Config{Initial: n, Min: n, Max: n}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func mustAcquire(t *testing.T, l *Limiter, class Class) Permit {
	t.Helper()
	p, err := l.Acquire(context.Background(), nil, class, time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// queue starts a request of class that appends its name to order when it is
// admitted, and waits until it is in the queue.
func queue(ctx context.Context, t *testing.T, l *Limiter, class Class, name string, order *[]string) {
	go func() {
		p, err := l.Acquire(ctx, nil, class, time.Now().Add(time.Hour))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			return
		}
		*order = append(*order, name) // one permit at a time: no two run at once
		p.Release(Observation{})
	}()
	synctest.Wait()
}

func TestLimiterServesTheMoreUrgentFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := fixedLimiter(t, 1)
		held := mustAcquire(t, l, Demand)
		var order []string
		for _, r := range []struct {
			class Class
			name  string
		}{{Upload, "u1"}, {Prefetch, "p1"}, {Demand, "d1"}, {Prefetch, "p2"}, {Demand, "d2"}, {Upload, "u2"}} {
			queue(t.Context(), t, l, r.class, r.name, &order)
		}
		held.Release(Observation{})
		synctest.Wait()
		if want := []string{"d1", "d2", "p1", "p2", "u1", "u2"}; !slices.Equal(order, want) {
			t.Fatalf("order is %v, want %v", order, want)
		}
	})
}

func TestLimiterStarvesNoClass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := fixedLimiter(t, 1)
		held := mustAcquire(t, l, Demand)
		var order []string
		queue(t.Context(), t, l, Upload, "upload", &order)
		queue(t.Context(), t, l, Prefetch, "prefetch", &order)
		for range 100 {
			queue(t.Context(), t, l, Demand, "demand", &order)
		}
		held.Release(Observation{})
		synctest.Wait()
		if at := slices.Index(order, "prefetch"); at != patience[Prefetch] {
			t.Errorf("prefetch came after %d others, want %d", at, patience[Prefetch])
		}
		if at := slices.Index(order, "upload"); at != patience[Upload]+0 && at != patience[Upload]+1 {
			t.Errorf("upload came after %d others, want about %d", at, patience[Upload])
		}
	})
}

func TestLimiterKeepsRoomForDemand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := fixedLimiter(t, 16)
		var order []string
		read := mustAcquire(t, l, Prefetch)
		for _, class := range []Class{Upload, Prefetch} {
			for range 16 {
				go func() { _, _ = l.Acquire(t.Context(), nil, class, time.Now().Add(time.Hour)) }()
			}
			synctest.Wait()
		}
		read.Release(Observation{})
		s := l.Stats()
		if s.InFlight[Upload] != 8 || s.InFlight[Prefetch]+s.InFlight[Upload] != 14 {
			t.Fatalf("in flight are %v, want half of 16 uploads, and seven eighths with prefetch", s.InFlight)
		}
		queue(t.Context(), t, l, Demand, "demand", &order)
		if len(order) != 1 {
			t.Fatal("a demand request waited although prefetch and upload should have left room")
		}
	})
}

// Where nobody reads, uploads have what prefetch may have; when somebody does they
// come down to their half.
func TestLimiterGivesUploadsWhatNobodyReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := fixedLimiter(t, 16)
		uploads := make(chan Permit, 20)
		for range 20 {
			go func() {
				if p, err := l.Acquire(t.Context(), nil, Upload, time.Now().Add(time.Hour)); err == nil {
					uploads <- p
				}
			}()
			synctest.Wait()
		}
		if n := l.Stats().InFlight[Upload]; n != 14 {
			t.Fatalf("%d uploads are in flight, want 14", n)
		}
		read := mustAcquire(t, l, Demand)
		for range 6 {
			(<-uploads).Release(Observation{})
			synctest.Wait()
		}
		if n := l.Stats().InFlight[Upload]; n != 8 {
			t.Errorf("%d uploads are in flight beside a read, want 8", n)
		}
		read.Release(Observation{})
		synctest.Wait()
		if n := l.Stats().InFlight[Upload]; n != 14 {
			t.Errorf("%d uploads are in flight after the read, want 14", n)
		}
	})
}

func TestLimiterOfOneAdmitsEveryClass(t *testing.T) {
	l := fixedLimiter(t, 1)
	for _, class := range []Class{Demand, Prefetch, Upload} {
		p, ok := l.TryAcquire(class)
		if !ok {
			t.Fatalf("%v is not admitted by an idle limiter", class)
		}
		p.Release(Observation{})
	}
}

func TestPromotedTicketOvertakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := fixedLimiter(t, 1)
		held := mustAcquire(t, l, Demand)
		var order []string
		for _, name := range []string{"p1", "p2"} {
			queue(t.Context(), t, l, Prefetch, name, &order)
		}
		ctx, promote := WithPromotion(t.Context())
		queue(ctx, t, l, Upload, "promoted", &order)
		queue(t.Context(), t, l, Demand, "d1", &order)
		promote()
		promote()
		if s := l.Stats(); s.Waiting != [Classes]int{2, 2, 0} {
			t.Fatalf("waiting are %v, want two of demand and two of prefetch", s.Waiting)
		}
		held.Release(Observation{})
		synctest.Wait()
		if want := []string{"d1", "promoted", "p1", "p2"}; !slices.Equal(order, want) {
			t.Fatalf("order is %v, want %v", order, want)
		}
		// What waits under the context later is urgent at once.
		held = mustAcquire(t, l, Demand)
		order = nil
		queue(t.Context(), t, l, Prefetch, "p3", &order)
		queue(ctx, t, l, Prefetch, "promoted", &order)
		held.Release(Observation{})
		synctest.Wait()
		if want := []string{"promoted", "p3"}; !slices.Equal(order, want) {
			t.Fatalf("order is %v, want %v", order, want)
		}
	})
}

func TestAbandonedWaitGivesItsPlaceUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := fixedLimiter(t, 1)
		held := mustAcquire(t, l, Demand)
		ctx, cancel := context.WithCancel(t.Context())
		closing := make(chan struct{})
		errs := make(chan error, 3)
		go func() { _, err := l.Acquire(ctx, nil, Demand, time.Now().Add(time.Hour)); errs <- err }()
		synctest.Wait()
		cancel()
		if err := <-errs; !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled wait: %v", err)
		}
		go func() { _, err := l.Acquire(t.Context(), closing, Demand, time.Now().Add(time.Hour)); errs <- err }()
		synctest.Wait()
		close(closing)
		if err := <-errs; !errors.Is(err, ErrClosed) {
			t.Errorf("wait on a closing client: %v", err)
		}
		if _, err := l.Acquire(t.Context(), nil, Demand, time.Now().Add(time.Second)); !errors.Is(err, ErrTurn) {
			t.Errorf("wait past the deadline: %v", err)
		}
		held.Release(Observation{})
		if s := l.Stats(); s.InFlight != [Classes]int{} || s.Waiting != [Classes]int{} {
			t.Errorf("left over: %+v", s)
		}
		mustAcquire(t, l, Demand).Release(Observation{})
	})
}

// What waits is withdrawn, what has its turn is not.
func TestWithdrawnWaitGivesItsPlaceUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := fixedLimiter(t, 1)
		ctx, withdraw := WithWithdrawal(t.Context())
		held, err := l.Acquire(ctx, nil, Prefetch, time.Now().Add(time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		errs := make(chan error)
		go func() { _, err := l.Acquire(ctx, nil, Prefetch, time.Now().Add(time.Hour)); errs <- err }()
		synctest.Wait()
		withdraw()
		withdraw()
		if err := <-errs; !errors.Is(err, context.Canceled) {
			t.Errorf("withdrawn wait: %v", err)
		}
		if ctx.Err() != nil {
			t.Error("what is in flight has ended, too")
		}
		held.Release(Observation{})
		if _, err := l.Acquire(ctx, nil, Prefetch, time.Now().Add(time.Hour)); !errors.Is(err, context.Canceled) {
			t.Errorf("a request that was withdrawn before: %v", err)
		}
		if s := l.Stats(); s.InFlight != [Classes]int{} || s.Waiting != [Classes]int{} {
			t.Errorf("left over: %+v", s)
		}
	})
}

// TestLimiterLosesNoPermit lets waits end in every way at once and counts.
func TestLimiterLosesNoPermit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := fixedLimiter(t, 5)
		var running, most int
		var mu sync.Mutex
		var all sync.WaitGroup
		for range 2000 {
			all.Go(func() {
				time.Sleep(rand.N(100 * time.Millisecond))
				ctx, cancel := context.WithTimeout(context.Background(), rand.N(50*time.Millisecond)+1)
				defer cancel()
				ctx, promote := WithPromotion(ctx)
				class := Class(rand.IntN(Classes))
				if rand.IntN(2) == 0 {
					go func() {
						time.Sleep(rand.N(20 * time.Millisecond))
						promote()
					}()
				}
				p, err := l.Acquire(ctx, nil, class, time.Now().Add(rand.N(50*time.Millisecond)))
				if err != nil {
					return
				}
				mu.Lock()
				running++
				most = max(most, running)
				mu.Unlock()
				time.Sleep(rand.N(time.Millisecond))
				mu.Lock()
				running--
				mu.Unlock()
				p.Release(Observation{})
			})
		}
		all.Wait()
		time.Sleep(time.Second)
		if most != 5 {
			t.Errorf("at most %d ran at once, want 5", most)
		}
		if s := l.Stats(); s.InFlight != [Classes]int{} || s.Waiting != [Classes]int{} {
			t.Errorf("left over: %+v", s)
		}
	})
}

func TestLimiterConfigIsRefusedNotRepaired(t *testing.T) {
	for _, cfg := range []Config{{Min: -1}, {Max: -1}, {Initial: -1}, {Min: 10, Max: 5}, {Initial: 3, Min: 4}, {Initial: 9, Max: 8}} {
		if _, err := New(cfg, nil); err == nil {
			t.Errorf("%+v is accepted", cfg)
		}
	}
	for _, cfg := range []Config{{}, {Max: 1}, {Max: 2000}, {Min: 100}, {Initial: 1000}} {
		l, err := New(cfg, nil)
		if err != nil {
			t.Errorf("%+v is refused: %v", cfg, err)
			continue
		}
		if got := l.Stats().Limit; got < 1 || cfg.Max > 0 && got > cfg.Max || got < cfg.Min {
			t.Errorf("%+v begins with %d", cfg, got)
		}
	}
}
