package build

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/pailfs/pailfs/manifest"
	"github.com/pailfs/pailfs/oss"
	"github.com/pailfs/pailfs/oss/ossemu"
)

var nastyKeys = []string{
	"a", "a/b", "a-", "a//b", "a/./b", "a/../b", "a/", "b/", "c/d/", "%~", "x%~file", "x", "x/y",
	"space and + and %25 & <x> \"q\"", "日本/語", "\U0001F600/x", "tab\tnew\nline", `back\slash`, "é", strings.Repeat("n", 300),
	".pailfs/manifests/latest", ".pailfs", "p/.pailfs/manifests/latest", "p/.pailfs", "p/a", "p/.pailfsx/a", "q/.pailfs/b",
}

func TestListingHoldsEveryObjectOfThePrefix(t *testing.T) {
	e, b := store(t)
	fill(t, e, nastyKeys)
	fill(t, e, numbered("p/n%04d", 2500))
	for _, prefix := range []string{"", "p/", "a/", "nothing/"} {
		cfg := config(t, b)
		cfg.Prefix = prefix
		cfg.Number = func(context.Context) (uint64, error) { return 7, nil }
		began := time.Now()
		got, result := mustBuild(t, cfg)
		same(t, inBucket(t, b, prefix), got)
		info := open(t, result.Path).Info()
		if info.Generation != 7 || info.Root != prefix || info.Source != "listing" || info.BuiltBy != "test" ||
			info.Properties["bucket"] != cfg.Name || info.Objects != int64(len(got)) {
			t.Errorf("the manifest says %+v", info)
		}
		if info.Began.Before(began.Add(-time.Second)) || info.Ended.Before(info.Began) || info.Ended.After(time.Now()) {
			t.Errorf("from %s to %s, and it ran from %s", info.Began, info.Ended, began)
		}
	}
}

// Objects come and go while it is built, and the server refuses, resets and cuts
// answers short: what was there all the time is there once.
func TestListingUnderFaultsAndChangesLosesAndRepeatsNothing(t *testing.T) {
	e, b := store(t)
	stable := slices.Concat(numbered("flat-%06d", 6000), numbered("deep/%03d/x", 900), numbered("h/%04x", 3000))
	slices.Sort(stable)
	fill(t, e, stable)
	want := inBucket(t, b, "")
	if err := e.Server.SetFaults([]ossemu.Fault{
		{Kind: ossemu.FaultError, Code: "QpsLimitExceeded", Every: 5},
		{Kind: ossemu.FaultError, Code: "InternalError", Every: 11},
		{Kind: ossemu.FaultReset, Every: 13},
		{Kind: ossemu.FaultTruncate, Every: 17},
		{Kind: ossemu.FaultResetBody, Every: 19},
	}); err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	var changing sync.WaitGroup
	changing.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			key := fmt.Sprintf("%s~%d", stable[i*7919%len(stable)], i%50)
			if _, err := e.Server.Put(e.Bucket, key, strings.NewReader("comes and goes")); err != nil {
				t.Error(err)
				return
			}
			if i%3 != 0 {
				if err := e.Server.Delete(e.Bucket, key); err != nil {
					t.Error(err)
					return
				}
			}
		}
	})
	got, _ := mustBuild(t, config(t, b))
	close(stop)
	changing.Wait()
	if !slices.IsSortedFunc(got, func(a, b manifest.Record) int { return strings.Compare(a.Key, b.Key) }) {
		t.Error("a key is there twice, or not in order")
	}
	got = slices.DeleteFunc(got, func(r manifest.Record) bool { return strings.Contains(r.Key, "~") })
	same(t, want, got)
}

var errKilled = errors.New("killed")

// A build fails after a number of requests and is begun again, over and over: it
// ends, and lists no page that it had finished.
func TestInterruptedListingGoesOn(t *testing.T) {
	e, b := store(t)
	keys := slices.Concat(numbered("flat-%06d", 8000), numbered("deep/%03d/x", 400))
	fill(t, e, keys)
	cfg := config(t, b)
	s := &stopAfter{Bucket: b, err: errKilled}
	cfg.Bucket = s
	attempts := 0
	for ; ; attempts++ {
		s.lists = 3 + attempts // a request that fails ends those beside it
		result, err := try(t.Context(), cfg)
		if err == nil {
			if !result.Resumed || result.Replayed == 0 {
				t.Errorf("it did not go on: %+v", result)
			}
			same(t, inBucket(t, b, ""), recordsOf(t, open(t, result.Path)))
			break
		}
		if !errors.Is(err, errKilled) {
			t.Fatal(err)
		}
		if attempts > 200 {
			t.Fatal("it does not come to an end")
		}
	}
	if attempts < 2 {
		t.Errorf("it was interrupted %d times only", attempts)
	}
	// Now the log is whole: nothing is asked for.
	s.made, s.lists = 0, 0
	got, _ := mustBuild(t, cfg)
	same(t, inBucket(t, b, ""), got)
	if s.made != 0 {
		t.Errorf("a finished build made %d requests", s.made)
	}
}

// The log is cut at any byte, as by loss of power: the build ends with the same
// result.
func TestALogThatWasCutIsReadUpToThere(t *testing.T) {
	e, b := store(t)
	fill(t, e, numbered("%05d", 5000))
	want := inBucket(t, b, "")
	cfg := config(t, b)
	mustBuild(t, cfg)
	log, err := os.ReadFile(filepath.Join(cfg.StateDir, progressFile))
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(r *rapid.T) {
		cut := slices.Clone(log[:rapid.IntRange(0, len(log)).Draw(r, "length")])
		if len(cut) > 0 && rapid.Bool().Draw(r, "flip") {
			cut[rapid.IntRange(0, len(cut)-1).Draw(r, "at")] ^= 0x10
		}
		if err := os.WriteFile(filepath.Join(cfg.StateDir, progressFile), cut, 0o600); err != nil {
			r.Fatal(err)
		}
		got, _ := mustBuild(t, cfg)
		same(t, want, got)
		if t.Failed() {
			r.Fatal("see above")
		}
	})
}

func TestAStateDirectoryBelongsToOneBuild(t *testing.T) {
	e, b := store(t)
	fill(t, e, []string{"a", "p/b"})
	cfg := config(t, b)
	first, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Open(cfg); !errors.Is(err, ErrBusy) {
		t.Errorf("a second build in the same directory: %v", err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	other := cfg
	other.Prefix = "p/"
	if _, err := Open(other); err == nil || !strings.Contains(err.Error(), "--restart") {
		t.Errorf("another build in the same directory: %v", err)
	}
	other.Restart = true
	got, _ := mustBuild(t, other)
	same(t, inBucket(t, b, "p/"), got)
	again, err := Open(other)
	if err != nil {
		t.Fatal(err)
	}
	if err := again.Forget(); err != nil {
		t.Error(err)
	}
	if err := again.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(cfg.StateDir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the directory of a forgotten build: %v", err)
	}
}

func TestWorkThatIsTooOldIsDropped(t *testing.T) {
	e, b := store(t)
	fill(t, e, []string{"a", "b"})
	cfg := config(t, b)
	mustBuild(t, cfg)
	e.Delete("a")
	log := filepath.Join(cfg.StateDir, progressFile)
	if got, result := mustBuild(t, cfg); !result.Resumed || len(got) != 2 {
		t.Errorf("fresh work was not gone on with: %+v", result)
	}
	old := time.Now().Add(-staleAfter - time.Minute)
	if err := os.Chtimes(log, old, old); err != nil {
		t.Fatal(err)
	}
	again, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	result, err := again.Run(t.Context())
	if err != nil || result.Resumed || result.Summary.Objects != 1 || again.Dropped().Sub(old).Abs() > time.Minute {
		t.Errorf("%+v, dropped %s, %v", result, again.Dropped(), err)
	}
	if err := again.Close(); err != nil {
		t.Error(err)
	}
}

func TestAttributesAreAskedForOnce(t *testing.T) {
	e, b := store(t)
	putMeta(t, b, "d/", map[string]string{"mode": "16877", "uid": "7"})
	putMeta(t, b, "d/file", map[string]string{"mode": "33188", "uid": "1000", "gid": "100", "mtime": "1700000000.25", "label": "cat"})
	putMeta(t, b, "d/odd", map[string]string{"mode": "rw-r--r--", "uid": "-1", "mtime": "yesterday"})
	putMeta(t, b, "d/plain", nil)
	cfg := config(t, b)
	cfg.Attrs = true
	records, result := mustBuild(t, cfg)
	got := map[string]*manifest.Attr{}
	for _, r := range records {
		got[r.Key] = r.Attr
		if !r.HasCRC64 {
			t.Errorf("%s has no CRC-64", r.Key)
		}
	}
	want := map[string]*manifest.Attr{
		"d/": {Known: manifest.AttrMode | manifest.AttrUID, Mode: 0o755, UID: 7},
		"d/file": {
			Known: manifest.AttrMode | manifest.AttrUID | manifest.AttrGID | manifest.AttrMTime, Mode: 0o644, UID: 1000, GID: 100,
			MTime: time.Unix(1700000000, 250000000).UTC(), User: []manifest.UserAttr{{Name: "label", Value: "cat"}},
		},
		"d/odd":   nil,
		"d/plain": nil,
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("attributes (-want +got):\n%s", d)
	}
	// An update asks for what has changed, and for what had nothing to tell.
	putMeta(t, b, "d/new", map[string]string{"mode": "33152"})
	s := &stopAfter{Bucket: b, unlimited: true}
	update := config(t, s)
	update.Attrs = true
	update.Source = &Listing{Old: open(t, result.Path)}
	records, _ = mustBuild(t, update)
	if len(records) != 5 || s.askedHeads["d/new"] != 1 || s.askedHeads["d/file"] != 0 || s.askedHeads["d/"] != 0 {
		t.Errorf("%d records, asked for %v", len(records), s.askedHeads)
	}
	if e.Requests("") == 0 {
		t.Error("the emulator was not asked at all")
	}
}

func TestUpdateListsThePrefixesAndKeepsTheRest(t *testing.T) {
	e, b := store(t)
	fill(t, e, numbered("a/%04d", 1500))
	fill(t, e, numbered("b/%04d", 1500))
	fill(t, e, numbered("c/%04d", 10))
	_, result := mustBuild(t, config(t, b))
	old := open(t, result.Path)
	e.Delete("a/0003")
	e.Delete("b/0007")
	fill(t, e, []string{"a/new", "b/new", "c/new"})
	e.Put("a/0005", []byte("changed"))
	s := &stopAfter{Bucket: b, unlimited: true}
	cfg := config(t, s)
	cfg.Source = &Listing{Old: old, Below: []string{"a/", "a/0", "c/"}}
	got, result := mustBuild(t, cfg)
	newer := open(t, result.Path)
	want := slices.DeleteFunc(inBucket(t, b, ""), func(r manifest.Record) bool { return r.Key == "b/new" })
	for _, r := range recordsOf(t, old) {
		if r.Key == "b/0007" {
			i, _ := slices.BinarySearchFunc(want, r.Key, func(r manifest.Record, key string) int { return strings.Compare(r.Key, key) })
			want = slices.Insert(want, i, r)
		}
	}
	same(t, want, got)
	var told []string
	counts, err := Diff(t.Context(), old, newer, "", func(d Difference) error {
		told = append(told, string(d.Kind)+" "+d.Key())
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"removed a/0003", "changed a/0005", "added a/new", "added c/new"}, told); d != "" {
		t.Errorf("differences (-want +got):\n%s", d)
	}
	if d := cmp.Diff(Counts{Added: 2, Removed: 1, Changed: 1, Same: 3008}, counts); d != "" {
		t.Errorf("counts (-want +got):\n%s", d)
	}
	if p := newer.Info().Properties; p["below"] != `["a/" "c/"]` || p["over-generation"] != "0" {
		t.Errorf("the manifest says %v", p)
	}
	// The same when it is interrupted at every request.
	cfg = config(t, s)
	cfg.Source = &Listing{Old: old, Below: []string{"a/", "c/"}}
	s.unlimited, s.err = false, errKilled
	for attempts := 0; ; attempts++ {
		s.lists = 1 + attempts
		result, err = try(t.Context(), cfg)
		if err == nil {
			break
		}
		if !errors.Is(err, errKilled) || attempts > 100 {
			t.Fatal(err)
		}
	}
	same(t, want, recordsOf(t, open(t, result.Path)))
	if _, err := try(t.Context(), Config{
		Bucket: b, Name: cfg.Name, Prefix: "a/", StateDir: filepath.Join(t.TempDir(), "s"), Source: &Listing{Old: old, Below: []string{"c/"}},
	}); err == nil {
		t.Error("a prefix outside the manifest was taken")
	}
}

func TestSampleFindsWhatChanged(t *testing.T) {
	e, b := store(t)
	fill(t, e, numbered("%04d", 3000))
	_, result := mustBuild(t, config(t, b))
	s := &Sample{Snapshot: open(t, result.Path), Bucket: b, Objects: 100, Pages: 4, Parallel: 4, Seed: 1}
	counts, err := s.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if counts.Any() || counts.Same < 1000 {
		t.Errorf("nothing changed: %+v", counts)
	}
	// As many are asked for as there are: all that differs is found.
	e.Delete("0100")
	e.Put("0200", []byte("other"))
	fill(t, e, []string{"0200-new"})
	told := map[string]DifferenceKind{}
	var done int64
	s = &Sample{
		Snapshot: open(t, result.Path), Bucket: b, Objects: 5000, Pages: 1, Parallel: 4,
		Tell:     func(d Difference) error { told[d.Key()] = d.Kind; return nil },
		Progress: func(n, _ int64) { done = max(done, n) },
	}
	s.Parallel = 1
	if counts, err = s.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := map[string]DifferenceKind{"0100": Removed, "0200": Changed, "0200-new": Added}
	if d := cmp.Diff(want, told); d != "" {
		t.Errorf("differences (-want +got):\n%s", d)
	}
	if d := cmp.Diff(Counts{Added: 1, Removed: 1, Changed: 1, Same: 2998}, counts); d != "" {
		t.Errorf("counts (-want +got):\n%s", d)
	}
	if done != 3001 {
		t.Errorf("%d requests were reported", done)
	}
}

// What is logged comes back.
func TestRecordsSurviveTheLog(t *testing.T) {
	text := rapid.StringN(0, 20, 60)
	number := rapid.Uint32()
	attr := rapid.Custom(func(t *rapid.T) *manifest.Attr {
		a := &manifest.Attr{
			Known: manifest.AttrSet(rapid.IntRange(0, 31).Draw(t, "known")),
			Mode:  number.Draw(t, "mode"), UID: number.Draw(t, "uid"), GID: number.Draw(t, "gid"), Target: text.Draw(t, "target"),
		}
		if a.Known&manifest.AttrMTime != 0 {
			a.MTime = time.Unix(rapid.Int64Range(-1e10, 1e10).Draw(t, "seconds"), rapid.Int64Range(0, 999999999).Draw(t, "nanos")).UTC()
		}
		for range rapid.IntRange(0, 2).Draw(t, "pairs") {
			a.User = append(a.User, manifest.UserAttr{Name: text.Draw(t, "name"), Value: text.Draw(t, "value")})
		}
		return a
	})
	record := rapid.Custom(func(t *rapid.T) manifest.Record {
		r := manifest.Record{
			Key: text.Draw(t, "key"), ETag: text.Draw(t, "etag"), Size: rapid.Int64().Draw(t, "size"),
			Symlink: rapid.Bool().Draw(t, "symlink"),
		}
		if rapid.Bool().Draw(t, "has time") {
			r.ModTime = time.Unix(rapid.Int64Range(-1e10, 1e10).Draw(t, "time"), 0).UTC()
		}
		if r.HasCRC64 = rapid.Bool().Draw(t, "has crc"); r.HasCRC64 {
			r.CRC64 = rapid.Uint64().Draw(t, "crc")
		}
		if rapid.Bool().Draw(t, "has attr") {
			r.Attr = attr.Draw(t, "attr")
		}
		return r
	})
	rapid.Check(t, func(t *rapid.T) {
		want := rapid.SliceOf(record).Draw(t, "records")
		encoded := appendRecords(nil, want)
		got, err := decodeRecords(string(encoded))
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, got); d != "" && len(want)+len(got) > 0 {
			t.Fatalf("records (-want +got):\n%s", d)
		}
		if len(encoded) > 1 {
			cut := encoded[:rapid.IntRange(0, len(encoded)-1).Draw(t, "cut")]
			if _, err := decodeRecords(string(cut)); err == nil {
				t.Fatalf("%d of %d bytes were read as whole", len(cut), len(encoded))
			}
		}
	})
}

func FuzzDecodeRecords(f *testing.F) {
	f.Add([]byte{})
	f.Add(appendRecords(nil, []manifest.Record{{Key: "a", ETag: "E", Attr: &manifest.Attr{Target: "t"}}, {Key: "ab", HasCRC64: true}}))
	f.Fuzz(func(t *testing.T, text []byte) {
		if records, err := decodeRecords(string(text)); err == nil {
			again, err := decodeRecords(string(appendRecords(nil, records)))
			if err != nil || len(again) != len(records) {
				t.Errorf("what was read cannot be written and read again: %v", err)
			}
		}
	})
}

var _ Bucket = oss.Bucket(nil)
