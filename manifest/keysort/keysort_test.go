package keysort

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
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
		s.maxRuns = rapid.SampledFrom([]int{2, 3, 10, maxRuns}).Draw(rt, "maxRuns")
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

// writeRun writes in as a run of its own.
func writeRun(t interface{ Fatal(...any) }, dir, path string, in []triple) {
	s, err := New(dir, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, x := range in {
		if err := s.Add(x.dir, x.item, []byte(x.value)); err != nil {
			t.Fatal(err)
		}
	}
	m, err := s.Sorted(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(WriteRun(context.Background(), f, m), f.Close()); err != nil {
		t.Fatal(err)
	}
}

// Runs that were kept are merged as if all had been added to one sorter, one run
// after another.
func TestMergeOfRuns(t *testing.T) {
	dir := t.TempDir()
	var in []triple
	var files []*os.File
	for run := range 7 {
		var part []triple
		for i := range 2000 {
			part = append(part, triple{fmt.Sprint("dir", i*run%5, "/"), fmt.Sprint("item", i*7919%1500), fmt.Sprint("run ", run, " ", i, strings.Repeat("x", 300))})
		}
		in = append(in, part...)
		path := filepath.Join(dir, fmt.Sprint(run))
		writeRun(t, dir, path, part)
		f, err := OpenRun(path)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	s := Merge(dir, files)
	s.maxRuns = 3
	defer s.Close()
	m, err := s.Sorted(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	want, _ := sortedModel(in)
	if got := drain(t, m); !slices.Equal(got, want) {
		t.Fatalf("%d entries, want %d", len(got), len(want))
	}
}

// A run that was cut short, wherever, is refused when it is opened; one with any
// byte changed is refused then or gives an error when it is read.
func TestDamagedRunIsRefused(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "run")
	in := []triple{{"a/", "x", "1"}, {"a/", "y", "2"}, {"b/", "z", strings.Repeat("v", 50)}}
	writeRun(t, dir, path, in)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	read := func(data []byte) ([]triple, error) {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := OpenRun(path)
		if err != nil {
			return nil, err
		}
		s := Merge(dir, []*os.File{f})
		defer s.Close()
		m, err := s.Sorted(context.Background())
		if err != nil {
			return nil, err
		}
		var all []triple
		for {
			e, err := m.Next()
			if err != nil {
				return nil, err
			}
			if e == nil {
				return all, nil
			}
			all = append(all, triple{string(e.Dir), string(e.Item), string(e.Value)})
		}
	}
	if got, err := read(whole); err != nil || !slices.Equal(got, in) {
		t.Fatalf("got %q, %v", got, err)
	}
	for n := range whole {
		if got, err := read(whole[:n]); err == nil {
			t.Errorf("the first %d of %d bytes read as %q", n, len(whole), got)
		}
		changed := slices.Clone(whole)
		changed[n] ^= 0x41
		if got, err := read(changed); err == nil {
			t.Errorf("with byte %d changed it reads as %q", n, got)
		}
	}
}
