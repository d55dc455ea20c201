package manifest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"slices"
	"sort"
	"strings"
	"sync"
	"testing"
	"time"
)

// manyRecords fills several pages of both indexes: more than 65,536 rows in one
// directory, more than 65,536 directories, and some of everything between. A short
// test has fewer.
func manyRecords() []Record {
	flat, deep := 140_000, 67_000
	if testing.Short() {
		flat, deep = 66_000, 1_500
	}
	var all []Record
	add := func(key string, i int) {
		all = append(all, Record{Key: key, ETag: fmt.Sprintf("%032X", i), Size: int64(i % 1000), ModTime: time.Unix(int64(i), 0).UTC()})
	}
	for i := range flat {
		add(fmt.Sprintf("flat/f%07d", i*7), i)
	}
	for i := range deep {
		add(fmt.Sprintf("deep/%03d/%05d/x", i%700, i), i)
	}
	for i := range 600 {
		add(fmt.Sprintf("mixed/%d", i), i)
		add(fmt.Sprintf("mixed/%d.txt", i), i)
		if i%3 == 0 {
			add(fmt.Sprintf("mixed/%d/y", i), i)
		}
	}
	return all
}

// A manifest of many blocks and pages answers as a sorted list of its keys does.
func TestManyBlocks(t *testing.T) {
	records := manyRecords()
	shuffled := slices.Clone(records)
	rand.New(rand.NewPCG(1, 2)).Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
	slices.SortFunc(records, func(a, b Record) int { return strings.Compare(a.Key, b.Key) })
	data, sum := buildTo(t, BuilderConfig{SpillDir: t.TempDir(), MemoryBytes: 4 << 20}, shuffled)
	if sum.Objects != int64(len(records)) || sum.Duplicates != 0 {
		t.Fatalf("built %+v", sum)
	}
	s, err := openBytes(data)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	i := 0
	for r, err := range s.Records(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		if i == len(records) || r != records[i] {
			t.Fatalf("record %d is %+v", i, r)
		}
		i++
	}
	if i != len(records) {
		t.Fatalf("%d records, want %d", i, len(records))
	}
	for _, dir := range []string{"", "flat", "mixed", "deep", "deep/699"} {
		assertListed(t, s, dir, records)
	}
	if err := s.Verify(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	// Many ask at once, in a cache that holds few blocks.
	small := snapshotOf(t, "", SnapshotConfig{CacheBytes: 200_000}, records)
	defer small.Close()
	var group sync.WaitGroup
	for worker := range 4 {
		group.Go(func() { askAtRandom(t, small, records, rand.New(rand.NewPCG(uint64(worker), 9)), 3000) })
	}
	group.Wait()
	if held := small.Stats().CacheBytes; held > 200_000 {
		t.Errorf("%d bytes are held", held)
	}
}

// assertListed compares what a directory shows with what the keys say.
func assertListed(t *testing.T, s *Snapshot, dir string, records []Record) {
	t.Helper()
	prefix := dir
	if prefix != "" {
		prefix += "/"
	}
	dirs := map[string]bool{}
	var want []string
	first := sort.Search(len(records), func(i int) bool { return records[i].Key >= prefix })
	for _, r := range records[first:] {
		rest, ok := strings.CutPrefix(r.Key, prefix)
		if !ok {
			break
		}
		if component, _, folded := strings.Cut(rest, "/"); folded {
			if !dirs[component] {
				dirs[component] = true
				want = append(want, component+"/")
			}
		} else {
			want = append(want, rest)
		}
	}
	for i, item := range want {
		if name, isDir := strings.CutSuffix(item, "/"); isDir {
			want[i] = name
		} else if dirs[item] {
			want[i] = item + "%~file"
		}
	}
	if got := names(readTree(t, s, dir, 1000)); !slices.Equal(got, want) {
		t.Errorf("%q shows %d names, want %d", dir, len(got), len(want))
	}
	if got := names(readTree(t, namesOnly{s}, dir, 777)); !slices.Equal(got, want) {
		t.Errorf("%q shows %d names only, want %d", dir, len(got), len(want))
	}
	var numbered []string
	if err := s.ReadDirAt(t.Context(), dir, 0, true, func(_ int64, e *Entry) bool { numbered = append(numbered, e.Name); return true }); err != nil || !slices.Equal(numbered, want) {
		t.Errorf("%q shows %d names by position, %v, want %d", dir, len(numbered), err, len(want))
	}
}

// askAtRandom looks up keys that are there, and some that are not.
func askAtRandom(t *testing.T, s *Snapshot, records []Record, r *rand.Rand, n int) {
	ctx := context.Background()
	for range n {
		want := records[r.IntN(len(records))]
		if got, err := s.Get(ctx, want.Key); err != nil || got != want {
			t.Errorf("get %q: %+v, %v", want.Key, got, err)
			return
		}
		slash := strings.LastIndexByte(want.Key, '/')
		name := want.Key[slash+1:]
		if e, _, err := s.Lookup(ctx, want.Key[:slash], name); err != nil || (e.Kind == File && e.Object != want.Object()) {
			t.Errorf("look up %q: %+v, %v", want.Key, e, err)
			return
		}
		for _, absent := range []string{name + "0", name[:len(name)-1] + "\x01", "a", "zz"} {
			if there(records, want.Key[:slash+1]+absent) {
				continue // a longer number
			}
			if e, _, err := s.Lookup(ctx, want.Key[:slash], absent); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("look up %q beside %q: %+v, %v", absent, want.Key, e, err)
				return
			}
		}
		if stats, err := s.DirStats(ctx, want.Key[:slash]); err != nil || stats.Files == 0 {
			t.Errorf("sums of %q: %+v, %v", want.Key[:slash], stats, err)
			return
		}
	}
}

// there reports whether key is one of the sorted records, or a directory of some.
func there(records []Record, key string) bool {
	for _, k := range []string{key, key + "/"} {
		i := sort.Search(len(records), func(i int) bool { return records[i].Key >= k })
		if i < len(records) && (records[i].Key == key || strings.HasPrefix(records[i].Key, key+"/")) {
			return true
		}
	}
	return false
}
