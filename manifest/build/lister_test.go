package build

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sort"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/pailfs/pailfs/oss"
)

// slowBucket lists keys that it holds in order and takes its time: a fixed part,
// and one for every key.
type slowBucket struct {
	keys      []string
	perPage   time.Duration
	perKey    time.Duration
	emptyPage bool // gives every page twice, first empty
	most      int  // keys on a page, if not 0

	mu       sync.Mutex
	requests int
}

func (b *slowBucket) List(ctx context.Context, r oss.ListRequest) (oss.ListPage, error) {
	after := r.StartAfter
	second := false
	if r.Token != "" {
		after, second = strings.TrimPrefix(r.Token, "token:"), true
	}
	b.mu.Lock()
	b.requests++
	b.mu.Unlock()
	if b.emptyPage && !second {
		return oss.ListPage{Next: "token:" + after}, nil
	}
	i := sort.SearchStrings(b.keys, max(after, r.Prefix))
	for i < len(b.keys) && b.keys[i] <= after {
		i++
	}
	var page oss.ListPage
	for ; i < len(b.keys) && strings.HasPrefix(b.keys[i], r.Prefix); i++ {
		if len(page.Objects) == r.MaxKeys || b.most > 0 && len(page.Objects) == b.most {
			page.Next = "token:" + b.keys[i-1]
			break
		}
		page.Objects = append(page.Objects, oss.ListedObject{Object: oss.Object{Key: b.keys[i], Size: int64(i)}})
	}
	if wait := b.perPage + time.Duration(len(page.Objects))*b.perKey; wait > 0 {
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return oss.ListPage{}, ctx.Err()
		}
	}
	return page, nil
}

// listed is everything that a lister emitted.
type listed struct {
	mu    sync.Mutex
	keys  []string
	spans []span
}

func (l *listed) emit(_ context.Context, objects []oss.ListedObject, all span) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range objects {
		if !all.holds(objects[i].Key) {
			return fmt.Errorf("key %q is not in the span %q that it was emitted with", objects[i].Key, all)
		}
		l.keys = append(l.keys, objects[i].Key)
	}
	l.spans = append(l.spans, all)
	return nil
}

// checkAll fails unless the keys of the bucket under prefix were emitted once
// each, and the spans cover everything.
func (l *listed) checkAll(t interface{ Fatalf(string, ...any) }, keys []string, prefix string) {
	var want []string
	for _, k := range keys {
		if strings.HasPrefix(k, prefix) {
			want = append(want, k)
		}
	}
	slices.Sort(l.keys)
	if !slices.Equal(l.keys, want) {
		t.Fatalf("listed %d keys, want %d: %s", len(l.keys), len(want), cmp.Diff(head(want), head(l.keys)))
	}
	if rest := gaps(span{}, l.spans); len(rest) != 0 {
		t.Fatalf("the spans leave %q", rest)
	}
}

func head(keys []string) []string { return keys[:min(len(keys), 20)] }

func numbered(format string, n int) []string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = fmt.Sprintf(format, i)
	}
	slices.Sort(keys)
	return keys
}

// shapes are key spaces as they occur, each of about n keys.
func shapes(n int) map[string][]string {
	random := rand.New(rand.NewPCG(1, 2))
	deep := make([]string, n)
	for i := range deep {
		deep[i] = fmt.Sprintf("train/part=%02d/host-%03d/2026/11/%02d/shard-%05d.tar", i%7, i%41, i%28, i)
	}
	slices.Sort(deep)
	hashed := make([]string, n)
	for i := range hashed {
		hashed[i] = fmt.Sprintf("%016x/object", random.Uint64())
	}
	slices.Sort(hashed)
	skewed := numbered("one/folder/with/most/of/them/image-%08d.jpeg", n*98/100)
	skewed = append(skewed, numbered("a/%d", n/100)...)
	skewed = append(skewed, numbered("zzz/%04x/y", n/100)...)
	slices.Sort(skewed)
	chinese := make([]string, n)
	for i := range chinese {
		chinese[i] = fmt.Sprintf("数据/%c%c/%d", '一'+rune(random.IntN(2000)), '丁'+rune(random.IntN(300)), i)
	}
	slices.Sort(chinese)
	return map[string][]string{
		"flat":     numbered("%08d.jpg", n),
		"unpadded": numbered("file%d", n),
		"deep":     deep,
		"hashed":   hashed,
		"skewed":   skewed,
		"chinese":  chinese,
	}
}

// The time is that of the service, counted by the test's own clock: it does not
// depend on the machine.
func TestManyRequestsAtOnceListFasterThanOne(t *testing.T) {
	const n = 200_000
	for name, keys := range shapes(n) {
		if testing.Short() && name != "skewed" && name != "deep" {
			continue // they differ in their keys alone
		}
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := &slowBucket{keys: keys, perPage: 20 * time.Millisecond, perKey: 100 * time.Microsecond}
				one := time.Duration(len(keys)/pageKeys+1)*b.perPage + time.Duration(len(keys))*b.perKey
				var got listed
				l := &lister{bucket: b, workers: 64, emit: got.emit}
				began := time.Now()
				if err := l.run(t.Context(), []span{{}}); err != nil {
					t.Fatal(err)
				}
				took := time.Since(began)
				got.checkAll(t, keys, "")
				t.Logf("%.1f times as fast: %s instead of %s, %d requests for %d pages, %d splits",
					float64(one)/float64(took), took, one, b.requests, len(keys)/pageKeys, l.mu.splits)
				// The order of goroutines decides about the rest: twice as fast is usual.
				if took > one/4 {
					t.Errorf("it took %s, more than a quarter of %s", took, one)
				}
				if b.requests > 5*(len(keys)/pageKeys+1) {
					t.Errorf("%d requests for %d pages", b.requests, len(keys)/pageKeys)
				}
			})
		})
	}
}

// Nasty keys, small pages, splits everywhere: each key once, and the spans cover
// every key there could be.
func TestEveryKeyIsListedOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		letters := rapid.SampledFrom([]rune("ab/.019%~ é日\U0001F600"))
		key := rapid.Custom(func(t *rapid.T) string {
			return string(rapid.SliceOfN(letters, 1, 8).Draw(t, "key"))
		})
		keys := rapid.SliceOfNDistinct(key, 0, 3000, rapid.ID[string]).Draw(t, "keys")
		slices.Sort(keys)
		prefix := rapid.SampledFrom([]string{"", "a", "a/", "日"}).Draw(t, "prefix")
		var got listed
		l := &lister{bucket: &slowBucket{
			keys: keys, emptyPage: rapid.Bool().Draw(t, "empty pages"), most: rapid.IntRange(1, 5).Draw(t, "most"),
		}, prefix: prefix, workers: 8, emit: got.emit}
		if err := l.run(context.Background(), []span{{}}); err != nil {
			t.Fatalf("%v", err)
		}
		got.checkAll(t, keys, prefix)
	})
}

// What is left of an interrupted listing is listed, and nothing else.
func TestOnlyGapsAreListed(t *testing.T) {
	keys := numbered("%05d", 20000)
	var got listed
	done := []span{{After: "", Through: "00100"}, {After: "05000", Through: "10000"}, {After: "09000", Through: "12000"}, {After: "19000"}}
	l := &lister{bucket: &slowBucket{keys: keys}, workers: 8, emit: got.emit}
	if err := l.run(t.Context(), gaps(span{}, done)); err != nil {
		t.Fatal(err)
	}
	for _, k := range got.keys {
		for _, d := range done {
			if d.holds(k) {
				t.Fatalf("%q was listed again", k)
			}
		}
	}
	for _, k := range keys {
		if slices.ContainsFunc(done, func(s span) bool { return s.holds(k) }) {
			got.keys = append(got.keys, k)
		}
	}
	got.spans = append(got.spans, done...)
	got.checkAll(t, keys, "")
}

// A key is in the joined spans if it is in one of them, and in the gaps if it is in
// none.
func TestSpansAreSets(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		key := rapid.StringMatching(`[a-c]{0,3}`)
		spans := rapid.SliceOf(rapid.Custom(func(t *rapid.T) span {
			return span{After: key.Draw(t, "after"), Through: key.Draw(t, "through")}
		})).Draw(t, "spans")
		k := rapid.StringMatching(`[a-c]{1,4}`).Draw(t, "key")
		in := func(s []span) bool { return slices.ContainsFunc(s, func(s span) bool { return s.holds(k) }) }
		if in(joined(spans)) != in(spans) {
			t.Fatalf("%q: joined %q of %q", k, joined(spans), spans)
		}
		if in(gaps(span{}, spans)) == in(spans) {
			t.Fatalf("%q: gaps %q of %q", k, gaps(span{}, spans), spans)
		}
	})
}

// A split lies within the span.
func TestSplitsLieWithin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var a alphabet
		for _, k := range rapid.SliceOf(rapid.String()).Draw(t, "seen") {
			a.see(k)
		}
		s := rapid.Custom(func(t *rapid.T) span {
			return span{After: rapid.String().Draw(t, "after"), Through: rapid.String().Draw(t, "through")}
		}).Filter(func(s span) bool { return !s.empty() }).Draw(t, "span")
		if at, ok := a.split(s); ok && (at <= s.After || !s.open() && at >= s.Through || len(at) > maxKey) {
			t.Fatalf("%q does not divide %q", at, s)
		}
	})
}

func TestListingEndsWithTheFirstError(t *testing.T) {
	keys := numbered("%05d", 20000)
	l := &lister{bucket: &slowBucket{keys: keys}, workers: 8, emit: func(context.Context, []oss.ListedObject, span) error {
		return context.DeadlineExceeded
	}}
	if err := l.run(t.Context(), []span{{}}); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("got %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := l.run(ctx, []span{{}}); err == nil {
		t.Fatal("a cancelled listing succeeded")
	}
}
