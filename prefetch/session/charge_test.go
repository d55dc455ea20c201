package session

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pailfs/pailfs/oss"
	"github.com/pailfs/pailfs/prefetch/budget"
)

// checkCharges returns an error if the ledger, in which nobody but the book writes, has
// other amounts than follow from what the book holds.
func (b *Book) checkCharges() error {
	var names int64
	for _, s := range b.sessions {
		names += streamCost * int64(max(len(s.streams)-1, 0))
		folders := map[*folder]bool{}
		for _, st := range s.streams {
			for u := range st.holders {
				names += nameCost + int64(len(u.name.last))
				folders[u.name.in] = true
			}
		}
		for f := range folders {
			names += folderCost + int64(len(f.path))
		}
	}
	for _, e := range b.entries {
		names += e.extra
	}
	if u := b.cfg.Ledger.Use(budget.Names); u.Used != names {
		return fmt.Errorf("%d bytes of names are charged, want %d", u.Used, names)
	}
	if u := b.cfg.Ledger.Use(budget.Sessions); u.Used != int64(len(b.sessions)) {
		return fmt.Errorf("%d sessions are charged, there are %d", u.Used, len(b.sessions))
	}
	used := map[*folder]bool{}
	for n := range b.entries {
		used[n.in] = true
	}
	if len(used) != len(b.folders) {
		return fmt.Errorf("%d folders are kept, %d are used", len(b.folders), len(used))
	}
	return nil
}

// small returns a book whose users may have few names and sessions, with a session of
// user 7.
func small(t *testing.T, names, sessions int64) (*Book, Name) {
	t.Helper()
	limits := budget.DefaultLimits()
	limits[budget.Names], limits[budget.Sessions] = names, sessions
	b := NewBook(Config{Budget: 1 << 40, Ledger: budget.New(limits, 0)})
	id, _, err := b.Open(time.Unix(1e9, 0), "first", Key{UID: 7}, Params{Buffer: MaxBuffer})
	if err != nil {
		t.Fatal(err)
	}
	return b, Name{Session: id, UID: 7}
}

// someNames returns n paths in a folder.
func someNames(in string, n int) []string {
	paths := make([]string, n)
	for i := range paths {
		paths[i] = fmt.Sprintf("%s/%06d", in, i)
	}
	return paths
}

func TestSessionsBeyondTheShareAreRefused(t *testing.T) {
	b, _ := small(t, 1<<20, 8)
	now := time.Unix(1e9, 0)
	var exceeded *budget.Exceeded
	opened := 1
	for worker := 1; worker < 10; worker++ {
		_, _, err := b.Open(now, ID(fmt.Sprint(worker)), Key{UID: 7, Worker: worker}, Params{})
		if err == nil {
			opened++
		} else if !errors.As(err, &exceeded) || exceeded.Kind != budget.Sessions {
			t.Fatal(err)
		}
	}
	if opened != 3 {
		t.Errorf("%d of 8 sessions were opened by one user, want 3", opened)
	}
	if _, _, err := b.Open(now, "again", Key{UID: 7}, Params{}); err != nil {
		t.Errorf("a session that is there cannot be opened again: %v", err)
	}
	if _, _, err := b.Open(now, "other", Key{UID: 8}, Params{}); err != nil {
		t.Errorf("another user: %v", err)
	}
	b.Expire(now.Add(DefaultLease + time.Second))
	if u := b.cfg.Ledger.Use(budget.Sessions); u.Used != 0 {
		t.Errorf("expired sessions count: %+v", u)
	}
	if err := b.checkCharges(); err != nil {
		t.Error(err)
	}
}

func TestNamesBeyondTheShareAreDroppedThenRefused(t *testing.T) {
	b, n := small(t, 1<<20, 8)
	now := time.Unix(1e9, 0)
	paths := someNames("folder", 1000)
	out, err := b.Preload(now, n, paths, false)
	if err != nil || out.Accepted < 300 || out.Accepted > 384 || out.Accepted+out.Dropped != len(paths) {
		t.Fatalf("%+v, %v", out, err)
	}
	if out.NoRoom != out.Dropped {
		t.Errorf("%d were dropped, %d for want of room", out.Dropped, out.NoRoom)
	}
	for _, patient := range []bool{false, true} {
		rest, err := b.Preload(now, n, paths[out.Accepted:], patient)
		if want := (Outcome{Dropped: out.Dropped, NoRoom: out.NoRoom}); err != nil || !patient && rest != want || patient && rest != (Outcome{}) {
			t.Errorf("announced without room, patient %v: %+v, %v", patient, rest, err)
		}
	}
	if implicit, noRoom, err := b.Active(now, n, append(paths[out.Accepted:out.Accepted+3:out.Accepted+3], paths[0])); err != nil || implicit != 0 || noRoom != 3 {
		t.Errorf("used without room: %d, %d, %v, want 3 for which there is none", implicit, noRoom, err)
	}
	if files, err := b.Status(now, n, paths[:1]); err != nil || files[0].State != "active" {
		t.Errorf("what was held and comes after those is %v, %v", files, err)
	}
	if q, err := b.Quota(now, n); err != nil || q != 0 {
		t.Errorf("the quota is %d, %v, and there is no room", q, err)
	}
	if _, _, err := b.Release(now, n, paths[:200]); err != nil {
		t.Fatal(err)
	}
	if q, err := b.Quota(now, n); err != nil || q < 150 || q > 200 {
		t.Errorf("the quota is %d, %v, after 200 were released", q, err)
	}
	if out, err := b.Preload(now, n, paths[out.Accepted:][:100], true); err != nil || out.Accepted != 100 {
		t.Errorf("with room again: %+v, %v", out, err)
	}
	if err := b.checkCharges(); err != nil {
		t.Error(err)
	}
	if _, err := b.Close(now, n.Session, n.UID, false); err != nil {
		t.Fatal(err)
	}
	if u := b.cfg.Ledger.Use(budget.Names); u.Used != 0 {
		t.Errorf("a session that was closed is charged %+v", u)
	}
}

func TestQuotaIsWhatMayBeAnnounced(t *testing.T) {
	now := time.Unix(1e9, 0)
	for _, length := range []int{1, 60, 200} {
		b, n := small(t, 1<<20, 8)
		next := 0
		announce := func(count int) int {
			paths := make([]string, count)
			for i := range paths {
				next++
				paths[i] = fmt.Sprintf("folder-%d/%0*d", next/50, length, next)
			}
			out, err := b.Preload(now, n, paths, false)
			if err != nil {
				t.Fatal(err)
			}
			return out.Accepted
		}
		quota := func() int {
			q, err := b.Quota(now, n)
			if err != nil {
				t.Fatal(err)
			}
			return q
		}
		announce(20) // how long names are is not known before
		for q := quota(); q > 0; q = quota() {
			if got := announce(min(q, 100)); got < min(q, 100)*9/10 {
				t.Errorf("names of %d bytes: %d were taken, the quota was %d", length, got, q)
			}
		}
		if got := announce(1000); got > 40 {
			t.Errorf("names of %d bytes: the quota was 0 and %d were taken", length, got)
		}
		// Nothing is outstanding, and there is room for nothing.
		n.Index = 1
		if q := quota(); q != 0 {
			t.Errorf("another stream may announce %d where nothing fits", q)
		}
	}
}

func TestWhoHasAnnouncedAllItMayCanOpenAnotherSession(t *testing.T) {
	b, n := small(t, 1<<20, 16)
	now := time.Unix(1e9, 0)
	if out, err := b.Preload(now, n, someNames("folder", 1000), false); err != nil || out.NoRoom == 0 {
		t.Fatalf("%+v, %v", out, err)
	}
	id, _, err := b.Open(now, "second", Key{UID: 7, Worker: 1}, Params{Buffer: 100})
	if err != nil {
		t.Fatalf("names keep a session from being opened: %v", err)
	}
	second := Name{Session: id, UID: 7}
	if q, err := b.Quota(now, second); err != nil || q != 0 {
		t.Errorf("it may announce %d, %v", q, err)
	}
	if _, _, err := b.Release(now, n, someNames("folder", 100)); err != nil {
		t.Fatal(err)
	}
	if out, err := b.Preload(now, second, someNames("other", 50), true); err != nil || out.Accepted != 50 {
		t.Errorf("with room it may not announce: %+v, %v", out, err)
	}
	if err := b.checkCharges(); err != nil {
		t.Error(err)
	}
}

func TestNameThatNeverFitsIsToldSo(t *testing.T) {
	b, n := small(t, 8<<10, 8)
	now := time.Unix(1e9, 0)
	for _, patient := range []bool{false, true} {
		_, err := b.Preload(now, n, []string{strings.Repeat("x/", 1000)}, patient)
		if !errors.Is(err, ErrNeverFits) || !strings.Contains(err.Error(), "3072") {
			t.Errorf("patient %v: %v", patient, err)
		}
	}
}

func TestAskingAfterStreamsMakesNone(t *testing.T) {
	b, n := small(t, 1<<20, 8)
	for n.Index = range 10_000 {
		if q, err := b.Quota(time.Unix(1e9, 0), n); err != nil || q == 0 {
			t.Fatal(q, err)
		}
	}
	if len(b.order) != 0 {
		t.Errorf("%d streams were made", len(b.order))
	}
	made := 0
	for n.Index = range 10_000 {
		if out, err := b.Preload(time.Unix(1e9, 0), n, []string{"x"}, false); err == nil && out.Accepted > 0 {
			made++
		}
	}
	if made > 384 || len(b.order) > 384 {
		t.Errorf("%d streams were made", made)
	}
}

func TestQueuesKeepNothingOfWhatIsGone(t *testing.T) {
	b, n := small(t, 1<<20, 8)
	now := time.Unix(1e9, 0)
	// The first waits for its objects, and all others behind it.
	if _, err := b.Preload(now, n, []string{"first"}, false); err != nil {
		t.Fatal(err)
	}
	for i := range 10_000 {
		path := []string{fmt.Sprint(i)}
		if _, err := b.Preload(now, n, path, false); err != nil {
			t.Fatal(err)
		}
		if _, _, err := b.Active(now, n, path); err != nil {
			t.Fatal(err)
		}
		if _, _, err := b.Release(now, n, path); err != nil {
			t.Fatal(err)
		}
		b.TakeGone()
	}
	st := b.sessions[n.Session].streams[0]
	for _, q := range []*fifo{&st.urgent, &st.queue, &st.unresolved} {
		if len(q.items)-q.first > 100 {
			t.Errorf("%d holders are queued, there is one", len(q.items)-q.first)
		}
	}
	if e := b.NextResolve(); e == nil || e.Path() != "first" {
		t.Errorf("the first was lost: %v", e)
	}
}

func TestFolderOfTooManyFilesIsStreamed(t *testing.T) {
	b, n := small(t, 1<<20, 8)
	now := time.Unix(1e9, 0)
	if _, err := b.Preload(now, n, []string{"all"}, false); err != nil {
		t.Fatal(err)
	}
	e := b.NextResolve()
	extra := b.cfg.Ledger.Left(e.Payer(), budget.Names)
	if err := b.cfg.Ledger.Take(e.Payer(), budget.Names, extra); err != nil {
		t.Fatal(err)
	}
	b.Resolved(e, make([]oss.Object, 10), extra, b.cfg.Ledger.Take(e.Payer(), budget.Names, 1))
	if e.State() != Streamed || len(e.Objects) != 0 {
		t.Errorf("it is %v with %d objects", e.State(), len(e.Objects))
	}
	if err := b.checkCharges(); err != nil {
		t.Error(err)
	}
}

func TestWhatIsResolvedTooLateIsNotCharged(t *testing.T) {
	b, n := small(t, 1<<20, 8)
	now := time.Unix(1e9, 0)
	if _, err := b.Preload(now, n, []string{"all"}, false); err != nil {
		t.Fatal(err)
	}
	e := b.NextResolve()
	if _, _, err := b.Release(now, n, []string{"all"}); err != nil {
		t.Fatal(err)
	}
	for _, e := range b.TakeGone() {
		b.Freed(e)
	}
	if err := b.cfg.Ledger.Take(e.Payer(), budget.Names, 500); err != nil {
		t.Fatal(err)
	}
	b.Resolved(e, make([]oss.Object, 10), 500, nil)
	if err := b.checkCharges(); err != nil {
		t.Error(err)
	}
}

func TestErrorsAreKeptShortWithTheirCause(t *testing.T) {
	err := Brief(fmt.Errorf("look up %q: %w", strings.Repeat("d/", 5000), oss.ErrNotFound))
	if len(err.Error()) > maxFailure+3 || !errors.Is(err, oss.ErrNotFound) {
		t.Errorf("%d bytes: %v", len(err.Error()), err)
	}
}
