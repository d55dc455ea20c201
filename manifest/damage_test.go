package manifest

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var writeGolden = flag.Bool("golden", false, "write the golden manifest anew")

// goldenFile is a manifest of version 1 as it was written when that was made.
const goldenFile = "testdata/version1.manifest"

// goldenRecords are what it holds: one of everything.
func goldenRecords() []Record {
	when := time.Unix(1_700_000_000, 0).UTC()
	sum := func(i int) string { return fmt.Sprintf("%032X", 0xABCDEF*(i+1)) }
	records := []Record{
		{Key: "p/", ETag: sum(1), ModTime: when, Attr: &Attr{Known: AttrMode, Mode: 0o700}},
		{Key: "p/a", ETag: sum(2), Size: 1, ModTime: when, CRC64: 42, HasCRC64: true},
		{Key: "p/a/", ETag: sum(3), ModTime: when},
		{Key: "p/a/b", ETag: sum(4) + "-17", Size: 1 << 33, ModTime: when.Add(time.Hour)},
		{Key: "p/a//c", ETag: "text", Size: 3},
		{Key: "p/a/../d", Size: 4, ModTime: time.Unix(-7, 0).UTC()},
		{Key: "p/link", ETag: sum(5), Size: 3, Symlink: true, ModTime: when, Attr: &Attr{Known: AttrTarget, Target: "p/a/b"}},
		{Key: "p/nul\x00\xff", ETag: sum(6), Size: 5, ModTime: when, Attr: &Attr{
			Known: AttrMode | AttrUID | AttrGID | AttrMTime, Mode: 0o1644, UID: 7, GID: 8, MTime: when.Add(time.Nanosecond),
			User: []UserAttr{{Name: "n", Value: "v"}},
		}},
		{Key: "p/" + strings.Repeat("x", 300), ETag: sum(7), Size: 6, ModTime: when},
	}
	for i := range 300 {
		r := Record{
			Key: fmt.Sprintf("p/train/n%02d/%04d.JPEG", i/100, i), ETag: sum(i + 10), Size: int64(100_000 + i*i%977),
			ModTime: when.Add(time.Duration(i) * time.Second),
		}
		if i%3 > 0 {
			r.CRC64, r.HasCRC64 = uint64(i)<<50, true
		}
		records = append(records, r)
	}
	return records
}

// contents is all that a snapshot answers, with the error where one was given.
type contents struct {
	Entries map[string][]Entry
	Records []Record
	Stats   DirStats
	Info    Info
}

// errWrong says that a snapshot said something that is not so.
type errWrong struct{ what string }

func (e errWrong) Error() string { return e.what }

// readContents asks s all there is to ask and compares it with want, if that is not
// nil. It returns the first error of s, or an errWrong.
func readContents(s *Snapshot, want *contents) (*contents, error) {
	got := &contents{Entries: map[string][]Entry{}, Info: s.Info()}
	var failed error
	note := func(err error) {
		if failed == nil {
			failed = err
		}
	}
	ctx := context.Background()
	var read func(dir string)
	read = func(dir string) {
		var all []Entry
		for cursor := ""; ; cursor = all[len(all)-1].Cursor {
			entries, _, err := s.ReadDir(ctx, dir, cursor, 100)
			if err != nil {
				note(err)
				break
			}
			if len(entries) == 0 {
				break
			}
			all = append(all, entries...)
		}
		got.Entries[dir] = all
		for i, e := range all {
			if e.Kind == Directory {
				read(path.Join(dir, e.Name))
			}
			if i%16 > 8 {
				continue
			}
			looked, _, err := s.Lookup(ctx, dir, e.Name)
			if err != nil {
				note(err)
			} else if !reflect.DeepEqual(withoutCursor(e), looked) {
				note(errWrong{"lookup and read differ: " + cmp.Diff(withoutCursor(e), looked)})
			}
		}
	}
	read("")
	for r, err := range s.Records(ctx, "") {
		if err != nil {
			note(err)
			break
		}
		got.Records = append(got.Records, r)
	}
	var err error
	if got.Stats, err = s.DirStats(ctx, ""); err != nil {
		note(err)
	}
	note(s.Verify(ctx, nil))
	if want == nil {
		return got, failed
	}
	for dir, entries := range got.Entries {
		if !isPrefix(entries, want.Entries[dir]) {
			return nil, errWrong{"wrong entries in " + dir + ": " + cmp.Diff(want.Entries[dir], entries)}
		}
	}
	if !isPrefix(got.Records, want.Records) {
		return nil, errWrong{"wrong records: " + cmp.Diff(want.Records, got.Records)}
	}
	if err == nil && got.Stats != want.Stats {
		return nil, errWrong{fmt.Sprintf("wrong sums: %+v", got.Stats)}
	}
	if failed == nil && !reflect.DeepEqual(got, want) {
		return nil, errWrong{cmp.Diff(want, got)}
	}
	return got, failed
}

// isPrefix reports whether got is the beginning of want.
func isPrefix[T any](got, want []T) bool {
	return len(got) == 0 || (len(got) <= len(want) && reflect.DeepEqual(got, want[:len(got)]))
}

func openBytes(data []byte) (*Snapshot, error) {
	return OpenSnapshotAt("the.manifest", bytes.NewReader(data), int64(len(data)), SnapshotConfig{})
}

// golden returns the golden manifest and what it says.
func golden(t testing.TB) ([]byte, *contents) {
	t.Helper()
	if *writeGolden {
		data, _ := buildTo(t, BuilderConfig{Root: "p/"}, goldenRecords())
		if err := os.WriteFile(goldenFile, data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	data, err := os.ReadFile(goldenFile)
	if err != nil {
		t.Fatal(err)
	}
	s, err := openBytes(data)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	want, err := readContents(s, nil)
	if err != nil {
		t.Fatal(err)
	}
	return data, want
}

// What was written in version 1 is read as it was meant.
func TestGoldenManifest(t *testing.T) {
	_, got := golden(t)
	records := goldenRecords()
	slices.SortFunc(records, func(a, b Record) int { return strings.Compare(a.Key, b.Key) })
	if diff := cmp.Diff(records, got.Records); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(testHeader, got.Info.Header); diff != "" {
		t.Error(diff)
	}
	// p/a is beside a directory, the component of x is too long, and there are an
	// empty one, two dots, and a NUL.
	if got.Info.Problems != 5 || got.Info.Objects != 309 || got.Info.Directories != 8 || got.Info.Attrs != 3 {
		t.Errorf("%+v", got.Info)
	}
	if want := (DirStats{Files: 307, Directories: 7, Bytes: got.Info.Bytes}); got.Stats != want {
		t.Errorf("%+v, want %+v", got.Stats, want)
	}
}

// Whatever byte of a manifest changes, in whatever way, the manifest is refused, or
// what is damaged gives an error that says so. It never says anything wrong.
func TestEveryChangedByteIsNoticed(t *testing.T) {
	data, want := golden(t)
	step := 1
	if testing.Short() {
		step = 31
	}
	for at := 0; at < len(data); at += step {
		// One bit, another one, all of them: by turns, for it takes its time.
		change := []byte{0x01, 0x80, 0xff}[at%3]
		damaged := slices.Clone(data)
		damaged[at] ^= change
		s, err := openBytes(damaged)
		if err == nil {
			_, err = readContents(s, want)
			if st := s.Stats(); st.Damaged == 0 || st.FirstDamage == nil {
				t.Errorf("byte %d changed by %#x: status says nothing: %+v", at, change, st)
			}
			s.Close()
		}
		var d *DamageError
		if !errors.Is(err, ErrDamaged) || !errors.As(err, &d) {
			t.Fatalf("byte %d changed by %#x: %v", at, change, err)
		}
		if d.File != "the.manifest" || d.Offset < 0 || d.Offset >= int64(len(data)) || !strings.Contains(d.Error(), "pailfs manifest build") {
			t.Fatalf("byte %d changed by %#x: the error does not help: %v", at, change, d)
		}
	}
}

// A manifest that is cut short, or goes on after its end, is refused.
func TestWrongLengthIsRefused(t *testing.T) {
	data, _ := golden(t)
	for n := range data {
		if _, err := openBytes(data[:n]); !errors.Is(err, ErrDamaged) {
			t.Fatalf("the first %d of %d bytes: %v", n, len(data), err)
		}
	}
	for _, more := range [][]byte{{0}, data, data[len(data)-40:], bytes.Repeat([]byte{0}, 4096)} {
		if _, err := openBytes(slices.Concat(data, more)); !errors.Is(err, ErrDamaged) {
			t.Fatalf("%d bytes more: %v", len(more), err)
		}
	}
}

// A manifest of a version to come is refused, and not taken for a damaged one.
func TestNewerVersionIsRefused(t *testing.T) {
	data, _ := golden(t)
	newer := slices.Clone(data)
	binary.LittleEndian.PutUint16(newer[8:], 2)
	binary.LittleEndian.PutUint32(newer[28:], crc32.Checksum(newer[:28], crc32.MakeTable(crc32.Castagnoli)))
	_, err := openBytes(newer)
	if !errors.Is(err, ErrVersion) || errors.Is(err, ErrDamaged) {
		t.Fatal(err)
	}
	for _, part := range []string{"the.manifest", "byte 8", "version 2", "version 1", "newer pailfs"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q is not in: %v", part, err)
		}
	}
}

// The beginning of one manifest and the end of another are not one manifest.
func TestPartsOfAnotherManifestAreNoticed(t *testing.T) {
	data, want := golden(t)
	records := goldenRecords()
	b, err := NewBuilder(BuilderConfig{Root: "p/"})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range records {
		if r.Size > 1000 {
			r.Size ^= 1
		}
		if err := b.Add(r); err != nil {
			t.Fatal(err)
		}
	}
	var other bytes.Buffer
	header := testHeader
	header.Generation++
	if _, err := b.FinishTo(t.Context(), &other, header); err != nil {
		t.Fatal(err)
	}
	b.Close()
	for at := 64; at < min(len(data), other.Len()); at += 64 {
		mixed := slices.Concat(data[:at], other.Bytes()[at:])
		s, err := openBytes(mixed)
		if err == nil {
			_, err = readContents(s, want)
			s.Close()
		}
		if !errors.Is(err, ErrDamaged) {
			t.Fatalf("from byte %d on: %v", at, err)
		}
	}
}

// failingReader fails where it is told to.
type failingReader struct {
	*bytes.Reader
	from, to int64
}

var errDisk = errors.New("the disk fails")

func (r *failingReader) ReadAt(b []byte, at int64) (int, error) {
	if at < r.to && at+int64(len(b)) > r.from {
		return 0, errDisk
	}
	return r.Reader.ReadAt(b, at)
}

// One bad block takes down the names in it and no others, and is told to status.
func TestOtherNamesGoOnBesideABadBlock(t *testing.T) {
	data, _ := golden(t)
	// The second block of 256 begins after the first; any read of its bytes fails.
	r := &failingReader{Reader: bytes.NewReader(data)}
	s, err := OpenSnapshotAt("the.manifest", r, int64(len(data)), SnapshotConfig{CacheBytes: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	_, _, err = s.Lookup(t.Context(), "train/n02", "0299.JPEG")
	if err != nil {
		t.Fatal(err)
	}
	good, bad := 0, 0
	for at := int64(40); at < int64(len(data)); at += 64 {
		r.from, r.to = at, at+8
		for i := range 300 {
			_, _, err := s.Lookup(t.Context(), fmt.Sprintf("train/n%02d", i/100), fmt.Sprintf("%04d.JPEG", i))
			switch {
			case err == nil:
				good++
			case errors.Is(err, ErrDamaged) && errors.Is(err, errDisk):
				bad++
			default:
				t.Fatal(err)
			}
		}
	}
	if good == 0 || bad == 0 {
		t.Errorf("%d lookups went well, %d failed", good, bad)
	}
	if st := s.Stats(); st.Damaged < int64(bad) || st.FirstDamage == nil {
		t.Errorf("status says %+v after %d failures", st, bad)
	}
}

// A file that is cut short while it is used gives errors where nothing is left, and
// nothing worse.
func TestFileCutShortWhileUsed(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "m")
	b, err := NewBuilder(BuilderConfig{})
	if err != nil {
		t.Fatal(err)
	}
	const n = 20_000
	for i := range n {
		if err := b.Add(benchShapeRecord(i)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := b.Finish(t.Context(), name, testHeader); err != nil {
		t.Fatal(err)
	}
	b.Close()
	s, err := OpenSnapshot(name, SnapshotConfig{CacheBytes: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := os.Truncate(name, 64<<10); err != nil {
		t.Fatal(err)
	}
	good, bad := 0, 0
	for i := range n {
		switch _, err := s.Get(t.Context(), benchShapeRecord(i).Key); {
		case err == nil:
			good++
		case errors.Is(err, ErrDamaged):
			bad++
		default:
			t.Fatal(err)
		}
	}
	if bad == 0 {
		t.Errorf("%d lookups went well, %d failed", good, bad)
	}
}

// benchShapeRecord is record i of some tens of thousands.
func benchShapeRecord(i int) Record {
	return Record{Key: fmt.Sprintf("d%03d/f%06d", i/1000, i), ETag: fmt.Sprintf("%032X", i*7919), Size: int64(i), ModTime: time.Unix(int64(i), 0).UTC()}
}

// After Close everything that is not in memory is refused.
func TestClosedSnapshot(t *testing.T) {
	data, _ := buildTo(t, BuilderConfig{}, goldenRecords())
	name := filepath.Join(t.TempDir(), "m")
	if err := os.WriteFile(name, data, 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := OpenSnapshot(name, SnapshotConfig{CacheBytes: 1})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.Close(), s.Close()); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.Lookup(t.Context(), "p", "a"); !errors.Is(err, fs.ErrClosed) || errors.Is(err, ErrDamaged) {
		t.Error(err)
	}
}

func TestSnapshotsThatCannotBeOpened(t *testing.T) {
	data, _ := golden(t)
	dir := t.TempDir()
	whole := filepath.Join(dir, "whole")
	empty := filepath.Join(dir, "empty")
	for name, content := range map[string][]byte{whole: data, empty: nil} {
		if err := os.WriteFile(name, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, test := range []struct {
		path string
		cfg  SnapshotConfig
		want string
	}{
		{filepath.Join(dir, "absent"), SnapshotConfig{}, "absent: no such file"},
		{dir, SnapshotConfig{}, "not a regular file"},
		{empty, SnapshotConfig{}, "0 bytes are no manifest"},
		{whole, SnapshotConfig{Prefix: "p"}, `"p" does not end with a slash`},
		{whole, SnapshotConfig{Prefix: "q/"}, `holds the keys under "p/", and those under "q/"`},
		{whole, SnapshotConfig{Prefix: ".pailfs/x/"}, "pailfs's own"},
		{whole, SnapshotConfig{CacheBytes: -1}, "-1 bytes is negative"},
	} {
		s, err := OpenSnapshot(test.path, test.cfg)
		if err == nil {
			s.Close()
		}
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", test.path, err, test.want)
		}
	}
}

func TestBuilderRefuses(t *testing.T) {
	for _, cfg := range []BuilderConfig{{Root: "p"}, {Root: ".pailfs/"}, {Root: strings.Repeat("x", 1100) + "/"}, {MemoryBytes: 1}} {
		if _, err := NewBuilder(cfg); err == nil {
			t.Errorf("%+.50v was taken", cfg)
		}
	}
	b, err := NewBuilder(BuilderConfig{Root: "p/"})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	for _, r := range []Record{
		{Key: ""},
		{Key: "p"},
		{Key: "q/a"},
		{Key: "p/" + strings.Repeat("x", 5000)},
		{Key: "p/a", Size: -1},
		{Key: "p/a", ETag: strings.Repeat("y", 5000)},
		{Key: "p/a", Attr: &Attr{Known: AttrTarget, Target: strings.Repeat("z", 1<<17)}},
	} {
		if err := b.Add(r); err == nil {
			t.Errorf("%.60q was taken", r.Key)
		}
	}
	if _, err := b.FinishTo(t.Context(), &bytes.Buffer{}, Header{}); err != nil {
		t.Fatal(err)
	}
	if err := b.Add(Record{Key: "p/a"}); err == nil {
		t.Error("a finished builder takes more")
	}
	if _, err := b.FinishTo(t.Context(), &bytes.Buffer{}, Header{}); err == nil {
		t.Error("a builder finishes twice")
	}
}

// A build that is cancelled, or whose disk is full, leaves what was there.
func TestFailedBuildLeavesTheOldManifest(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "m")
	if err := os.WriteFile(name, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	b, err := NewBuilder(BuilderConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if err := b.Add(Record{Key: "a"}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := b.Finish(ctx, name, Header{}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if got, err := os.ReadFile(name); err != nil || string(got) != "old" {
		t.Errorf("%q, %v", got, err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("%v left, %v", left, err)
	}
}
