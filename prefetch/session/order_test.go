package session

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/pailfs/pailfs/oss"
)

// bookOf returns a book whose files all cost 100, and a function that resolves what
// was announced and returns what is fetched for it, in order.
func bookOf(t *testing.T, budget int64) (*Book, func() []string) {
	t.Helper()
	b := NewBook(Config{Budget: budget})
	return b, func() (fetched []string) {
		for e := b.NextResolve(); e != nil; e = b.NextResolve() {
			b.Resolved(e, []oss.Object{{Key: e.Path(), Size: 100}}, 0, nil)
		}
		for e := b.NextFetch(); e != nil; e = b.NextFetch() {
			fetched = append(fetched, e.Path())
			b.Fetched(e, false, nil)
		}
		if err := b.Check(); err != nil {
			t.Error(err)
		}
		return fetched
	}
}

func openWorker(b *Book, worker int) Name {
	id, _, _ := b.Open(time.Unix(1e9, 0), ID(fmt.Sprint("w", worker)), Key{Worker: worker}, Params{Buffer: 1000})
	return Name{Session: id}
}

func announce(t *testing.T, b *Book, n Name, paths ...string) {
	t.Helper()
	if out, err := b.Preload(time.Unix(1e9, 0), n, paths, false); err != nil || out.Accepted != len(paths) {
		t.Fatalf("%+v, %v", out, err)
	}
}

func numbered(prefix string, n int) (paths []string) {
	for i := range n {
		paths = append(paths, fmt.Sprintf("%s%03d", prefix, i))
	}
	return paths
}

func TestAWorkerThatAnnouncesMuchLeavesRoomForTheOthers(t *testing.T) {
	b, fetch := bookOf(t, 1200)
	first, second, third := openWorker(b, 1), openWorker(b, 2), openWorker(b, 3)
	announce(t, b, first, numbered("a", 500)...)
	announce(t, b, second, numbered("b", 500)...)
	announce(t, b, third, numbered("c", 2)...)
	got := map[byte]int{}
	for _, path := range fetch() {
		got[path[0]]++
	}
	// The third wants no more; the other two share what it leaves.
	if got['a'] != 5 || got['b'] != 5 || got['c'] != 2 {
		t.Errorf("the room for 12 files went to %v", got)
	}
	// Who comes late is served before those who have much.
	late := openWorker(b, 4)
	announce(t, b, late, numbered("d", 3)...)
	if _, _, err := b.Release(time.Unix(1e9, 0), first, numbered("a", 3)); err != nil {
		t.Fatal(err)
	}
	for _, e := range b.TakeGone() {
		b.Freed(e)
	}
	if got := fetch(); !slices.Equal(got, []string{"d000", "d001", "d002"}) {
		t.Errorf("the room that was let go went to %v", got)
	}
}

func TestStreamsKeepTheirOrderAndTakeTurns(t *testing.T) {
	b, fetch := bookOf(t, 1<<20)
	n := openWorker(b, 1)
	streams := [][]string{numbered("a", 20), numbered("b", 20), numbered("c", 20)}
	for index, paths := range streams {
		n.Index = index
		announce(t, b, n, paths...)
	}
	fetched := fetch()
	for _, paths := range streams {
		got := slices.Clone(fetched)
		got = slices.DeleteFunc(got, func(path string) bool { return path[0] != paths[0][0] })
		if !slices.Equal(got, paths) {
			t.Errorf("announced %v, fetched %v", paths, got)
		}
	}
	// After each third of the fetches each stream has had a third of its files, give
	// or take one.
	for _, upTo := range []int{15, 30, 45} {
		had := map[byte]int{}
		for _, path := range fetched[:upTo] {
			had[path[0]]++
		}
		for _, paths := range streams {
			if k := had[paths[0][0]]; k < upTo/3-1 || k > upTo/3+1 {
				t.Errorf("after %d fetches the streams have had %v", upTo, had)
			}
		}
	}
}

func TestWhatIsReadNowIsFetchedFirst(t *testing.T) {
	b, fetch := bookOf(t, 300)
	n := openWorker(b, 1)
	announce(t, b, n, numbered("a", 10)...)
	if implicit, _, err := b.Active(time.Unix(1e9, 0), n, []string{"unannounced", "a007"}); err != nil || implicit != 1 {
		t.Fatalf("%d, %v", implicit, err)
	}
	got := fetch()
	slices.Sort(got[:2])
	if !slices.Equal(got, []string{"a007", "unannounced", "a000"}) {
		t.Errorf("fetched %v", got)
	}
}

func TestALargeFileIsNotOvertakenForEver(t *testing.T) {
	b := NewBook(Config{Budget: 1000})
	large, small := openWorker(b, 1), openWorker(b, 2)
	costs := map[string]int64{"large": 900}
	fetch := func() (fetched []string) {
		for e := b.NextResolve(); e != nil; e = b.NextResolve() {
			cost := max(costs[e.Path()], 100)
			b.Resolved(e, []oss.Object{{Key: e.Path(), Size: cost}}, 0, nil)
		}
		for e := b.NextFetch(); e != nil; e = b.NextFetch() {
			fetched = append(fetched, e.Path())
			b.Fetched(e, false, nil)
		}
		return fetched
	}
	announce(t, b, small, numbered("s", 4)...)
	if got := fetch(); len(got) != 4 {
		t.Fatalf("fetched %v", got)
	}
	// There would be room for six more small ones, but it is the large one's turn.
	announce(t, b, large, "large")
	announce(t, b, small, numbered("t", 50)...)
	if got := fetch(); len(got) != 0 {
		t.Errorf("%v overtook the large file", got)
	}
	if _, _, err := b.Release(time.Unix(1e9, 0), small, numbered("s", 4)); err != nil {
		t.Fatal(err)
	}
	for _, e := range b.TakeGone() {
		b.Freed(e)
	}
	if got := fetch(); len(got) == 0 || got[0] != "large" {
		t.Errorf("fetched %v, want the large file first", got)
	}
}
