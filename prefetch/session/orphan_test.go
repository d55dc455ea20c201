package session

import (
	"fmt"
	"testing"
	"time"

	"github.com/pailfs/pailfs/prefetch/budget"
)

// handled opens a session by an open description, and announces some names in it.
func handled(t *testing.T, b *Book, now time.Time, worker int, handle uint64, shared bool, names int) Name {
	t.Helper()
	id, _, err := b.Open(now, ID(fmt.Sprint("w", worker)), Key{UID: 7, Worker: worker}, Params{Buffer: MaxBuffer, Handle: handle, Shared: shared})
	if err != nil {
		t.Fatal(err)
	}
	n := Name{Session: id, UID: 7, Handle: handle}
	if out, err := b.Preload(now, n, someNames(fmt.Sprint("folder", worker), names), false); err != nil || names > 0 && out.Accepted == 0 {
		t.Fatalf("%+v, %v", out, err)
	}
	return n
}

// gone reports whether a session has ended.
func gone(b *Book, n Name) bool { return b.sessions[n.Session] == nil }

// empty returns a book whose users may have few names and sessions.
func empty(names, sessions int64) *Book {
	limits := budget.DefaultLimits()
	limits[budget.Names], limits[budget.Sessions] = names, sessions
	return NewBook(Config{Budget: 1 << 40, Ledger: budget.New(limits, 0)})
}

func TestNamesOfAJobThatWasKilledGiveWay(t *testing.T) {
	b := empty(1<<20, 64)
	now := time.Unix(1e9, 0)
	dead := handled(t, b, now, 0, 1, true, 1000)
	other := handled(t, b, now, 1, 2, true, 0)
	if q, err := b.Quota(now, other); err != nil || q != 0 {
		t.Fatalf("beside a living job the quota is %d, %v", q, err)
	}
	b.Released(now, 1)
	if err := b.checkCharges(); err != nil {
		t.Error(err)
	}
	q, err := b.Quota(now, other)
	if err != nil || q < 300 {
		t.Errorf("beside a dead job the quota is %d, %v", q, err)
	}
	if gone(b, dead) {
		t.Error("it was ended before anybody wanted its room")
	}
	if out, err := b.Preload(now, other, someNames("new", 300), true); err != nil || out.Accepted != 300 || !gone(b, dead) {
		t.Errorf("%+v, %v, the dead job is gone: %v", out, err, gone(b, dead))
	}
	if err := b.checkCharges(); err != nil {
		t.Error(err)
	}
	if len(b.orphans.sessions) != 0 || len(b.orphans.yields) != 0 {
		t.Errorf("%d orphans are known, %v", len(b.orphans.sessions), b.orphans.yields)
	}
}

func TestSessionsOfJobsThatWereKilledGiveWayOldestFirst(t *testing.T) {
	b := empty(1<<20, 8) // three for one user
	now := time.Unix(1e9, 0)
	first, second := handled(t, b, now, 0, 1, true, 1), handled(t, b, now, 1, 2, true, 1)
	third := handled(t, b, now, 2, 3, true, 1)
	b.Released(now.Add(time.Second), 2)
	b.Released(now.Add(2*time.Second), 1)
	handled(t, b, now, 3, 4, true, 1)
	if !gone(b, second) || gone(b, first) || gone(b, third) {
		t.Errorf("gone: %v, %v, %v; want the second", gone(b, first), gone(b, second), gone(b, third))
	}
	if _, _, err := b.Open(now, "x", Key{UID: 8}, Params{Handle: 9}); err != nil || gone(b, first) {
		t.Errorf("another user: %v, the first of this one is gone: %v", err, gone(b, first))
	}
}

func TestWhoComesBackFindsItsSession(t *testing.T) {
	now := time.Unix(1e9, 0)
	for name, back := range map[string]func(b *Book, n Name) error{
		"open": func(b *Book, n Name) error {
			_, adopted, err := b.Open(now, "other", Key{UID: 7}, Params{Buffer: 10, Handle: 5, Shared: true})
			if adopted != 100 {
				return fmt.Errorf("%d were adopted", adopted)
			}
			return err
		},
		"call": func(b *Book, n Name) error {
			n.Handle = 5
			_, err := b.Renew(now, n)
			return err
		},
		"keep": func(b *Book, n Name) error {
			_, err := b.Close(now, n.Session, n.UID, true)
			return err
		},
	} {
		b := empty(1<<20, 8)
		n := handled(t, b, now, 0, 1, true, 100)
		b.Released(now, 1)
		if err := back(b, n); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		other := handled(t, b, now, 1, 2, true, 1000)
		if gone(b, n) {
			t.Errorf("%s: it gave way to another session", name)
		}
		if _, err := b.Close(now, other.Session, 7, false); err != nil {
			t.Fatal(err)
		}
		b.Expire(now.Add(DefaultLease - time.Second))
		if gone(b, n) {
			t.Errorf("%s: it ended before its lease", name)
		}
		if err := b.checkCharges(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestSessionWithoutAPlaceForItsStateEndsSoonAfterItsClient(t *testing.T) {
	now := time.Unix(1e9, 0)
	b := empty(1<<20, 64)
	placed, left := handled(t, b, now, 0, 1, true, 10), handled(t, b, now, 1, 2, false, 10)
	alive, unseen := handled(t, b, now, 2, 3, false, 10), handled(t, b, now, 3, 0, false, 0)
	if _, err := b.Renew(now, Name{Session: alive.Session, UID: 7, Handle: 4}); err != nil {
		t.Fatal(err)
	}
	for handle := range uint64(4) {
		b.Released(now, handle) // number four is open still
	}
	for _, step := range []struct {
		after time.Duration
		gone  bool
	}{{orphanLife, false}, {orphanLife + time.Second, true}} {
		b.Expire(now.Add(step.after))
		if gone(b, left) != step.gone || gone(b, placed) || gone(b, alive) || gone(b, unseen) {
			t.Errorf("after %v gone are: left %v, want %v; with a place %v, alive %v, unseen %v, want none",
				step.after, gone(b, left), step.gone, gone(b, placed), gone(b, alive), gone(b, unseen))
		}
	}
	if err := b.checkCharges(); err != nil {
		t.Error(err)
	}
}
