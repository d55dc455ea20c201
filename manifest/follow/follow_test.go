package follow

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pailfs/pailfs/manifest"
	"github.com/pailfs/pailfs/manifest/publish"
	"github.com/pailfs/pailfs/oss"
)

func TestNothingPublishedIsAnErrorThatSaysSo(t *testing.T) {
	w := newWorld(t)
	if _, err := w.tryOpen(Config{}); !errors.Is(err, publish.ErrNone) {
		t.Errorf("%v", err)
	}
}

func TestANewGenerationIsTakenWhole(t *testing.T) {
	w := newWorld(t)
	a, b := w.put("a", "1"), w.put("d/b", "2")
	w.publish(a, b)
	tree := w.open(Config{})
	if d := cmp.Diff([]string{"a", "d"}, w.names(tree, "")); d != "" {
		t.Fatal(d)
	}
	c := w.put("d/c", "3")
	if _, _, ok := w.find(tree, "d", "c"); ok {
		t.Error("a name is seen that no generation has")
	}
	w.publish(a, b, c)
	w.must(tree.Poll(t.Context()))
	if o, valid, ok := w.find(tree, "d", "c"); !ok || o != c || !time.Time(valid).IsZero() {
		t.Errorf("%+v until %v, %v", o, time.Time(valid), ok)
	}
	swap, err := tree.Next(t.Context())
	w.must(err)
	var told []string
	w.must(swap.Diff(t.Context(), "d", func(d manifest.Difference) bool {
		told = append(told, d.Name)
		return true
	}))
	swap.Done()
	if d := cmp.Diff([]string{"c"}, told); d != "" {
		t.Error(d)
	}
	if s := tree.Status(); s.Generation != 2 || s.Objects != 3 || s.Failures != 0 || s.Taken.IsZero() {
		t.Errorf("status %+v", s)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := tree.Next(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("a step that was told already: %v", err)
	}
}

// Steps that nobody asked for in time are told as one.
func TestNextTellsOfAllThatWasTaken(t *testing.T) {
	w := newWorld(t)
	objects := []oss.Object{w.put("0", "x")}
	w.publish(objects...)
	tree := w.open(Config{})
	for _, name := range []string{"1", "2", "3"} {
		objects = append(objects, w.put(name, "x"))
		w.publish(objects...)
		w.must(tree.Poll(t.Context()))
	}
	swap, err := tree.Next(t.Context())
	w.must(err)
	var told []string
	w.must(swap.Diff(t.Context(), "", func(d manifest.Difference) bool {
		told = append(told, d.Name)
		return true
	}))
	swap.Done()
	if d := cmp.Diff([]string{"1", "2", "3"}, told); d != "" {
		t.Error(d)
	}
}

func TestRunFollowsUntilItsContextEnds(t *testing.T) {
	w := newWorld(t)
	a := w.put("a", "1")
	w.publish(a)
	tree := w.open(Config{Poll: time.Millisecond})
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := tree.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	w.publish(a, w.put("b", "2"))
	swap, err := tree.Next(t.Context()) // waits for Run
	w.must(err)
	swap.Done()
	if _, _, ok := w.find(tree, "", "b"); !ok {
		t.Error("what a step told of is not there")
	}
	cancel()
	running.Wait()
}

func TestADamagedGenerationIsNotTaken(t *testing.T) {
	w := newWorld(t)
	a := w.put("a", "1")
	w.publish(a)
	dir := t.TempDir()
	tree := w.open(Config{Dir: dir, Poll: time.Hour})
	good := w.build(a, w.put("b", "2"))
	content, err := os.ReadFile(good)
	w.must(err)
	w.must(os.WriteFile(good, content[:len(content)-10], 0o600))
	w.publishFile(good, 2)
	for i := range 3 {
		err := tree.Poll(t.Context())
		if i == 0 && !errors.Is(err, manifest.ErrDamaged) || i > 0 && err != nil {
			t.Errorf("poll %d: %v", i, err)
		}
		if err != nil {
			tree.failed(err)
		}
	}
	if s := tree.Status(); s.Generation != 1 || s.Failures != 1 || s.Failing != 1 || !strings.Contains(s.LastError, "generation 2") {
		t.Errorf("status %+v", s)
	}
	if d := cmp.Diff([]string{"a"}, w.names(tree, "")); d != "" {
		t.Error(d)
	}
	if n := strings.Count(w.logged.String(), "no newer manifest can be had"); n != 1 {
		t.Errorf("logged %d times", n)
	}
	w.publish(a, w.put("c", "3"))
	w.must(tree.Poll(t.Context()))
	if s := tree.Status(); s.Generation != 3 || s.Failing != 0 || s.Failures != 1 {
		t.Errorf("afterwards status %+v", s)
	}
	if d := cmp.Diff([]string{"a", "c"}, w.names(tree, "")); d != "" {
		t.Error(d)
	}
	if files := w.files(dir); len(files) != 1 {
		t.Errorf("on disk are %q, want the last generation", files)
	}
}

func TestADamagedGenerationRefusesToOpen(t *testing.T) {
	w := newWorld(t)
	path := w.build(w.put("a", "1"))
	w.must(os.Truncate(path, 100))
	w.publishFile(path, 1)
	if _, err := w.tryOpen(Config{}); !errors.Is(err, manifest.ErrDamaged) {
		t.Errorf("%v", err)
	}
}

func TestAnUnreachableBucketChangesNothing(t *testing.T) {
	w := newWorld(t)
	a := w.put("a", "1")
	w.publish(a)
	tree := w.open(Config{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := tree.Poll(ctx); err == nil {
		t.Error("no error")
	}
	if o, _, ok := w.find(tree, "", "a"); !ok || o != a {
		t.Errorf("%+v, %v", o, ok)
	}
}

func TestARestartDownloadsNothingAgain(t *testing.T) {
	w := newWorld(t)
	g := w.publish(w.put("a", "1"))
	dir := filepath.Join(t.TempDir(), "kept")
	cfg := Config{Dir: dir}
	first, err := w.tryOpen(cfg)
	w.must(err)
	w.must(first.Close())
	// What a killed daemon leaves of a download, and a generation of before.
	litter := filepath.Join(dir, filepath.Base(g.Object.Key)+".1234.tmp")
	w.must(os.WriteFile(litter, []byte("half"), 0o600))
	old := time.Now().Add(-48 * time.Hour) // a younger one might be somebody's
	w.must(os.Chtimes(litter, old, old))
	ranges := &rangeCounter{Bucket: w.bucket}
	w.bucket = ranges
	second := w.open(cfg)
	if ranges.n != 0 {
		t.Errorf("%d ranges were read", ranges.n)
	}
	if d := cmp.Diff([]string{"a"}, w.names(second, "")); d != "" {
		t.Error(d)
	}
	if files := w.files(dir); len(files) != 1 {
		t.Errorf("on disk are %q", files)
	}
}

// rangeCounter counts ranges.
type rangeCounter struct {
	oss.Bucket
	mu sync.Mutex
	n  int
}

func (c *rangeCounter) ReadRange(ctx context.Context, r oss.RangeRequest) (oss.RangeResult, error) {
	c.mu.Lock()
	c.n++
	c.mu.Unlock()
	return c.Bucket.ReadRange(ctx, r)
}

func TestAFileDamagedOnDiskIsDownloadedAgain(t *testing.T) {
	w := newWorld(t)
	w.publish(w.put("a", "1"))
	dir := t.TempDir()
	first, err := w.tryOpen(Config{Dir: dir})
	w.must(err)
	w.must(first.Close())
	path := filepath.Join(dir, w.files(dir)[0])
	content, err := os.ReadFile(path)
	w.must(err)
	content[len(content)-1] ^= 1
	w.must(os.WriteFile(path, content, 0o600))
	second := w.open(Config{Dir: dir})
	if d := cmp.Diff([]string{"a"}, w.names(second, "")); d != "" {
		t.Error(d)
	}
}

func TestWithoutADirectoryNothingStaysOnDisk(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	w := newWorld(t)
	w.publish(w.put("a", "1"))
	tree := w.open(Config{})
	left, err := filepath.Glob(filepath.Join(os.TempDir(), "pailfs-manifest-*"))
	w.must(err)
	if len(left) != 0 {
		t.Errorf("left: %q", left)
	}
	if d := cmp.Diff([]string{"a"}, w.names(tree, "")); d != "" {
		t.Error(d)
	}
}

func TestForgottenNamesAreAskedOfTheBucket(t *testing.T) {
	w := newWorld(t)
	stale, gone, same := w.put("d/stale", "old"), w.put("d/gone", "x"), w.put("d/same", "x")
	w.publish(stale, gone, same)
	tree := w.open(Config{})
	fresh := w.put("d/stale", "newer")
	w.remove("d/gone")
	if o, _, _ := w.find(tree, "d", "stale"); o != stale {
		t.Fatalf("before anybody knew: %+v", o)
	}
	for _, name := range []string{"stale", "gone", "same"} {
		tree.Forget("d", name)
	}
	// Listings tell what has been asked, and what has not as the manifest does.
	if d := cmp.Diff([]string{"gone", "same", "stale"}, w.names(tree, "d")); d != "" {
		t.Error(d)
	}
	if o, valid, ok := w.find(tree, "d", "stale"); !ok || o != fresh || time.Time(valid).IsZero() {
		t.Errorf("stale: %+v until %v, %v", o, time.Time(valid), ok)
	}
	if _, valid, ok := w.find(tree, "d", "gone"); ok || time.Time(valid).IsZero() {
		t.Errorf("gone: %v, until %v", ok, time.Time(valid))
	}
	if o, _, ok := w.find(tree, "d", "same"); !ok || o != same {
		t.Errorf("same: %+v, %v", o, ok)
	}
	entries, valid, err := tree.ReadDir(t.Context(), "d", "", 10)
	w.must(err)
	var listed []oss.Object
	for _, e := range entries {
		listed = append(listed, e.Object)
	}
	if d := cmp.Diff([]oss.Object{same, fresh}, listed); d != "" || time.Time(valid).IsZero() {
		t.Errorf("until %v: %s", time.Time(valid), d)
	}
	if n := tree.Status().Asked; n != 3 {
		t.Errorf("%d names are asked", n)
	}
	// A generation that knows no better changes nothing, one that does ends it.
	w.publish(stale, gone, same)
	w.must(tree.Poll(t.Context()))
	if o, _, _ := w.find(tree, "d", "stale"); o != fresh {
		t.Errorf("after a generation as old: %+v", o)
	}
	w.publish(fresh, same)
	w.must(tree.Poll(t.Context()))
	if o, valid, _ := w.find(tree, "d", "stale"); o != fresh || !time.Time(valid).IsZero() {
		t.Errorf("after a generation that knows: %+v until %v", o, time.Time(valid))
	}
	if n := tree.Status().Asked; n != 1 {
		t.Errorf("%d names are asked, want the one that did not change", n)
	}
}

// Whole pieces of a directory may be names that are gone: that is not its end.
func TestListingGoesOnAfterNamesThatAreGone(t *testing.T) {
	w := newWorld(t)
	var all []oss.Object
	for _, name := range []string{"a", "b", "c", "d", "e", "f"} {
		all = append(all, w.put(name, name))
	}
	w.publish(all...)
	tree := w.open(Config{NegativeTTL: time.Hour})
	for _, name := range []string{"a", "b", "c", "d"} {
		w.remove(name)
		tree.Forget("", name)
		w.find(tree, "", name)
	}
	if d := cmp.Diff([]string{"e", "f"}, w.names(tree, "")); d != "" {
		t.Error(d)
	}
}

func TestForgettingIsBounded(t *testing.T) {
	var s suspects
	for i := range mostSuspects + 10 {
		if got, want := s.add("d", strconv.Itoa(i)), i < mostSuspects; got != want {
			t.Fatalf("room for name %d: %v", i, got)
		}
	}
	if !s.add("d", "7") {
		t.Error("a name that is known needs no room")
	}
}

// TestSwapsWhileReading lets readers look about while generations come and go: an
// answer is of one generation, and nothing is closed under a reader.
func TestSwapsWhileReading(t *testing.T) {
	w := newWorld(t)
	const rounds = 6
	var generations [][]oss.Object
	for g := range rounds {
		var objects []oss.Object
		for i := range 50 {
			objects = append(objects, oss.NewObject("d/f"+string(rune('A'+i)), strings.Repeat("0", 30)+string(rune('A'+g))+"0", int64(g), time.Unix(1_700_000_000, 0)))
		}
		generations = append(generations, objects)
	}
	w.publish(generations[0]...)
	tree := w.open(Config{})
	stop := make(chan struct{})
	var readers sync.WaitGroup
	for range 2 {
		readers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				entries, _, err := tree.ReadDir(t.Context(), "d", "", 100)
				if err != nil || len(entries) != 50 {
					t.Errorf("%d entries, %v", len(entries), err)
					return
				}
				if i := slices.IndexFunc(entries, func(e manifest.Entry) bool { return e.Object.Size != entries[0].Object.Size }); i >= 0 {
					t.Errorf("entry %d is of generation %d, the first of %d", i, entries[i].Object.Size, entries[0].Object.Size)
				}
				if _, _, err := tree.Lookup(t.Context(), "d", "fA"); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for _, objects := range generations[1:] {
		w.publish(objects...)
		w.must(tree.Poll(t.Context()))
		swap, err := tree.Next(t.Context())
		w.must(err)
		n := 0
		w.must(swap.Diff(t.Context(), "d", func(manifest.Difference) bool {
			n++
			return true
		}))
		swap.Done()
		if n != 50 {
			t.Errorf("%d differences", n)
		}
	}
	close(stop)
	readers.Wait()
}
