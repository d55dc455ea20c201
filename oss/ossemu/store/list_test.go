package store

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// slowList says what a listing must be, from the definition.
func slowList(keys []string, q ListQuery) (entries []string, more bool) {
	slices.Sort(keys)
	last := ""
	for _, key := range keys {
		if !strings.HasPrefix(key, q.Prefix) || key <= q.After {
			continue
		}
		name := key
		if i := strings.Index(key[len(q.Prefix):], q.Delimiter); q.Delimiter != "" && i >= 0 {
			name = key[:len(q.Prefix)+i+len(q.Delimiter)]
			if name == last || name == q.After {
				continue
			}
			last = name
		}
		if len(entries) == q.Limit {
			return entries, true
		}
		entries = append(entries, name)
	}
	return entries, false
}

func names(page ListPage) (entries []string) {
	for _, e := range page.Entries {
		entries = append(entries, e.Key)
	}
	return entries
}

func TestListingsMatchTheDefinition(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		word := rapid.StringOfN(rapid.SampledFrom([]rune{'a', 'b', '/', '.', 0x1, 'é', 0x10ffff}), 1, 5, -1)
		keys := rapid.SliceOfNDistinct(word, 0, 40, rapid.ID[string]).Draw(rt, "keys")
		s := newStore(t)
		defer func() {
			if err := s.Close(); err != nil {
				rt.Fatal(err)
			}
		}()
		for _, key := range keys {
			put(t, s, key, nil)
		}
		q := ListQuery{
			Prefix:    rapid.OneOf(rapid.Just(""), word).Draw(rt, "prefix"),
			Delimiter: rapid.SampledFrom([]string{"", "/", "a/", "é"}).Draw(rt, "delimiter"),
			After:     rapid.OneOf(rapid.Just(""), rapid.Just("\x00"), word).Draw(rt, "after"),
			Limit:     rapid.IntRange(1, 10).Draw(rt, "limit"),
		}
		page, err := s.List(testBucket, q)
		if err != nil {
			rt.Fatal(err)
		}
		want, more := slowList(keys, q)
		if d := cmp.Diff(want, names(page)); d != "" || more != page.More {
			rt.Fatalf("%+v: more %v, want %v\n%s", q, page.More, more, d)
		}
		// Page by page the same entries come, each once.
		all := q
		all.Limit = 1 << 20
		want, _ = slowList(keys, all)
		var got []string
		for {
			page, err := s.List(testBucket, q)
			if err != nil {
				rt.Fatal(err)
			}
			got = append(got, names(page)...)
			if !page.More {
				break
			}
			q.After = got[len(got)-1]
		}
		if d := cmp.Diff(want, got); d != "" {
			rt.Fatalf("page by page: %s", d)
		}
	})
}

func TestAFrozenListingStaysAsItWas(t *testing.T) {
	s := newStore(t)
	for i := range 500 {
		put(t, s, fmt.Sprintf("old%04d", i), nil)
	}
	frozen, err := s.Freeze(testBucket)
	if err != nil {
		t.Fatal(err)
	}
	before, err := s.List(testBucket, ListQuery{Limit: 1000})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 500 {
		put(t, s, fmt.Sprintf("new%04d", i), nil)
		if _, err := s.Delete(testBucket, fmt.Sprintf("old%04d", i)); err != nil {
			t.Fatal(err)
		}
	}
	if d := cmp.Diff(names(before), names(frozen.List(ListQuery{Limit: 1000}))); d != "" {
		t.Error(d)
	}
}

// BenchmarkListManyKeys lists a bucket of a million keys.
func BenchmarkListManyKeys(b *testing.B) {
	s := newStore(b)
	for i := range 1_000_000 {
		put(b, s, fmt.Sprintf("dir%03d/sub%d/file%07d", i%1000, i%7, i), nil)
	}
	for name, q := range map[string]ListQuery{
		"flat":        {After: "dir500/", Limit: 1000},
		"directories": {Delimiter: "/", Limit: 1000},
		"directory":   {Prefix: "dir123/", Delimiter: "/", Limit: 1000},
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if _, err := s.List(testBucket, q); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("reopen", func(b *testing.B) {
		for b.Loop() {
			s = reopen(b, s)
		}
	})
}
