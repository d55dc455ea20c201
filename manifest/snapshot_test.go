package manifest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/pailfs/pailfs/oss"
)

var testHeader = Header{
	Generation: 7, Began: time.Unix(1_750_000_000, 5).UTC(), Ended: time.Unix(1_750_000_100, 0).UTC(),
	BuiltBy: "pailfs test", Source: "a test", Properties: map[string]string{"b": "2", "a": "1"},
}

// recordsOf returns what is in b under root, in the order of keys.
func recordsOf(b *fakeBucket, root string) []Record {
	b.mu.Lock()
	defer b.mu.Unlock()
	var all []Record
	for _, key := range b.mu.keys {
		if o := b.mu.objects[key]; strings.HasPrefix(key, root) {
			all = append(all, RecordOf(&o))
		}
	}
	return all
}

type fataler interface {
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

// buildTo returns the manifest of records.
func buildTo(t fataler, cfg BuilderConfig, records []Record) ([]byte, Summary) {
	b, err := NewBuilder(cfg)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range records {
		if err := b.Add(r); err != nil {
			t.Fatal(err)
		}
	}
	var out bytes.Buffer
	sum, err := b.FinishTo(context.Background(), &out, testHeader)
	if err := errors.Join(err, b.Close()); err != nil {
		t.Fatal(err)
	}
	return out.Bytes(), sum
}

// snapshotOf returns the snapshot of records.
func snapshotOf(t fataler, root string, cfg SnapshotConfig, records []Record) *Snapshot {
	data, _ := buildTo(t, BuilderConfig{Root: root}, records)
	s, err := OpenSnapshotAt("test", bytes.NewReader(data), int64(len(data)), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Whatever the keys are, a snapshot shows what a live listing of them does: the
// same names and objects, in the same order, and the same problems; and its
// records are the keys.
func TestSnapshotIsWhatTheKeysSay(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		b := drawBucket(rt)
		prefix := rapid.SampledFrom([]string{"", "", "a/", "a//", "./"}).Draw(rt, "prefix")
		root := prefix
		if rapid.Bool().Draw(rt, "wholeBucket") {
			root = ""
		}
		records := recordsOf(b, root)
		shuffled := rapid.Permutation(records).Draw(rt, "order")
		cfg := SnapshotConfig{Prefix: prefix, CacheBytes: rapid.SampledFrom([]int64{1, 3000, 0}).Draw(rt, "cache")}
		s := snapshotOf(rt, root, cfg, shuffled)
		defer s.Close()
		l := newTestLive(t, LiveConfig{Prefix: prefix, TTL: time.Hour}, b)
		defer l.Close()
		want := modelOf(b, prefix)
		ctx := context.Background()
		for _, dir := range slices.Sorted(maps.Keys(want.dirs)) {
			shown := want.dirs[dir]
			limit := func() int { return rapid.IntRange(1, 5).Draw(rt, "limit") }
			entries := readTree(rt, s, dir, limit())
			if diff := cmp.Diff(readTree(rt, l, dir, 1000), entries); diff != "" {
				rt.Fatalf("%q, live and snapshot: %s", dir, diff)
			}
			got := map[string]Entry{}
			for _, e := range entries {
				got[e.Name] = withoutCursor(e)
			}
			if diff := cmp.Diff(shown, got); diff != "" {
				rt.Fatalf("%q: %s", dir, diff)
			}
			var bare []Entry
			for _, e := range entries {
				if e.Kind != Directory {
					e.Object = oss.Object{}
				}
				bare = append(bare, e)
			}
			if diff := cmp.Diff(bare, readTree(rt, namesOnly{s}, dir, limit())); diff != "" {
				rt.Fatalf("%q, names only: %s", dir, diff)
			}
			if diff := cmp.Diff(stripped(entries), readAt(rt, s, dir, false, limit)); diff != "" {
				rt.Fatalf("%q, by position: %s", dir, diff)
			}
			if diff := cmp.Diff(stripped(bare), readAt(rt, s, dir, true, limit)); diff != "" {
				rt.Fatalf("%q, names only, by position: %s", dir, diff)
			}
			candidates := append(names(entries), "a", "absent", "%~", "%~file", "a%~file", ".pailfs", "zz", strings.Repeat("x", 256))
			for _, name := range candidates {
				e, _, err := s.Lookup(ctx, dir, name)
				w, ok := shown[name]
				if ok != (err == nil) || (err != nil && !errors.Is(err, fs.ErrNotExist)) || e != w {
					rt.Fatalf("lookup %q in %q: %+v, %v, want %+v", name, dir, e, err, w)
				}
				below := path.Join(dir, name)
				if _, isDir := want.dirs[below]; !isDir {
					if _, _, err := s.ReadDir(ctx, below, "", 1); !errors.Is(err, fs.ErrNotExist) {
						rt.Fatalf("read %q: %v", below, err)
					}
				}
			}
			assertDirStats(rt, s, prefix, dir, want, records)
		}
		if got, want := s.Problems().Count, int64(len(want.reported)); got != want {
			rt.Fatalf("%d problems, want %d: %v", got, want, s.Problems().Examples)
		}
		if prefix == root {
			live := map[string]string{}
			for _, p := range l.Problems().Examples {
				live[p.Key] = p.Reason
			}
			for _, p := range s.Problems().Examples {
				if reason, ok := live[p.Key]; (ok || len(live) < maxExamples) && reason != p.Reason {
					rt.Fatalf("problem %q: %q, want %q", p.Key, p.Reason, reason)
				}
			}
		}
		assertRecords(rt, s, records)
		if err := s.Verify(ctx, nil); err != nil {
			rt.Fatal(err)
		}
	})
}

// stripped returns entries without cursors.
func stripped(entries []Entry) []Entry {
	var all []Entry
	for _, e := range entries {
		all = append(all, withoutCursor(e))
	}
	return all
}

// readAt reads dir by position, some entries at a time.
func readAt(t fataler, s *Snapshot, dir string, namesOnly bool, limit func() int) []Entry {
	var all []Entry
	next := int64(0)
	for more := true; more; {
		more = false
		left := limit()
		err := s.ReadDirAt(context.Background(), dir, next, namesOnly, func(position int64, e *Entry) bool {
			if position < next {
				t.Fatalf("%q at position %d, after %d", e.Name, position, next)
			}
			all, next, more = append(all, *e), position+1, true
			left--
			return left > 0
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// namesOnly is a tree whose directories are read names only.
type namesOnly struct{ *Snapshot }

func (n namesOnly) ReadDir(ctx context.Context, dir, after string, limit int) ([]Entry, Validity, error) {
	return n.ReadDirNames(ctx, dir, after, limit)
}

func readTree(t fataler, tree Tree, dir string, limit int) []Entry {
	var all []Entry
	cursor := ""
	for {
		entries, _, err := tree.ReadDir(context.Background(), dir, cursor, limit)
		if err != nil {
			t.Fatalf("read %q after %q: %v", dir, cursor, err)
		}
		if len(entries) == 0 {
			return all
		}
		all = append(all, entries...)
		cursor = entries[len(entries)-1].Cursor
	}
}

// assertDirStats compares the sums of dir with those of the records below it.
func assertDirStats(t fataler, s *Snapshot, mounted, dir string, m *model, records []Record) {
	prefix, _ := prefixOf(mounted, dir)
	var want DirStats
	dirs := map[string]bool{}
	for _, r := range records {
		rest, ok := strings.CutPrefix(r.Key, prefix)
		if !ok || isOwn(r.Key, mounted) {
			continue
		}
		if !strings.HasSuffix(r.Key, "/") || r.Size > 0 || r.Symlink {
			want.Files++
		}
		want.Bytes += r.Size
		for i, c := range rest {
			if c == '/' {
				dirs[rest[:i]] = true
			}
		}
	}
	want.Directories = int64(len(dirs))
	got, err := s.DirStats(context.Background(), dir)
	if errors.Is(err, fs.ErrNotExist) && len(m.dirs[dir]) == 0 && want == (DirStats{}) {
		return
	}
	if err != nil || got != want {
		t.Fatalf("%q has %+v, %v, want %+v", dir, got, err, want)
	}
}

// assertRecords compares the records of s, all and those under prefixes, with
// what was put in.
func assertRecords(t *rapid.T, s *Snapshot, records []Record) {
	records = slices.DeleteFunc(slices.Clone(records), func(r Record) bool { return isOwn(r.Key, s.root) })
	for _, prefix := range []string{"", "a", "a/", "a/b", "b", "a//", "zz/", "./", "\xff"} {
		var want []Record
		for _, r := range records {
			if strings.HasPrefix(r.Key, prefix) {
				want = append(want, r)
			}
		}
		var got []Record
		for r, err := range s.Records(context.Background(), prefix) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, r)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("records under %q: %s", prefix, diff)
		}
	}
	for _, r := range records {
		if got, err := s.Get(context.Background(), r.Key); err != nil || !got.Equal(&r) {
			t.Fatalf("get %q: %+v, %v, want %+v", r.Key, got, err, r)
		}
	}
}

// One pass through a directory may begin in one generation and go on in others, or
// in a live tree: no name comes twice, and none that stays is left out.
func TestPassAcrossGenerations(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		b := drawBucket(rt)
		always := modelOf(b, "").dirs[""]
		seen := map[string]bool{}
		cursor := ""
		for {
			var tree Tree
			if rapid.Bool().Draw(rt, "live") {
				l := newTestLive(t, LiveConfig{}, b)
				defer l.Close()
				tree = l
			} else {
				s := snapshotOf(rt, "", SnapshotConfig{}, recordsOf(b, ""))
				defer s.Close()
				tree = s
			}
			entries, _, err := tree.ReadDir(context.Background(), "", cursor, rapid.IntRange(1, 4).Draw(rt, "limit"))
			if err != nil {
				rt.Fatal(err)
			}
			if len(entries) == 0 {
				break
			}
			for _, e := range entries {
				if seen[e.Name] {
					rt.Fatalf("%q comes twice", e.Name)
				}
				seen[e.Name] = true
			}
			cursor = entries[len(entries)-1].Cursor
			key := rapid.SampledFrom([]string{"a", "a/x", "a-", "a-/x", "ab", "a.", "a./", "b", "zz"}).Draw(rt, "key")
			if rapid.IntRange(0, 3).Draw(rt, "change") == 0 {
				b.remove(key)
			} else {
				b.put(key, 1)
			}
			now := modelOf(b, "").dirs[""]
			for name, e := range always {
				if now[name].Kind != e.Kind || now[name].Object.Key != e.Object.Key {
					delete(always, name)
				}
			}
		}
		for name := range always {
			if !seen[name] {
				rt.Fatalf("%q was there all the time and is not shown", name)
			}
		}
	})
}

// A file of a manifest says what it was built with, and everything a record can
// say comes back.
func TestSnapshotHoldsEverything(t *testing.T) {
	when := time.Unix(1_700_000_000, 0).UTC()
	records := []Record{
		{Key: "d/", ETag: strings.Repeat("0", 32), ModTime: when, Attr: &Attr{Known: AttrMode | AttrUID, Mode: 0o750, UID: 1000}},
		{Key: "d/crc", ETag: strings.Repeat("AB", 16), Size: 1 << 40, ModTime: when, CRC64: 1<<64 - 1, HasCRC64: true},
		{Key: "d/link", ETag: "LINK", Size: 1, ModTime: when, Symlink: true, Attr: &Attr{Known: AttrTarget, Target: "d/parts"}},
		{Key: "d/none"},
		{Key: "d/parts", ETag: strings.Repeat("CD", 16) + "-12", Size: 5, ModTime: when, CRC64: 0, HasCRC64: true},
		{Key: "d/user", ETag: `odd "tag"`, Size: 5, ModTime: time.Unix(-5, 0).UTC(), Attr: &Attr{
			Known: AttrMode | AttrGID | AttrMTime, Mode: 0o4755, GID: 1<<32 - 1, MTime: time.Unix(1_600_000_000, 123_456_789).UTC(),
			User: []UserAttr{{Name: "author", Value: "ä"}, {Name: "empty"}},
		}},
	}
	file := filepath.Join(t.TempDir(), "m")
	b, err := NewBuilder(BuilderConfig{})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range records {
		if err := b.Add(r); err != nil {
			t.Fatal(err)
		}
	}
	sum, err := b.Finish(context.Background(), file, testHeader)
	if err := errors.Join(err, b.Close()); err != nil {
		t.Fatal(err)
	}
	s, err := OpenSnapshot(file, SnapshotConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	info := s.Info()
	if diff := cmp.Diff(testHeader, info.Header); diff != "" {
		t.Error(diff)
	}
	if want := (Summary{Objects: 6, Directories: 2, Bytes: 1<<40 + 11, FileBytes: info.FileBytes}); sum != want {
		t.Errorf("built %+v, want %+v", sum, want)
	}
	if info.Objects != 6 || info.Directories != 2 || info.Bytes != 1<<40+11 || info.Attrs != 3 || info.Version != 1 || info.Root != "" {
		t.Errorf("info %+v", info)
	}
	for _, want := range records {
		got, err := s.Get(context.Background(), want.Key)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%q: %s", want.Key, diff)
		}
	}
	e, _, err := s.Lookup(context.Background(), "", "d")
	if err != nil || e.Kind != Directory || e.Attr == nil || e.Attr.Mode != 0o750 {
		t.Errorf("directory %+v, %v", e, err)
	}
	link, _, err := s.Lookup(context.Background(), "d", "link")
	if err != nil {
		t.Fatal(err)
	}
	link.Attr = nil // as the file system asks later
	if target, err := s.ReadLink(context.Background(), link); err != nil || target != "parts" {
		t.Errorf("link to %q, %v", target, err)
	}
}

// A manifest of runs is the one of everything in them, whatever was in which; the
// last run wins.
func TestManifestOfRuns(t *testing.T) {
	dir := t.TempDir()
	b := newFakeBucket("p/a", "p/b/c", "p/b/d", "p/e//f", "p/.pailfs/x")
	records := recordsOf(b, "p/")
	want, _ := buildTo(t, BuilderConfig{Root: "p/"}, records)
	old := records[1]
	old.Size = 99
	var runs []string
	for i, part := range [][]Record{{old, old}, {records[4], records[1], records[0]}, {}, {records[3], records[2]}} {
		b, err := NewBuilder(BuilderConfig{Root: "p/", SpillDir: dir, MemoryBytes: 4 << 20})
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range part {
			if err := b.Add(r); err != nil {
				t.Fatal(err)
			}
		}
		runs = append(runs, filepath.Join(dir, strconv.Itoa(i)))
		duplicates, skipped, err := b.FinishRun(t.Context(), runs[i])
		if err := errors.Join(err, b.Close()); err != nil {
			t.Fatal(err)
		}
		if want := [][2]int64{{1, 0}, {0, 1}, {0, 0}, {0, 0}}[i]; want != [2]int64{duplicates, skipped} {
			t.Errorf("run %d: %d duplicates, %d skipped", i, duplicates, skipped)
		}
	}
	out := filepath.Join(dir, "manifest")
	sum, err := BuildRuns(t.Context(), out, "p/", dir, testHeader, runs)
	if err != nil {
		t.Fatal(err)
	}
	if sum.Objects != 4 || sum.Duplicates != 1 {
		t.Errorf("built %+v", sum)
	}
	got, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("it differs from the manifest that was built at once")
	}
	if err := os.Truncate(runs[1], 20); err != nil {
		t.Fatal(err)
	}
	if _, err := BuildRuns(t.Context(), out, "p/", dir, testHeader, runs); err == nil {
		t.Error("a run that is cut short was taken in")
	}
	if again, err := os.ReadFile(out); err != nil || !bytes.Equal(again, got) {
		t.Errorf("a failed build touched the manifest: %v", err)
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != len(runs)+1 {
		t.Errorf("%v left, %v", left, err)
	}
}

// A change of each kind makes of the old records the new ones.
func TestMergeOfChanges(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		keys := rapid.SliceOfNDistinct(rapid.StringMatching("[a-c]{1,2}"), 0, 8, rapid.ID[string])
		versions := map[string]Record{}
		old := slices.Sorted(slices.Values(keys.Draw(rt, "old")))
		var before []Record
		for _, key := range old {
			versions[key] = Record{Key: key, Size: 1}
			before = append(before, versions[key])
		}
		var changes []Change
		for _, key := range slices.Sorted(slices.Values(keys.Draw(rt, "changed"))) {
			c := Change{Record: Record{Key: key, Size: 2}, Deleted: rapid.Bool().Draw(rt, "deleted")}
			changes = append(changes, c)
			if versions[key] = c.Record; c.Deleted {
				delete(versions, key)
			}
		}
		want := []Record{}
		for _, key := range slices.Sorted(maps.Keys(versions)) {
			want = append(want, versions[key])
		}
		got := []Record{}
		for r, err := range Merge(told(before), told(changes)) {
			if err != nil {
				rt.Fatal(err)
			}
			got = append(got, r)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			rt.Fatal(diff)
		}
	})
}

// told gives the elements of s, none with an error.
func told[T any](s []T) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for _, x := range s {
			if !yield(x, nil) {
				return
			}
		}
	}
}

func TestMergeRefusesDisorder(t *testing.T) {
	for _, test := range []struct {
		old     []Record
		changes []Change
	}{
		{old: []Record{{Key: "b"}, {Key: "a"}}},
		{old: []Record{{Key: "b"}, {Key: "b"}}},
		{changes: []Change{{Record: Record{Key: "b"}}, {Record: Record{Key: "a"}}}},
	} {
		var last error
		for _, err := range Merge(told(test.old), told(test.changes)) {
			last = err
		}
		if last == nil {
			t.Errorf("%+v was merged", test)
		}
	}
}

// The first listing of a daemon that has just started is as fast as fresh memory is:
// names that are listed take that of the names.
func TestListingNamesAllocatesTheNamesAlone(t *testing.T) {
	const files = 2000
	var records []Record
	for i := range files {
		records = append(records, Record{Key: fmt.Sprintf("dir/n%08d.JPEG", i), Size: 1})
	}
	s := snapshotOf(t, "", SnapshotConfig{}, records)
	defer s.Close()
	list := func() {
		n := 0
		err := s.ReadDirAt(t.Context(), "dir", 0, true, func(int64, *Entry) bool { n++; return true })
		if err != nil || n != files {
			t.Fatal(n, err)
		}
	}
	list()
	if n := testing.AllocsPerRun(10, list); n > 1.1*files {
		t.Errorf("%.0f allocations for %d names", n, files)
	}
}
