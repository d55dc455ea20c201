package budget

import (
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
)

// of returns a ledger with so much of every kind.
func of(total int64) *Ledger {
	var limits Limits
	for k := range limits {
		limits[k] = total
	}
	return New(limits, 1000)
}

// greed takes one after the other until there is no more, and returns how many it got.
func greed(l *Ledger, u User, k Kind) (n int64) {
	for l.Take(u, k, 1) == nil {
		n++
	}
	return n
}

func TestRootMayTakeAllAndOneUserThreeEighths(t *testing.T) {
	for uid, want := range map[uint32]int64{0: 800, 1000: 800, 2000: 300} {
		if got := greed(of(800), User{UID: uid}, Names); got != want {
			t.Errorf("user %d got %d of 800, want %d", uid, got, want)
		}
	}
}

func TestRootOfAContainerIsOneOfTheOthers(t *testing.T) {
	l := of(800)
	for _, uid := range []uint32{0, 1000} {
		if got, want := greed(l, User{UID: uid, Guest: true}, Calls), l.Use(Calls).Used; got == 0 || want > 600 {
			t.Errorf("user %d of a container got %d, %d of 800 are taken", uid, got, want)
		}
	}
	if got := l.Use(Calls).Used; got != 300+150 {
		t.Errorf("they got %d of 800, want 450: half of three quarters, and half of the rest", got)
	}
	if got := greed(l, User{}, Calls); got != 350 {
		t.Errorf("root got %d of the 800, want the 350 that are left", got)
	}
	if err := l.Take(User{Guest: true}, Calls, 1); err == nil || !strings.Contains(err.Error(), "not the daemon's own") {
		t.Errorf("root of a container is told %v", err)
	}
}

func TestOthersTogetherCannotLockRootOut(t *testing.T) {
	l := of(800)
	all := int64(0)
	for uid := range uint32(100) {
		all += greed(l, User{UID: 2000 + uid}, Calls)
	}
	if all > 600 || all < 590 {
		t.Errorf("a hundred users got %d of 800, want no more than 600, and about as much", all)
	}
	if got := greed(l, User{}, Calls); got < 200 {
		t.Errorf("root got %d of the 800, want the 200 that others may not have", got)
	}
}

func TestWhoComesLaterFindsSomething(t *testing.T) {
	l := of(1 << 20)
	last := greed(l, User{UID: 2000}, Names)
	for uid := uint32(2001); uid < 2008; uid++ {
		got := greed(l, User{UID: uid}, Names)
		if got < last/2-1 || got == 0 {
			t.Errorf("user %d got %d after one that got %d", uid, got, last)
		}
		last = got
	}
}

func TestWhatIsGivenBackCanBeTaken(t *testing.T) {
	l := of(80)
	n := greed(l, User{UID: 2000}, Jobs)
	l.Give(User{UID: 2000}, Jobs, n)
	if got := greed(l, User{UID: 2001}, Jobs); got != n {
		t.Errorf("got %d of what another gave back, want %d", got, n)
	}
	if u := l.Use(Jobs); u.Used != n || u.Users != 1 || u.Refused != 2 || u.Limit != 80 {
		t.Errorf("%+v", u)
	}
}

func TestKindsAreApart(t *testing.T) {
	l := of(80)
	greed(l, User{}, Sessions)
	for k := Sessions + 1; k < Kinds; k++ {
		if got := greed(l, User{UID: 2000}, k); got != 30 {
			t.Errorf("%v: %d, want 30", k, got)
		}
	}
}

func TestRefusalNamesKindValueLimitAndRemedy(t *testing.T) {
	for k := range Kinds {
		l := of(800)
		if err := l.Take(User{UID: 2000}, k, 100); err != nil {
			t.Fatal(err)
		}
		err := l.Take(User{UID: 2000}, k, 250)
		var e *Exceeded
		if !errors.As(err, &e) || e.Kind != k || e.Used != 100 || e.Wanted != 250 || e.Limit != 300 {
			t.Fatalf("%v: %#v", k, err)
		}
		for _, want := range []string{k.String(), "user 2000", "100", "250", "300", kinds[k].remedy} {
			if want == "" || !strings.Contains(err.Error(), want) {
				t.Errorf("%q does not say %q", err, want)
			}
		}
		if l.Use(k).Used != 100 {
			t.Errorf("%v: what was refused counts", k)
		}
	}
}

func TestLedgerAddsUpUnderManyUsers(t *testing.T) {
	l := of(10_000)
	var all sync.WaitGroup
	for uid := range uint32(16) {
		all.Go(func() {
			u := User{UID: uid / 2, Guest: uid%2 == 1}
			rng := rand.New(rand.NewPCG(uint64(uid), 3))
			var have [Kinds]int64
			for range 2000 {
				k := Kind(rng.IntN(int(Kinds)))
				if n := int64(rng.IntN(200)); rng.IntN(2) == 0 && l.Take(u, k, n) == nil {
					have[k] += n
				}
				if rng.IntN(2) == 0 && have[k] > 0 {
					n := rng.Int64N(have[k]) + 1
					l.Give(u, k, n)
					have[k] -= n
				}
				if u := l.Use(k); u.Used < 0 || u.Used > u.Limit {
					t.Errorf("%v: %+v", k, u)
				}
				if left := l.Left(u, k); left < 0 {
					t.Errorf("%v: %d left", k, left)
				}
			}
			for k, n := range have {
				l.Give(u, Kind(k), n)
			}
		})
	}
	all.Wait()
	for k := range Kinds {
		if u := l.Use(k); u.Used != 0 || u.Users != 0 {
			t.Errorf("%v: %+v is left", k, u)
		}
	}
}

func TestDefaultLimitsServeAThousandClients(t *testing.T) {
	if got := greed(Default(), User{}, Sessions); got < 1024 {
		t.Errorf("root may open %d sessions", got)
	}
}
