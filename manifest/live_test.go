package manifest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/pailfs/pailfs/oss"
)

// numbered returns n keys under prefix that sort by their number.
func numbered(prefix string, n int) []string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = fmt.Sprintf("%s%06d.jpg", prefix, i)
	}
	return keys
}

// newNumberedBucket returns a bucket of numbered keys; it is quicker than
// newFakeBucket for many.
func newNumberedBucket(prefix string, n int) *fakeBucket {
	b := newFakeBucket()
	b.mu.keys = numbered(prefix, n)
	for i, key := range b.mu.keys {
		b.mu.objects[key] = oss.ListedObject{Object: oss.Object{
			Key: key, ETag: fmt.Sprintf("%032X", i), Size: int64(100_000 + i), ModTime: time.Unix(1_700_000_000+int64(i), 0).UTC(),
		}}
	}
	return b
}

// mustFind looks a name up.
func mustFind(t *testing.T, l *Live, dir, name string) Entry {
	t.Helper()
	e, _, err := l.Lookup(t.Context(), dir, name)
	if err != nil {
		t.Fatalf("lookup %q in %q: %v", name, dir, err)
	}
	return e
}

func mustNotFind(t *testing.T, l *Live, dir, name string) {
	t.Helper()
	if e, _, err := l.Lookup(t.Context(), dir, name); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("lookup %q in %q: %+v, %v", name, dir, e, err)
	}
}

// waitForFlights waits until nothing is asked ahead any more.
func waitForFlights(t *testing.T, l *Live) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		l.mu.Lock()
		flights := 0
		for _, d := range l.mu.directories {
			flights += len(d.flights)
		}
		l.mu.Unlock()
		if flights == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d requests are still under way", flights)
		}
	}
}

func assertRequests(t *testing.T, b *fakeBucket, want int, after string) {
	t.Helper()
	if got := b.requests(); got != want {
		t.Errorf("%d requests after %s, want %d", got, after, want)
	}
}

func TestLookupReturnsTheVersionThatWasListed(t *testing.T) {
	b := newFakeBucket("data/a/x", "data/b")
	want := b.put("data/b", 77)
	l := newTestLive(t, LiveConfig{Prefix: "data/"}, b)
	if got := mustFind(t, l, "", "b"); got.Object != want || got.Kind != File || got.Name != "b" {
		t.Errorf("found %+v, want %+v", got, want)
	}
	if got := mustFind(t, l, "", "a"); got.Object.Key != "data/a/" || got.Kind != Directory || got.Name != "a" {
		t.Errorf("found %+v", got)
	}
	mustNotFind(t, l, "", "data")
}

func TestListedDirectoryAnswersLookupsWithoutARequest(t *testing.T) {
	b := newNumberedBucket("train/", 2500)
	l := newTestLive(t, LiveConfig{}, b)
	mustFind(t, l, "", "train")
	assertRequests(t, b, 1, "a lookup in the root")
	entries := readAll(t, l, "train", 100)
	if len(entries) != 2500 {
		t.Fatalf("%d entries", len(entries))
	}
	waitForFlights(t, l)
	if got := b.requests(); got < 3 || got > 4 {
		t.Errorf("%d requests after reading 2500 entries", got)
	}
	for i, e := range entries {
		if got := mustFind(t, l, "train", e.Name); got != withoutCursor(e) {
			t.Fatalf("entry %d: %+v, looked up %+v", i, e, got)
		}
	}
	for _, name := range []string{"0", "000100", "absent", "zzz", "000100.jpg.txt"} {
		mustNotFind(t, l, "train", name)
	}
	readAll(t, l, "train", 1000)
	assertRequests(t, b, 0, "looking every entry up, five absent names, and reading again")
}

func TestStatOfManyFilesInOneDirectoryCostsOneRequest(t *testing.T) {
	for _, n := range []int{1, 999, 1000} {
		b := newNumberedBucket("d/", n)
		l := newTestLive(t, LiveConfig{}, b)
		names := numbered("", n)
		slices.Reverse(names) // any order
		for _, name := range names {
			mustFind(t, l, "d", name)
		}
		mustNotFind(t, l, "d", "absent")
		assertRequests(t, b, 1, fmt.Sprintf("%d lookups", n))
	}
}

func TestLookupInALargeDirectoryAsksForThePageThatBeginsAtTheName(t *testing.T) {
	b := newNumberedBucket("", 100_000)
	l := newTestLive(t, LiveConfig{}, b)
	mustFind(t, l, "", "050000.jpg")
	assertRequests(t, b, 2, "the first lookup: one page shows that the directory is large")
	mustFind(t, l, "", "080000.jpg")
	asked := b.asked()
	if len(asked) != 1 || asked[0].Delimiter != "/" || asked[0].MaxKeys != 1000 || asked[0].StartAfter >= "080000.jpg" || asked[0].StartAfter < "079999.jpg" {
		t.Errorf("asked %+v", asked)
	}
	for i := 80_001; i < 80_999; i++ { // whether the last has a directory beside it is on the next page
		mustFind(t, l, "", fmt.Sprintf("%06d.jpg", i))
	}
	assertRequests(t, b, 0, "998 neighbours")
	mustFind(t, l, "", "080999.jpg")
	assertRequests(t, b, 1, "the last of the page")
	for i := 81_000; i < 81_900; i++ {
		mustFind(t, l, "", fmt.Sprintf("%06d.jpg", i))
	}
	mustNotFind(t, l, "", "081500.png")
	assertRequests(t, b, 0, "neighbours on that page")
}

func TestDirectoryBehindManyNamesThatBeginLikeIt(t *testing.T) {
	// "name" < "name-0000" … < "name/": the directory is two pages behind.
	b := newFakeBucket(numbered("name-", 2500)...)
	b.put("name/x", 1)
	for _, key := range numbered("a", 1001) {
		b.put(key, 1)
	}
	l := newTestLive(t, LiveConfig{}, b)
	mustFind(t, l, "", "a000000.jpg")
	b.requests()
	if e := mustFind(t, l, "", "name"); e.Kind != Directory {
		t.Errorf("found %+v", e)
	}
	assertRequests(t, b, 2, "looking up the directory")
	b.put("name", 5)
	l.Forget("", "name")
	if e := mustFind(t, l, "", "name"); e.Kind != Directory {
		t.Errorf("found %+v", e)
	}
	if e := mustFind(t, l, "", "name%~file"); e.Kind != File || e.Object.Size != 5 {
		t.Errorf("found %+v", e)
	}
	if got := b.requests(); got > 4 {
		t.Errorf("%d requests", got)
	}
}

func TestReadDirOfAnObjectFollowedByManyNamesThatBeginLikeIt(t *testing.T) {
	b := newFakeBucket(numbered("a-", 5000)...)
	b.put("a", 1)
	l := newTestLive(t, LiveConfig{}, b)
	entries, _, err := l.ReadDir(t.Context(), "", "", 10)
	if err != nil || len(entries) != 10 || entries[0].Name != "a" {
		t.Fatalf("%v, %v", names(entries), err)
	}
	// The first page, the one after it, and the question whether there is a/.
	if got := b.requests(); got > 4 {
		t.Errorf("%d requests before the first entries", got)
	}
	if got := readAll(t, l, "", 1000); len(got) != 5001 {
		t.Errorf("%d entries", len(got))
	}
	if got := b.requests(); got > 4 {
		t.Errorf("%d requests for the other four pages", got)
	}
}

func TestFirstEntriesComeAfterOnePageAndTheNextIsAskedForAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newNumberedBucket("", 3500)
		b.latency = 100 * time.Millisecond
		l := newTestLive(t, LiveConfig{}, b)
		defer l.Close()
		began := time.Now()
		entries, _, err := l.ReadDir(t.Context(), "", "", 100)
		if err != nil || len(entries) != 100 || time.Since(began) != 100*time.Millisecond {
			t.Fatalf("%d entries after %v, %v", len(entries), time.Since(began), err)
		}
		synctest.Wait()
		assertRequests(t, b, 2, "the first entries")
		time.Sleep(200 * time.Millisecond)
		// A slow reader never waits; a reader that waits for nothing else takes one
		// request after another.
		cursor := entries[len(entries)-1].Cursor
		seen := len(entries)
		for {
			before := time.Now()
			entries, _, err := l.ReadDir(t.Context(), "", cursor, 100)
			if err != nil {
				t.Fatal(err)
			}
			if waited := time.Since(before); waited > 0 {
				t.Errorf("a reader slower than the store waited %v after %d entries", waited, seen)
			}
			if len(entries) == 0 {
				break
			}
			seen += len(entries)
			cursor = entries[len(entries)-1].Cursor
			time.Sleep(20 * time.Millisecond)
		}
		if seen != 3500 {
			t.Errorf("%d entries", seen)
		}
		assertRequests(t, b, 2, "the rest of 3500 entries")
	})
}

func TestConcurrentLookupsShareOneRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newNumberedBucket("d/", 800)
		b.latency = 50 * time.Millisecond
		l := newTestLive(t, LiveConfig{}, b)
		defer l.Close()
		var g sync.WaitGroup
		for i := range 800 {
			g.Go(func() {
				if _, _, err := l.Lookup(t.Context(), "d", fmt.Sprintf("%06d.jpg", i)); err != nil {
					t.Error(err)
				}
			})
		}
		g.Wait()
		assertRequests(t, b, 1, "800 lookups at once")
	})
}

func TestConcurrentLookupsOfNeighboursInALargeDirectoryShareRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newNumberedBucket("", 100_000)
		b.latency = 50 * time.Millisecond
		l := newTestLive(t, LiveConfig{}, b)
		defer l.Close()
		mustFind(t, l, "", "000001.jpg")
		b.requests()
		var g sync.WaitGroup
		for i := range 64 {
			g.Go(func() {
				time.Sleep(time.Duration(i) * time.Microsecond)
				if _, _, err := l.Lookup(t.Context(), "", fmt.Sprintf("%06d.jpg", 40_100+i)); err != nil {
					t.Error(err)
				}
			})
		}
		g.Wait()
		assertRequests(t, b, 1, "64 neighbours at once")
	})
}

func TestNamesAreBelievedForTheirTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newFakeBucket("a", "d/x")
		b.latency = time.Second
		l := newTestLive(t, LiveConfig{TTL: 10 * time.Second}, b)
		defer l.Close()
		began := time.Now()
		_, valid, err := l.Lookup(t.Context(), "", "a")
		if err != nil || !time.Time(valid).Equal(began.Add(10*time.Second)) {
			t.Errorf("valid until %v after the request was sent, %v", time.Time(valid).Sub(began), err)
		}
		b.requests()
		want := b.put("a", 99)
		b.put("new", 1)
		b.remove("d/x")
		time.Sleep(9*time.Second - 1) // ten since the request was sent
		if e := mustFind(t, l, "", "a"); e.Object == want {
			t.Error("the new version is seen early")
		}
		mustNotFind(t, l, "", "new") // the whole directory is known
		assertRequests(t, b, 0, "lookups within the TTL")
		time.Sleep(time.Nanosecond)
		if e := mustFind(t, l, "", "a"); e.Object != want {
			t.Errorf("after the TTL %+v is found, want %+v", e.Object, want)
		}
		mustFind(t, l, "", "new")
		mustNotFind(t, l, "", "d")
		assertRequests(t, b, 1, "lookups after the TTL")
	})
}

func TestAbsenceInAPartOfADirectoryIsBelievedForItsOwnTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newNumberedBucket("", 5000)
		l := newTestLive(t, LiveConfig{TTL: time.Minute, NegativeTTL: 2 * time.Second}, b)
		defer l.Close()
		mustFind(t, l, "", "000000.jpg")
		b.requests()
		began := time.Now()
		_, valid, err := l.Lookup(t.Context(), "", "003000.txt")
		if !errors.Is(err, fs.ErrNotExist) || !time.Time(valid).Equal(began.Add(2*time.Second)) {
			t.Errorf("absent for %v, %v", time.Time(valid).Sub(began), err)
		}
		assertRequests(t, b, 1, "an absent name")
		time.Sleep(2*time.Second - 1)
		mustNotFind(t, l, "", "003000.txt")
		mustNotFind(t, l, "", "003001.txt")
		assertRequests(t, b, 0, "absent names within the negative TTL")
		time.Sleep(time.Nanosecond)
		b.put("003000.txt", 1)
		mustFind(t, l, "", "003000.txt")
		assertRequests(t, b, 1, "an absent name after the negative TTL")
		time.Sleep(30 * time.Second)
		mustFind(t, l, "", "003001.jpg")
		assertRequests(t, b, 0, "a name that is there, within the TTL")
		mustNotFind(t, l, "", "003001.txt")
		assertRequests(t, b, 1, "an absent name beside it")
	})
}

// An object's absence and that of a directory of its name may come from pages of
// different age; the older one counts.
func TestAbsenceIsAsOldAsItsOldestHalf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newFakeBucket(append(numbered("n-", 1500), numbered("a", 1000)...)...)
		l := newTestLive(t, LiveConfig{TTL: time.Minute, NegativeTTL: 10 * time.Second}, b)
		defer l.Close()
		mustFind(t, l, "", "a000000.jpg")
		began := time.Now()
		mustNotFind(t, l, "", "n.x") // asks for the page that would hold n/
		time.Sleep(4 * time.Second)
		_, valid, err := l.Lookup(t.Context(), "", "n")
		if !errors.Is(err, fs.ErrNotExist) || !time.Time(valid).Equal(began.Add(10*time.Second)) {
			t.Errorf("absent for %v, %v", time.Time(valid).Sub(began), err)
		}
	})
}

func TestFileIsAsOldAsTheAbsenceOfADirectoryBesideIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newFakeBucket(append(numbered("n-", 1500), numbered("a", 1000)...)...)
		b.put("n", 1)
		l := newTestLive(t, LiveConfig{TTL: time.Minute}, b)
		defer l.Close()
		mustFind(t, l, "", "a000000.jpg")
		began := time.Now()
		mustNotFind(t, l, "", "n.x")
		time.Sleep(4 * time.Second)
		_, valid, err := l.Lookup(t.Context(), "", "n")
		if err != nil || !time.Time(valid).Equal(began.Add(time.Minute)) {
			t.Errorf("valid for %v, %v", time.Time(valid).Sub(began), err)
		}
	})
}

func TestForgetMakesTheNextLookupAsk(t *testing.T) {
	for _, n := range []int{10, 5000} {
		t.Run(fmt.Sprintf("n=%d", n), func(t *testing.T) {
			b := newNumberedBucket("", n)
			l := newTestLive(t, LiveConfig{}, b)
			readAll(t, l, "", 1000)
			waitForFlights(t, l)
			want := b.put("000005.jpg", 1234)
			b.requests()
			if e := mustFind(t, l, "", "000005.jpg"); e.Object == want {
				t.Error("the new version is seen before its time")
			}
			l.Forget("", "000005.jpg")
			l.Forget("", "absent")
			l.Forget("no such directory", "x")
			if e := mustFind(t, l, "", "000005.jpg"); e.Object != want {
				t.Errorf("after Forget %+v is found, want %+v", e.Object, want)
			}
			assertRequests(t, b, 1, "Forget and a lookup")
			if got := readAll(t, l, "", 1000); len(got) != n {
				t.Errorf("%d entries, want %d", len(got), n)
			}
			if got := b.requests(); got > 1 {
				t.Errorf("%d requests for the rest of the directory", got)
			}
			assertAccounts(fatalf{t}, l)
		})
	}
}

// fatalf is a test for assertAccounts.
type fatalf struct{ *testing.T }

func TestAnswerOlderThanForgetIsNotKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newFakeBucket("a")
		b.latency = time.Second
		l := newTestLive(t, LiveConfig{}, b)
		defer l.Close()
		var g sync.WaitGroup
		lookup := func() {
			if _, _, err := l.Lookup(t.Context(), "", "a"); err != nil {
				t.Error(err)
			}
		}
		g.Go(lookup)
		time.Sleep(500 * time.Millisecond)
		l.Forget("", "a")
		g.Go(lookup)
		synctest.Wait()
		assertRequests(t, b, 2, "a lookup, Forget and a lookup")
		time.Sleep(600 * time.Millisecond) // the first has been answered, the second not
		want := b.put("a", 5)
		if e := mustFind(t, l, "", "a"); e.Object != want {
			t.Errorf("found %+v, want %+v", e.Object, want)
		}
		g.Wait()
	})
}

func TestFailurePassesUpAndKnownNamesStay(t *testing.T) {
	b := newNumberedBucket("d/", 5000)
	l := newTestLive(t, LiveConfig{}, b)
	mustFind(t, l, "d", "000000.jpg")
	throttled := fmt.Errorf("list: %w", oss.ErrUnavailable)
	b.failWith(throttled)
	mustFind(t, l, "d", "000500.jpg")
	mustNotFind(t, l, "d", "000500.png")
	if _, _, err := l.Lookup(t.Context(), "d", "003000.jpg"); !errors.Is(err, oss.ErrUnavailable) || errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a lookup that asks: %v", err)
	}
	entries, _, err := l.ReadDir(t.Context(), "d", "", 2000)
	if err != nil || len(entries) != 999 {
		t.Errorf("%d known entries, %v", len(entries), err)
	}
	if _, _, err := l.ReadDir(t.Context(), "d", entries[len(entries)-1].Cursor, 10); !errors.Is(err, oss.ErrUnavailable) {
		t.Errorf("reading on: %v", err)
	}
	if _, _, err := l.ReadDir(t.Context(), "e", "", 10); !errors.Is(err, oss.ErrUnavailable) {
		t.Errorf("reading an unknown directory: %v", err)
	}
	b.failWith(nil)
	mustFind(t, l, "d", "003000.jpg")
	if got := readAll(t, l, "d", 1000); len(got) != 5000 {
		t.Errorf("%d entries after the failure", len(got))
	}
	if got := testutil.ToFloat64(l.metrics.failures); got < 3 {
		t.Errorf("%v failures are counted", got)
	}
}

func TestCallerWhoLeavesCancelsARequestNobodyElseWaitsFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newFakeBucket("a")
		b.latency = time.Hour
		l := newTestLive(t, LiveConfig{}, b)
		defer l.Close()
		ctx, cancel := context.WithCancel(t.Context())
		alone := make(chan error)
		go func() {
			_, _, err := l.Lookup(ctx, "", "a")
			alone <- err
		}()
		synctest.Wait()
		cancel()
		if err := <-alone; !errors.Is(err, context.Canceled) {
			t.Errorf("the caller got %v", err)
		}
		l.running.Wait() // does not take an hour
		ctx, cancel = context.WithCancel(t.Context())
		together := make(chan error)
		for _, ctx := range []context.Context{ctx, t.Context()} {
			go func() {
				_, _, err := l.Lookup(ctx, "", "a")
				together <- err
			}()
		}
		synctest.Wait()
		cancel()
		if err := <-together; !errors.Is(err, context.Canceled) {
			t.Errorf("the first caller got %v", err)
		}
		if err := <-together; err != nil {
			t.Errorf("the second caller got %v", err)
		}
		assertRequests(t, b, 2, "three callers")
	})
}

func TestCloseEndsWhatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newFakeBucket("a")
		b.latency = time.Hour
		l := newTestLive(t, LiveConfig{}, b)
		waiting := make(chan error)
		go func() {
			_, _, err := l.Lookup(t.Context(), "", "a")
			waiting <- err
		}()
		synctest.Wait()
		go func() { _ = l.Close() }()
		if err := <-waiting; !errors.Is(err, fs.ErrClosed) {
			t.Errorf("who waited got %v", err)
		}
		if _, _, err := l.ReadDir(t.Context(), "", "", 1); !errors.Is(err, fs.ErrClosed) {
			t.Errorf("who came later got %v", err)
		}
	})
}

func TestEmptyRootExistsAndEmptyDirectoryDoesNot(t *testing.T) {
	for _, prefix := range []string{"", "some/prefix/"} {
		b := newFakeBucket("other")
		b.remove("other")
		l := newTestLive(t, LiveConfig{Prefix: prefix}, b)
		if entries, _, err := l.ReadDir(t.Context(), "", "", 10); err != nil || len(entries) != 0 {
			t.Errorf("root under %q: %v, %v", prefix, names(entries), err)
		}
		began := time.Now()
		_, valid, err := l.ReadDir(t.Context(), "d", "", 10)
		if !errors.Is(err, fs.ErrNotExist) || time.Time(valid).Before(began) || time.Time(valid).Sub(began) > 6*time.Second {
			t.Errorf("d under %q: valid for %v, %v", prefix, time.Time(valid).Sub(began), err)
		}
	}
}

func TestMarkersMakeDirectoriesAndOnlyFullOnesAreShown(t *testing.T) {
	b := newFakeBucket()
	b.put("empty/", 0)
	b.put("full/", 3)
	b.put("both//", 0)
	l := newTestLive(t, LiveConfig{}, b)
	if got, want := names(readAll(t, l, "", 10)), []string{"both", "empty", "full"}; !slices.Equal(got, want) {
		t.Errorf("root shows %q, want %q", got, want)
	}
	if got := readAll(t, l, "empty", 10); len(got) != 0 {
		t.Errorf("empty shows %q", names(got))
	}
	full := readAll(t, l, "full", 10)
	if len(full) != 1 || full[0].Name != "%~" || full[0].Object.Key != "full/" || full[0].Object.Size != 3 || full[0].Kind != File {
		t.Errorf("full shows %+v", full)
	}
	if got := names(readAll(t, l, "both", 10)); !slices.Equal(got, []string{"%~"}) {
		t.Errorf("both shows %q", got)
	}
	if got := readAll(t, l, "both/%~", 10); len(got) != 0 {
		t.Errorf("both/%%~ shows %q", names(got))
	}
}

func TestOwnKeysAreHidden(t *testing.T) {
	b := newFakeBucket(".pailfs/manifests/1", ".pailfs", ".pailfsx/y", "a/.pailfs/z")
	l := newTestLive(t, LiveConfig{}, b)
	if got, want := names(readAll(t, l, "", 10)), []string{".pailfs", ".pailfsx", "a"}; !slices.Equal(got, want) {
		t.Errorf("root shows %q, want %q", got, want)
	}
	if e := mustFind(t, l, "", ".pailfs"); e.Kind != File {
		t.Errorf("found %+v", e)
	}
	mustNotFind(t, l, ".pailfs", "manifests")
	if _, _, err := l.ReadDir(t.Context(), ".pailfs", "", 10); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("reading .pailfs: %v", err)
	}
	mustFind(t, l, "a/.pailfs", "z")
	if p := l.Problems(); p.Count != 0 {
		t.Errorf("problems %+v", p)
	}
}

func TestOwnKeysBelowTheMountedPrefixAreHidden(t *testing.T) {
	b := newFakeBucket("p/.pailfs/manifests/1", "p/.pailfs/manifests/latest", "p/a", "p/b/.pailfs/x")
	b.symlink("p/link", "p/.pailfs/manifests/latest")
	l := newTestLive(t, LiveConfig{Prefix: "p/"}, b)
	if got, want := names(readAll(t, l, "", 10)), []string{"a", "b", "link"}; !slices.Equal(got, want) {
		t.Errorf("root shows %q, want %q", got, want)
	}
	mustNotFind(t, l, "", ".pailfs")
	mustNotFind(t, l, ".pailfs", "manifests")
	mustFind(t, l, "b/.pailfs", "x")
	if _, err := l.ReadLink(t.Context(), mustFind(t, l, "", "link")); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("reading the link: %v", err)
	}
}

func TestProblemsSayWhatBecameOfKeys(t *testing.T) {
	long := strings.Repeat("x", 256)
	b := newFakeBucket("a", "a/b", "c//d", long, "e/\xff/../f", "g\x00\xff")
	l := newTestLive(t, LiveConfig{}, b)
	for range 2 {
		readAll(t, l, "", 10)
		readAll(t, l, "c", 10)
		readAll(t, l, "e/\xff", 10)
		l.Forget("", "a")
	}
	got := l.Problems()
	slices.SortFunc(got.Examples, func(a, b Problem) int { return strings.Compare(a.Key, b.Key) })
	want := Problems{Count: 5, Examples: []Problem{
		{`"e/\xff/../"`, `rule 2: this name means a directory to Linux; shown as "..%~"`},
		{`"g\x00\xff"`, `rule 2: NUL or a reserved ending in the name; shown as "g%00\xff%~"`},
		{"a", `rule 3: an object beside a directory of the same name; shown as "a%~file"`},
		{"c//", `rule 2: an empty name between slashes; shown as "%~"`},
		{long, "rule 4: the name is longer than 255 bytes; not shown"},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	mustFind(t, l, "e/\xff/..%~", "f")
}

func TestProblemsAreBounded(t *testing.T) {
	p := newProblems()
	for i := range maxProblems + 100 {
		p.add(fmt.Sprint(i), "reason")
	}
	if r := p.report(); r.Count != maxProblems || len(r.Examples) != maxExamples {
		t.Errorf("%d problems, %d examples", r.Count, len(r.Examples))
	}
}

func TestMemoryIsBounded(t *testing.T) {
	b := newNumberedBucket("d/", 20_000)
	const limit = 300_000
	l := newTestLive(t, LiveConfig{MaxBytes: limit}, b)
	for range 2 {
		if got := len(readAll(t, l, "d", 500)); got != 20_000 {
			t.Fatalf("%d entries", got)
		}
		l.mu.Lock()
		bytes := l.mu.bytes
		l.mu.Unlock()
		// One page may be kept beyond the limit.
		if bytes > limit+100_000 || bytes < limit/2 {
			t.Errorf("%d bytes are held, the limit is %d", bytes, limit)
		}
	}
	assertAccounts(fatalf{t}, l)
	if got := testutil.ToFloat64(l.metrics.evicted); got < 20_000 {
		t.Errorf("%v entries were evicted", got)
	}
}

func TestWhatHasExpiredIsNotHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const many, ttl = 2000, time.Second
		b := newNumberedBucket("large/", 5000)
		for i := range many {
			b.put(fmt.Sprintf("d%04d/x", i), 1)
		}
		l := newTestLive(t, LiveConfig{TTL: ttl}, b)
		defer l.Close()
		held := func() int64 {
			synctest.Wait()
			l.mu.Lock()
			defer l.mu.Unlock()
			return l.mu.bytes
		}
		if got := len(readAll(t, l, "large", 500)); got != 5000 {
			t.Fatalf("%d entries", got)
		}
		for i := range many {
			mustFind(t, l, fmt.Sprintf("d%04d", i), "x")
		}
		before := held()
		time.Sleep(2 * expireEvery)
		mustFind(t, l, "d0000", "x")
		after := held()
		if before < many*directoryOverhead || after > before/10 {
			t.Errorf("%d bytes were held, and %d are when almost all have expired", before, after)
		}
		assertAccounts(t, l)
		b.requests()                                      // until now
		mustFind(t, l, "large", numbered("", 5000)[4000]) // of a large directory one asks for the name itself
		if got := b.requests(); got != 1 {
			t.Errorf("%d requests for a name of a large directory that had expired", got)
		}
	})
}

func TestWhatIsUsedIsNotEvicted(t *testing.T) {
	b := newNumberedBucket("big/", 20_000)
	b.put("hot/x", 1)
	l := newTestLive(t, LiveConfig{MaxBytes: 400_000}, b)
	mustFind(t, l, "hot", "x")
	cursor := ""
	asked := 0
	for {
		entries, _, err := l.ReadDir(t.Context(), "big", cursor, 1000)
		if err != nil {
			t.Fatal(err)
		}
		if len(entries) == 0 {
			break
		}
		cursor = entries[len(entries)-1].Cursor
		mustFind(t, l, "hot", "x")
	}
	for _, r := range b.asked() {
		if r.Prefix == "hot/" {
			asked++
		}
	}
	if asked != 1 {
		t.Errorf("a directory in use was asked for %d times", asked)
	}
}

func TestMemoryIsNotFilledBeforeAReaderWhoIsSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newNumberedBucket("big/", 50_000)
		b.put("hot/x", 1)
		b.latency = time.Millisecond
		l := newTestLive(t, LiveConfig{MaxBytes: 400_000}, b)
		if _, _, err := l.ReadDir(t.Context(), "big", "", 1000); err != nil {
			t.Fatal(err)
		}
		mustFind(t, l, "hot", "x")
		// One who waits for the next page, and does not get to run when it has come.
		l.mu.Lock()
		d := l.mu.directories["big/"]
		d.readers++
		l.scout(d, "000999.jpg")
		l.mu.Unlock()
		time.Sleep(time.Second)
		l.mu.Lock()
		d.readers--
		l.mu.Unlock()
		b.requests()
		mustFind(t, l, "hot", "x")
		assertRequests(t, b, 0, "looking up what was used before a page came")
	})
}

func TestStaleTokenIsReplacedByTheKey(t *testing.T) {
	b := &tokenlessBucket{fakeBucket: newNumberedBucket("", 2500)}
	l := newTestLive(t, LiveConfig{}, b)
	if got := len(readAll(t, l, "", 300)); got != 2500 {
		t.Errorf("%d entries", got)
	}
	if b.refused == 0 {
		t.Error("no token was ever used")
	}
}

// tokenlessBucket refuses every token, as if it had expired.
type tokenlessBucket struct {
	*fakeBucket
	refused int
}

func (b *tokenlessBucket) List(ctx context.Context, r oss.ListRequest) (oss.ListPage, error) {
	if r.Token != "" {
		b.refused++
		return oss.ListPage{}, oss.ErrInvalid
	}
	return b.fakeBucket.List(ctx, r)
}

func TestServerThatNeverGetsOnIsAnError(t *testing.T) {
	l := newTestLive(t, LiveConfig{}, stuckBucket{})
	if _, _, err := l.Lookup(t.Context(), "", "a"); !errors.Is(err, oss.ErrUnavailable) {
		t.Errorf("got %v", err)
	}
}

// stuckBucket answers every listing with an empty page that promises another.
type stuckBucket struct{ oss.Stater }

func (stuckBucket) List(context.Context, oss.ListRequest) (oss.ListPage, error) {
	return oss.ListPage{Next: "again"}, nil
}

func TestPagesThatBreakTheRulesAreReadAllTheSame(t *testing.T) {
	object := func(key string) oss.ListedObject { return oss.ListedObject{Object: oss.Object{Key: key, Size: 1}} }
	reader := pageReader{prefix: "d/", problems: newProblems()}
	reader.read(&oss.ListPage{
		// Not in order, not folded, twice, not asked for.
		Objects:  []oss.ListedObject{object("d/z"), object("d/a"), object("d/f/1"), object("d/f/2"), object("d/a"), object("e"), object("d/q/")},
		Prefixes: []string{"d/p/", "d/f/", "d/p/", "d/", "x/"},
	})
	var items []string
	for _, r := range reader.records {
		items = append(items, r.item)
	}
	if want := []string{"a", "f/", "p/", "q/", "z"}; !slices.Equal(items, want) {
		t.Errorf("items %q, want %q", items, want)
	}
	if reader.last != "z" {
		t.Errorf("the page ends at %q", reader.last)
	}
	reader = pageReader{problems: newProblems()}
	reader.read(&oss.ListPage{Prefixes: []string{"p/", "p/", "q/"}})
	if len(reader.records) != 2 {
		t.Errorf("a prefix given twice in order makes %+v", reader.records)
	}
}

func TestStartAfterIsUTF8AndJustBeforeTheItem(t *testing.T) {
	deep := strings.Repeat("k", maxKey-3)
	for _, test := range []struct{ prefix, start, want string }{
		{"d/", "", ""},
		{"d/", "b", "d/a\U0010FFFF"},
		{"d/", "b\x00", "d/b"},
		{"d/", "\x00", "d/"},
		{"d/", "n/", "d/n.\U0010FFFF"},
		{"d/", "n/\x00", "d/n/\U0010FFFF"},
		{"", "0", "/\U0010FFFF"},
		{"", "\uE000", "\uD7FF\U0010FFFF"},
		{"", "日本", "日" + string(rune('本'-1)) + "\U0010FFFF"},
		{"d/", "a\xffb", "d/a"},
		{"", deep + "b", deep + "a"},
	} {
		got := startAfter(test.prefix, test.start)
		if got != test.want {
			t.Errorf("startAfter(%q, %q) is %q, want %q", test.prefix, test.start, got, test.want)
		}
		// The items after a directory begin after all its keys.
		if test.start != "n/\x00" && test.start != "" && got >= test.prefix+test.start {
			t.Errorf("startAfter(%q, %q) is %q, which skips it", test.prefix, test.start, got)
		}
	}
}

func TestLinksAreRelativeAndStayInTheMount(t *testing.T) {
	b := newFakeBucket("m/a/file", "m/a/b/other", "m/both", "m/both/x", "m/dir/x", "m/e//f", "secret", "m/top")
	for link, target := range map[string]string{
		"m/l1":      "m/a/file",
		"m/a/l2":    "m/a/file",
		"m/a/b/l3":  "m/top",
		"m/dir/l4":  "m/a/b/other",
		"m/l5":      "secret",
		"m/l6":      "m/both",
		"m/a/l7":    "m/dir/",
		"m/a/l8":    "m/dir",
		"m/l9":      "m/e//f",
		"m/l10":     "m/absent",
		"m/l11":     "m/" + strings.Repeat("n", 300),
		"m/a/l12":   "m/",
		"m/l13":     "m/",
		"m/e//l14":  "m/e//f",
		"m/a/b/l15": "m/a/b/",
		"m/a/b/l16": "m/a/",
	} {
		b.symlink(link, target)
	}
	l := newTestLive(t, LiveConfig{Prefix: "m/"}, b)
	for _, test := range []struct {
		dir, name, want string
		err             error
	}{
		{"", "l1", "a/file", nil},
		{"a", "l2", "file", nil},
		{"a/b", "l3", "../../top", nil},
		{"dir", "l4", "../a/b/other", nil},
		{"", "l5", "", fs.ErrPermission},
		{"", "l6", "both%~file", nil},
		{"a", "l7", "../dir", nil},
		{"a", "l8", "../dir", nil},
		{"", "l9", "e/%~/f", nil},
		{"", "l10", "absent", nil},
		{"", "l11", "", fs.ErrNotExist},
		{"a", "l12", "..", nil},
		{"", "l13", ".", nil},
		{"e/%~", "l14", "f", nil},
		{"a/b", "l15", "../b", nil},
		{"a/b", "l16", "../../a", nil},
	} {
		e := mustFind(t, l, test.dir, test.name)
		if e.Kind != Symlink {
			t.Errorf("%s is a %v", test.name, e.Kind)
		}
		got, err := l.ReadLink(t.Context(), e)
		if got != test.want || !errors.Is(err, test.err) {
			t.Errorf("%s/%s leads to %q, %v, want %q, %v", test.dir, test.name, got, err, test.want, test.err)
		}
	}
	if _, err := l.ReadLink(t.Context(), mustFind(t, l, "", "top")); !errors.Is(err, fs.ErrInvalid) {
		t.Errorf("a file read as a link: %v", err)
	}
	l.Forget("", "l1")
	e := mustFind(t, l, "", "l1")
	b.remove("m/l1")
	b.mu.targets = nil
	if _, err := l.ReadLink(t.Context(), e); !errors.Is(err, oss.ErrNotFound) {
		t.Errorf("a link that is gone: %v", err)
	}
}

func TestConfigurationIsRefusedNotRepaired(t *testing.T) {
	for _, cfg := range []LiveConfig{
		{Prefix: "a"},
		{Prefix: ".pailfs/"},
		{Prefix: ".pailfs/x/"},
		{Prefix: strings.Repeat("x", 1023) + "/"},
		{TTL: -1},
		{NegativeTTL: -1},
		{MaxBytes: -1},
	} {
		if l, err := NewLive(cfg, newFakeBucket(), prometheus.NewRegistry(), slog.Default()); err == nil || l != nil {
			t.Errorf("%+v is taken", cfg)
		}
	}
	cfg, err := LiveConfig{TTL: time.Second, NegativeTTL: 2 * time.Second}.withDefaults()
	if err != nil || cfg.NegativeTTL != time.Second || cfg.MaxBytes != 128<<20 {
		t.Errorf("%+v, %v", cfg, err)
	}
	reg := prometheus.NewRegistry()
	newOn := func() (*Live, error) { return NewLive(LiveConfig{}, newFakeBucket(), reg, slog.Default()) }
	if _, err := newOn(); err != nil {
		t.Fatal(err)
	}
	if _, err := newOn(); err == nil {
		t.Error("metrics are registered twice")
	}
}

func TestWrongCursorsAndLimitsAreRefused(t *testing.T) {
	l := newTestLive(t, LiveConfig{}, newFakeBucket("a"))
	for _, cursor := range []string{"x", "x:9", "x:-1", "x:a", "x:1,", ":,"} {
		if _, _, err := l.ReadDir(t.Context(), "", cursor, 1); !errors.Is(err, fs.ErrInvalid) {
			t.Errorf("cursor %q: %v", cursor, err)
		}
	}
	if _, _, err := l.ReadDir(t.Context(), "", "", 0); !errors.Is(err, fs.ErrInvalid) {
		t.Errorf("limit 0: %v", err)
	}
}

func TestCursorHoldsWhileTheDirectoryChanges(t *testing.T) {
	b := newNumberedBucket("", 100)
	l := newTestLive(t, LiveConfig{TTL: 1}, b)
	entries, _, err := l.ReadDir(t.Context(), "", "", 50)
	if err != nil {
		t.Fatal(err)
	}
	last := entries[len(entries)-1]
	b.remove(last.Object.Key)
	b.remove("000050.jpg")
	b.put("000049.jpg.new", 1)
	rest, _, err := l.ReadDir(t.Context(), "", last.Cursor, 3)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := names(rest), []string{"000049.jpg.new", "000051.jpg", "000052.jpg"}; !slices.Equal(got, want) {
		t.Errorf("then come %q, want %q", got, want)
	}
}

func TestCallersOfEverythingAtOnce(t *testing.T) {
	b := newFakeBucket()
	for d := range 20 {
		for i := range 50 {
			b.put(fmt.Sprintf("d%d/%02d", d, i), 1)
			b.put(fmt.Sprintf("d%d/%02d/x", d, i), 1)
		}
	}
	b.pageKeys = 7
	l := newTestLive(t, LiveConfig{MaxBytes: 20_000, TTL: time.Millisecond}, b)
	var g sync.WaitGroup
	for w := range 16 {
		g.Go(func() {
			for i := range 60 {
				dir := fmt.Sprintf("d%d", (i*7+w)%20)
				switch (w + i) % 4 {
				case 0:
					entries, err := tryReadAll(l, dir, 9)
					if err != nil || len(entries) != 100 {
						t.Errorf("%s: %d entries, %v", dir, len(entries), err)
					}
				case 1:
					l.Forget(dir, fmt.Sprintf("%02d", i%50))
				default:
					name := fmt.Sprintf("%02d", i%50)
					if e, _, err := l.Lookup(t.Context(), dir, name); err != nil || e.Kind != Directory {
						t.Errorf("%s/%s: %+v, %v", dir, name, e, err)
					}
					if e, _, err := l.Lookup(t.Context(), dir, name+"%~file"); err != nil || e.Kind != File {
						t.Errorf("%s/%s%%~file: %+v, %v", dir, name, e, err)
					}
				}
			}
		})
	}
	g.Wait()
	assertAccounts(fatalf{t}, l)
}
