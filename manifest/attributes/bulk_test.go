package attributes

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pailfs/pailfs/manifest"
	"github.com/pailfs/pailfs/oss"
)

// page returns so many entries of a tree from the n-th on.
func (t numbers) page(from, n int) (entries []manifest.Entry) {
	for i := from; i < min(from+n, t.n); i++ {
		entries = append(entries, t.entry(i))
	}
	return entries
}

// overSlow makes a tree of n names over a bucket whose HEADs take an hour.
func overSlow(t *testing.T, n int) (*Tree, *slow) {
	t.Helper()
	bucket := new(slow)
	tree, err := New(Config{}, numbers{n: n}, bucket, bucket, new(memory), nil)
	if err != nil {
		t.Fatal(err)
	}
	return tree, bucket
}

// Ten thousand names that are listed with their attributes, as ls -l does.
func TestBulkIsAChainOfFewRoundTrips(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n, page = 10_000, 1024
		tree, bucket := overSlow(t, n)
		defer tree.Close()
		began := time.Now()
		for from := 0; from < n; from += page {
			entries := numbers{n: n}.page(from, page)
			tree.Complete(t.Context(), "", entries)
			for i := range entries {
				if !tree.recall(&entries[i]) {
					t.Fatalf("name %d has no attributes", from+i)
				}
			}
		}
		if trips := time.Since(began) / time.Hour; trips > 6 {
			t.Errorf("%d round trips for %d names, want 6 at most", trips, n)
		}
		if got := bucket.heads.Load(); got != n {
			t.Errorf("%d requests for %d names", got, n)
		}
	})
}

// Who waits for a page no longer has its answers later: they are not asked for twice.
func TestBulkThatNobodyWaitsForIsAskedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 100
		tree, bucket := overSlow(t, n)
		defer tree.Close()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		tree.Complete(ctx, "", numbers{n: n}.page(0, n))
		if took := time.Since(began); took != time.Second {
			t.Errorf("it waited for %v", took)
		}
		for i := range n {
			if e, _, err := tree.Lookup(t.Context(), "", fmt.Sprintf("%06d", i)); err != nil || e.Attr == nil {
				t.Fatalf("name %d: %+v, %v", i, e, err)
			}
		}
		if took := time.Since(began); took != time.Hour {
			t.Errorf("the names took %v", took)
		}
		if got := bucket.heads.Load(); got != n {
			t.Errorf("%d requests for %d names", got, n)
		}
	})
}

// A process looks at some names and is killed: what waits is withdrawn, what is in flight goes on.
func TestBulkIsWithdrawnWhenNobodyLooksAnyMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 10_000
		tree, bucket := overSlow(t, n)
		defer tree.Close()
		ctx, kill := context.WithCancel(t.Context())
		go tree.Complete(ctx, "", numbers{n: n}.page(0, n))
		time.Sleep(30 * time.Minute)
		if got := bucket.heads.Load(); got != parallel {
			t.Errorf("%d requests are made at once, want %d", got, parallel)
		}
		kill()
		time.Sleep(24 * time.Hour)
		if got := bucket.heads.Load(); got != parallel {
			t.Errorf("%d requests were made, want no more than the first %d", got, parallel)
		}
		tree.mu.Lock()
		flights, runs := len(tree.mu.flights), len(tree.mu.runs)
		tree.mu.Unlock()
		if flights > 0 || runs > 0 || len(tree.slots) > 0 {
			t.Errorf("%d flights, %d runs, %d slots are left", flights, runs, len(tree.slots))
		}
		// Somebody else looks again.
		if e, _, err := tree.Lookup(t.Context(), "", "009000"); err != nil || e.Attr == nil {
			t.Errorf("a name that was withdrawn: %+v, %v", e, err)
		}
	})
}

// picky refuses some names, the others it answers at once.
type picky struct {
	Bucket
	refuses map[string]error
	heads   atomic.Int64
}

func (p *picky) Head(_ context.Context, key string) (oss.Info, error) {
	p.heads.Add(1)
	if err := p.refuses[key]; err != nil {
		return oss.Info{}, err
	}
	return oss.Info{Object: oss.Object{Key: key, ETag: "E", Size: 1}, Meta: map[string]string{"mode": "33152"}}, nil
}

func TestBulkWithRefusedNamesTellsOfAllOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 1000
		bucket := &picky{refuses: map[string]error{"000007": oss.ErrNotFound, "000100": oss.ErrAccessDenied, "000999": oss.ErrUnavailable}}
		tree, err := New(Config{}, numbers{n: n}, bucket, bucket, new(memory), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer tree.Close()
		entries := numbers{n: n}.page(0, n)
		tree.Complete(t.Context(), "", entries)
		for i := range entries {
			e := &entries[i]
			known := tree.recall(e)
			if refused := bucket.refuses[e.Name] != nil; known == refused || known && e.Attr.Mode != 0o600 {
				t.Errorf("%s: known %t, %+v", e.Name, known, e.Attr)
			}
		}
		if got := bucket.heads.Load(); got != n {
			t.Errorf("%d requests for %d names", got, n)
		}
	})
}

// remade is a tree with one object, which another client makes again of the same bytes.
type remade struct {
	manifest.Tree
	made time.Time
	mode string
}

func (r *remade) object() oss.Object {
	return oss.Object{Key: "f", ETag: "E", Size: 1, ModTime: r.made}
}

func (r *remade) Lookup(context.Context, string, string) (manifest.Entry, manifest.Validity, error) {
	return manifest.Entry{Name: "f", Object: r.object(), Cursor: "f"}, manifest.Validity{}, nil
}

func (r *remade) ReadDir(ctx context.Context, _, after string, _ int) ([]manifest.Entry, manifest.Validity, error) {
	if after != "" {
		return nil, manifest.Validity{}, nil
	}
	e, valid, err := r.Lookup(ctx, "", "f")
	return []manifest.Entry{e}, valid, err
}

func (*remade) Forget(string, string) {}

type remadeBucket struct {
	Bucket
	made *remade
}

func (r remadeBucket) Head(context.Context, string) (oss.Info, error) {
	return oss.Info{Object: r.made.object(), Meta: map[string]string{"mode": r.made.mode}}, nil
}

// The notes know an object by its bytes: ossfs changes a mode by copying the object onto itself.
func TestBulkTellsTheNewModeOfAnObjectMadeAgainOfTheSameBytes(t *testing.T) {
	r := &remade{made: time.Unix(1_700_000_000, 0).UTC(), mode: "33152"}
	bucket := remadeBucket{made: r}
	tree, err := New(Config{}, r, bucket, bucket, new(versions), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tree.Close()
	mode := func() uint32 {
		t.Helper()
		entries, _, err := tree.ReadDir(t.Context(), "", "", 10)
		if err == nil && entries[0].Partial {
			tree.Complete(t.Context(), "", entries)
			entries, _, err = tree.ReadDir(t.Context(), "", "", 10)
		}
		if err != nil || entries[0].Partial {
			t.Fatalf("%+v, %v", entries, err)
		}
		return entries[0].Attr.Mode
	}
	if got := mode(); got != 0o600 {
		t.Errorf("the mode is %o, want 600", got)
	}
	r.made, r.mode = r.made.Add(time.Second), "33261"
	if got := mode(); got != 0o755 {
		t.Errorf("the mode of what was made again is %o, want 755", got)
	}
	// What was made here is known without asking, also by the time that listings show.
	tree.Noted(r.object(), map[string]string{"mode": "33188"})
	r.made, r.mode = r.made.Add(2*time.Second), "33152"
	if got := mode(); got != 0o644 {
		t.Errorf("the mode of what was made here is %o, want 644", got)
	}
	r.made = r.made.Add(time.Hour)
	if got := mode(); got != 0o600 {
		t.Errorf("the mode of what was made again an hour later is %o, want 600", got)
	}
}
