package manifest

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/pailfs/pailfs/oss"
)

// newListedBucket returns a bucket of keys, quicker than newFakeBucket for many.
func newListedBucket(keys []string) *fakeBucket {
	b := newFakeBucket()
	slices.Sort(keys)
	b.mu.keys = slices.Compact(keys)
	for i, key := range b.mu.keys {
		b.mu.objects[key] = oss.ListedObject{Object: oss.Object{Key: key, ETag: fmt.Sprintf("%032X", i), Size: int64(i + 1)}}
	}
	return b
}

// requestsInTurn returns how many requests a listing of all of b takes that asks for one
// page after the other.
func requestsInTurn(b *fakeBucket) int {
	limit := 1000
	if b.pageKeys > 0 {
		limit = b.pageKeys
	}
	r := oss.ListRequest{Delimiter: "/"}
	for n := 1; ; n++ {
		if r.Token = b.page(r, limit).Next; r.Token == "" {
			return n
		}
	}
}

// walked is what a reader of a whole directory got, and what it cost.
type walked struct {
	names    []string
	requests int
	// trips is the longest chain of requests that wait for one another.
	trips int
}

// walk reads the root of b, which no one has read before.
func walk(t *testing.T, b *fakeBucket) walked {
	t.Helper()
	var w walked
	synctest.Test(t, func(t *testing.T) {
		// Time goes on only while everybody waits for requests, which take an hour each.
		b.latency = time.Hour
		l := newTestLive(t, LiveConfig{TTL: 1e6 * time.Hour}, b)
		defer l.Close()
		began := time.Now()
		w.names = names(readAll(t, l, "", 1024))
		w.trips = int(time.Since(began) / b.latency)
		synctest.Wait()
		w.requests = b.requests()
	})
	return w
}

// spread are n names each that lie evenly.
func spread(n int, seed int64) map[string][]string {
	random := rand.New(rand.NewSource(seed))
	keys := func(name func(i int) string) []string {
		keys := make([]string, n)
		for i := range keys {
			keys[i] = name(i)
		}
		return keys
	}
	return map[string][]string{
		"counting":             keys(func(i int) string { return fmt.Sprintf("%06d.jpg", i) }),
		"counting with a year": keys(func(i int) string { return fmt.Sprintf("ILSVRC2012_val_%08d.JPEG", i+1) }),
		"counting exactly":     keys(func(i int) string { return fmt.Sprintf("f%0*d", len(strconv.Itoa(n-1)), i) }),
		"counting by fives":    keys(func(i int) string { return fmt.Sprintf("frame_%07d.png", 5*i) }),
		"counting in pairs":    keys(func(i int) string { return fmt.Sprintf("%07d.%s", i/2, []string{"jpg", "txt"}[i%2]) }),
		"counting in Japanese": keys(func(i int) string { return fmt.Sprintf("データ%06d", i) }),
		"counting directories": keys(func(i int) string { return fmt.Sprintf("%06d/x", i) }),
		"hexadecimal":          keys(func(int) string { return fmt.Sprintf("%016x", random.Uint64()) }),
		"hexadecimal, upper":   keys(func(int) string { return fmt.Sprintf("X-%016X.bin", random.Uint64()) }),
		"UUIDs": keys(func(int) string {
			return fmt.Sprintf("%08x-%04x-%016x", random.Uint32(), random.Intn(1<<16), random.Uint64())
		}),
		"base 64": keys(func(int) string {
			return base64.RawURLEncoding.EncodeToString(binary.BigEndian.AppendUint64(nil, random.Uint64()))
		}),
		"random decimal digits": keys(func(int) string { return fmt.Sprintf("%012d", random.Int63n(1e12)) }),
	}
}

// uneven are n names each that do not.
func uneven(n int, seed int64) map[string][]string {
	random := rand.New(rand.NewSource(seed))
	keys := func(name func(i int) string) []string {
		keys := make([]string, n)
		for i := range keys {
			keys[i] = name(i)
		}
		return keys
	}
	word := func() string {
		var b strings.Builder
		for range 3 + random.Intn(8) {
			b.WriteByte(byte('a' + int(random.ExpFloat64()*5)%26))
		}
		return b.String()
	}
	return map[string][]string{
		"numbers without zeros":  keys(func(i int) string { return fmt.Sprintf("%d.jpg", i) }),
		"classes":                keys(func(i int) string { return fmt.Sprintf("n%08d_%d", 1_440_000+i/130*3571, random.Intn(1e5)) }),
		"three groups":           keys(func(i int) string { return fmt.Sprintf("%c-%06d", 'a'+i/(n/3+1), i%(n/3+1)) }),
		"words":                  keys(func(int) string { return word() }),
		"times":                  keys(func(i int) string { return time.Unix(1_700_000_000+int64(i)*301, 0).UTC().Format("20060102T150405") }),
		"bytes that are no text": keys(func(i int) string { return fmt.Sprintf("\xff%06d\xfe", i) }),
		"Chinese": keys(func(int) string {
			return string([]rune{rune(0x4e00 + random.Intn(20_000)), rune(0x4e00 + random.Intn(20_000))})
		}),
		"one inside the other": keys(func(i int) string { return strings.Repeat("a", 1+i%200) + strconv.Itoa(i/200) }),
	}
}

func TestEvenNamesAreListedInThreeRoundTrips(t *testing.T) {
	for seed := range int64(2) {
		for name, keys := range spread(10_000, seed) {
			t.Run(name, func(t *testing.T) {
				b := newListedBucket(keys)
				got := walk(t, b)
				if len(got.names) != 10_000 || !slices.IsSorted(got.names) {
					t.Errorf("%d names", len(got.names))
				}
				if got.trips > 3 || got.requests > 13 {
					t.Errorf("%d round trips and %d requests (seed %d), want 3 and 13 at most", got.trips, got.requests, seed)
				}
			})
		}
	}
}

// A thousand pages, of a hundred names so that it does not take long. Where so few lie by
// chance, pages have to overlap more.
func TestAThousandPagesTakeATenthOfTheRoundTrips(t *testing.T) {
	for name, requests := range map[string]int{"counting": 1300, "hexadecimal": 1700} {
		t.Run(name, func(t *testing.T) {
			b := newListedBucket(spread(100_000, 1)[name])
			b.pageKeys = 100
			got := walk(t, b)
			if len(got.names) != 100_000 {
				t.Errorf("%d names", len(got.names))
			}
			if got.trips > 100 || got.requests > requests {
				t.Errorf("%d round trips and %d requests, want 100 and %d at most", got.trips, got.requests, requests)
			}
		})
	}
}

// What an old listing and lookups since have cost is not held against a new one.
func TestAListingIsAsQuickAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newListedBucket(spread(20_000, 1)["counting"])
		b.pageKeys, b.latency = 100, time.Second
		l := newTestLive(t, LiveConfig{TTL: 10 * time.Minute}, b)
		defer l.Close()
		var first time.Duration
		for pass := range 6 {
			began := time.Now()
			if got := len(readAll(t, l, "", 1024)); got != 20_000 {
				t.Fatalf("%d names", got)
			}
			switch took := time.Since(began); {
			case pass == 0:
				first = took
			case took > 2*first:
				t.Errorf("pass %d took %v, the first one %v", pass, took, first)
			}
			time.Sleep(time.Hour)
			for i := range 300 { // each asks for a page
				if _, _, err := l.Lookup(t.Context(), "", fmt.Sprintf("%06d.jpg", i*66)); err != nil {
					t.Fatal(err)
				}
			}
			synctest.Wait()
		}
	})
}

// A gap between names that count may have room for any number of pages.
func TestAGapWithRoomForAnythingCostsNothing(t *testing.T) {
	items := make([]string, 200)
	for i := range items {
		items[i] = fmt.Sprintf("%019d.jpg", 1e6*i)
	}
	ruler := newRuler(items)
	page := ruler.measure(items[100]) - ruler.measure(items[0])
	d := &directory{pageItems: 100, flights: map[string]*flight{}}
	r := &round{chart: &chart{d: d, ruler: ruler, page: page, step: page}, scout: &scout{guessed: true}, most: 8}
	gap := &run{lo: fmt.Sprintf("%019d.jpg", int64(9e17))}
	allocated := testing.AllocsPerRun(1, func() {
		r.starts, r.begun = nil, false
		r.between(items[199], gap, page)
		r.open(items[199], gap)
	})
	if len(r.starts) == 0 || len(r.starts) > r.most {
		t.Errorf("%d places, want %d at most", len(r.starts), r.most)
	}
	if allocated > 10_000 {
		t.Errorf("%v allocations for %d places", allocated, r.most)
	}
}

func TestNoListingTakesTwiceTheRequests(t *testing.T) {
	for seed := range int64(2) {
		for _, n := range []int{80, 101, 150, 300, 500, 1000, 3000} {
			for name, keys := range uneven(n, seed) {
				t.Run(fmt.Sprintf("%s/n=%d", name, n), func(t *testing.T) {
					b := newListedBucket(keys)
					b.pageKeys = 100
					in := requestsInTurn(b)
					got := walk(t, b)
					if want := modelOf(b, "").dirs[""]; len(got.names) != len(want) {
						t.Errorf("%d names of %d", len(got.names), len(want))
					}
					if got.requests > 2*in || got.trips > in+1 {
						t.Errorf("%d requests and %d round trips (seed %d), in turn %d", got.requests, got.trips, seed, in)
					}
				})
			}
		}
	}
}

// Whatever the names are, pages at guessed places say the same as pages in turn.
func TestGuessesNeverChangeWhatIsListed(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		letters := rapid.SampledFrom([][]string{
			{"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"},
			{"a", "b", "/", ".", "-"},
			{"\xff", "\x80", "a", "é", "z", "\U0010ffff", "\x00"},
			{"a", "A", "0", "9", "f", "_", "/"},
		}).Draw(rt, "letters")
		name := rapid.Custom(func(rt *rapid.T) string {
			return strings.Join(rapid.SliceOfN(rapid.SampledFrom(letters), 1, 6).Draw(rt, "name"), "")
		})
		before := rapid.SampledFrom([]string{"", "a", "\xff", "data-2026-"}).Draw(rt, "before")
		var keys []string
		for _, n := range rapid.SliceOfN(name, 0, 300).Draw(rt, "names") {
			keys = append(keys, before+strings.TrimLeft(n, "/")+"!")
		}
		b := newListedBucket(keys)
		b.pageKeys = rapid.IntRange(1, 40).Draw(rt, "page")
		b.foldsFirst, b.emptyPages = rapid.Bool().Draw(rt, "folds"), rapid.Bool().Draw(rt, "empty")
		l := newTestLive(t, LiveConfig{}, b)
		defer l.Close()
		want := modelOf(b, "").dirs[""]
		got := readAll(t, l, "", rapid.SampledFrom([]int{1, 7, 1024}).Draw(rt, "limit"))
		if len(got) != len(want) {
			rt.Fatalf("%d entries of %d", len(got), len(want))
		}
		for _, e := range got {
			if w, ok := want[e.Name]; !ok || w.Object.Key != e.Object.Key || w.Kind != e.Kind {
				rt.Fatalf("%+v is not %+v", e, w)
			}
			delete(want, e.Name)
		}
		assertAccounts(rt, l)
	})
}

// While pages are asked for at guessed places, objects come and go between them.
func TestNamesThatStayAreListedOnceWhileOthersComeAndGo(t *testing.T) {
	b := newNumberedBucket("", 20_000)
	var n atomic.Int64
	b.mu.during = func() {
		i := n.Add(1)
		b.remove(fmt.Sprintf("%06d.jpg", i*701%20_000/2*2))    // an even one goes
		b.put(fmt.Sprintf("%06d.jpg.new", i*1303%20_000/2), 1) // another comes
	}
	seen := map[string]bool{}
	last := ""
	for _, name := range walk(t, b).names {
		if name <= last {
			t.Fatalf("%q comes after %q", name, last)
		}
		seen[name], last = true, name
	}
	for i := 1; i < 20_000; i += 2 {
		if name := fmt.Sprintf("%06d.jpg", i); !seen[name] {
			t.Errorf("%q was there all the time and is not listed", name)
		}
	}
}

// unwilling is a lister that answers some requests, as a store that throttles.
type unwilling struct {
	*fakeBucket
	every int64
	n     atomic.Int64
}

func (u *unwilling) List(ctx context.Context, r oss.ListRequest) (oss.ListPage, error) {
	if n := u.n.Add(1); n%u.every == 0 {
		return oss.ListPage{}, fmt.Errorf("%w: 503", oss.ErrUnavailable)
	}
	return u.fakeBucket.List(ctx, r)
}

// A page that nobody waits for may fail; its reader asks for it again.
func TestGuessesThatFailAreNotSeen(t *testing.T) {
	for _, every := range []int64{1, 2, 5} {
		t.Run(fmt.Sprintf("every=%d", every), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newNumberedBucket("", 30_500)
				b.latency = time.Second
				ahead := &unwilling{fakeBucket: b, every: every}
				l := newTestLive(t, LiveConfig{TTL: time.Hour, Ahead: ahead}, b)
				defer l.Close()
				cursor, seen := "", 0
				for {
					entries, _, err := l.ReadDir(t.Context(), "", cursor, 1024)
					if errors.Is(err, oss.ErrUnavailable) {
						continue // it had begun to wait for the page that failed
					}
					if err != nil {
						t.Fatal(err)
					}
					if len(entries) == 0 {
						break
					}
					cursor, seen = entries[len(entries)-1].Cursor, seen+len(entries)
				}
				synctest.Wait()
				if got := b.requests(); seen != 30_500 || got > 62 {
					t.Errorf("%d names with %d requests", seen, got)
				}
				if ahead.n.Load() == 0 {
					t.Error("nothing was asked ahead")
				}
			})
		})
	}
}

func TestSmallDirectoriesTakeOneRequest(t *testing.T) {
	for _, n := range []int{0, 1, 999, 1000} {
		if got := walk(t, newNumberedBucket("", n)); len(got.names) != n || got.requests != 1 {
			t.Errorf("%d of %d names with %d requests", len(got.names), n, got.requests)
		}
	}
}

func TestRulerIsInOrderAndFindsBackWhatItMeasures(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		item := rapid.Map(rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "0", "7", "é", "\xff", "/"}), 1, 8), func(s []string) string { return strings.Join(s, "") })
		items := rapid.SliceOfNDistinct(item, 2, 50, rapid.ID).Draw(rt, "items")
		slices.Sort(items)
		r := newRuler(items)
		last := 0.0
		for _, item := range items {
			at := r.measure(item)
			if at < last || at > 1 {
				rt.Fatalf("%q is at %v, what is before it at %v", item, at, last)
			}
			last = at
		}
		value := rapid.Float64Range(0, 1).Draw(rt, "value")
		if found := r.at(value, 1e-6); found != "" && r.measure(found) > value+1e-9 {
			rt.Fatalf("%q, at %v, is beyond %v", found, r.measure(found), value)
		}
	})
}
