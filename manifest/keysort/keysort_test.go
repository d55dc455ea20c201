package keysort

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"pgregory.net/rapid"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type triple struct{ dir, item, value string }

// drain returns all of m.
func drain(t interface{ Fatal(...any) }, m *Entries) []triple {
	var all []triple
	for {
		e, err := m.Next()
		if err != nil {
			t.Fatal(err)
		}
		if e == nil {
			return all
		}
		all = append(all, triple{string(e.Dir), string(e.Item), string(e.Value)})
	}
}

// sortedModel returns what should come out: the last of each, in order.
func sortedModel(in []triple) (out []triple, duplicates int64) {
	last := map[[2]string]string{}
	for _, x := range in {
		k := [2]string{x.dir, x.item}
		if old, twice := last[k]; twice && old != "" {
			duplicates++
		}
		last[k] = x.value
	}
	for k, v := range last {
		out = append(out, triple{k[0], k[1], v})
	}
	slices.SortFunc(out, func(a, b triple) int {
		if c := strings.Compare(a.dir, b.dir); c != 0 {
			return c
		}
		return strings.Compare(a.item, b.item)
	})
	return out, duplicates
}

// Whatever is added, in whatever order, with runs of any length, merged in any
// number: what comes out is sorted and the last of each.
func TestSortedIsTheLastOfEach(t *testing.T) {
	dir := t.TempDir()
	text := rapid.Custom(func(t *rapid.T) string {
		return strings.Repeat("common", rapid.IntRange(0, 2).Draw(t, "prefix")) + rapid.StringMatching(`[ab\x00/-]{0,4}`).Draw(t, "rest")
	})
	rapid.Check(t, func(rt *rapid.T) {
		s, err := New(dir, 1<<20)
		if err != nil {
			rt.Fatal(err)
		}
		defer s.Close()
		s.limit = rapid.SampledFrom([]int{1, 300, 2000, 1 << 20}).Draw(rt, "limit")
		n := rapid.SampledFrom([]int{0, 1, 10, 100, 400}).Draw(rt, "n")
		var in []triple
		for i := range n {
			x := triple{text.Draw(rt, "dir"), text.Draw(rt, "item"), ""}
			if !strings.HasSuffix(x.item, "/") {
				x.value = fmt.Sprint("v", i)
			}
			in = append(in, x)
			if err := s.Add(x.dir, x.item, []byte(x.value)); err != nil {
				rt.Fatal(err)
			}
		}
		m, err := s.Sorted(context.Background())
		if err != nil {
			rt.Fatal(err)
		}
		got := drain(rt, m)
		want, duplicates := sortedModel(in)
		if !slices.Equal(got, want) {
			rt.Fatalf("got %q, want %q", got, want)
		}
		if m.Duplicates() != duplicates {
			rt.Fatalf("%d duplicates, want %d", m.Duplicates(), duplicates)
		}
	})
}
