package attributes

import (
	"context"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pailfs/pailfs/manifest"
	"github.com/pailfs/pailfs/oss"
)

// numbers is a tree with files of the names 000000, 000001 and so on in its root, which
// costs no request.
type numbers struct {
	manifest.Tree
	n int
}

func (t numbers) entry(i int) manifest.Entry {
	name := fmt.Sprintf("%06d", i)
	return manifest.Entry{Name: name, Object: oss.Object{Key: name, ETag: "E", Size: 1}, Cursor: manifest.CursorAfter(name)}
}

func (t numbers) Lookup(_ context.Context, _, name string) (manifest.Entry, manifest.Validity, error) {
	i, err := strconv.Atoi(name)
	if err != nil || i >= t.n {
		return manifest.Entry{}, manifest.Validity{}, fs.ErrNotExist
	}
	return t.entry(i), manifest.Validity{}, nil
}

func (t numbers) ReadDir(_ context.Context, _, after string, limit int) ([]manifest.Entry, manifest.Validity, error) {
	first := 0
	if after != "" {
		last, err := strconv.Atoi(after[:strings.IndexByte(after, ':')])
		if err != nil {
			return nil, manifest.Validity{}, err
		}
		first = last + 1
	}
	var entries []manifest.Entry
	for i := first; i < min(t.n, first+limit); i++ {
		entries = append(entries, t.entry(i))
	}
	return entries, manifest.Validity{}, nil
}

func (numbers) Forget(string, string) {}

// slow is a bucket whose HEADs take an hour.
type slow struct {
	Bucket
	heads atomic.Int64
}

func (s *slow) Head(ctx context.Context, key string) (oss.Info, error) {
	s.heads.Add(1)
	select {
	case <-time.After(time.Hour):
		return oss.Info{Object: oss.Object{Key: key, ETag: "E", Size: 1}}, nil
	case <-ctx.Done():
		return oss.Info{}, ctx.Err()
	}
}

// Ten thousand names looked at in turn are a chain of a dozen round trips.
func TestWalkAsksForManyAttributesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 10_000
		bucket := new(slow)
		tree, err := New(Config{}, numbers{n: n}, bucket, bucket, new(memory), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer tree.Close()
		began := time.Now() // time goes on only while everybody waits for requests
		for i := range n {
			if e, _, err := tree.Lookup(t.Context(), "", fmt.Sprintf("%06d", i)); err != nil || e.Attr == nil {
				t.Fatalf("name %d: %+v, %v", i, e, err)
			}
		}
		if trips := time.Since(began) / time.Hour; trips > 13 {
			t.Errorf("%d round trips for %d names, want 13 at most", trips, n)
		}
		if got := bucket.heads.Load(); got != n {
			t.Errorf("%d requests for %d names", got, n)
		}
	})
}
