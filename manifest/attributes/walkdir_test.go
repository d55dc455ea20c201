package attributes

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pailfs/pailfs/manifest"
	"github.com/pailfs/pailfs/oss"
)

// oneDirectory is a tree of numbers of which one is a directory.
type oneDirectory struct {
	numbers
	at int
}

func (t oneDirectory) ReadDir(_ context.Context, _, after string, limit int) (page []manifest.Entry, _ manifest.Validity, err error) {
	first := 0
	if item, _, _ := strings.Cut(after, ":"); item != "" {
		if first, err = strconv.Atoi(strings.TrimSuffix(item, "/")); err != nil {
			return nil, manifest.Validity{}, err
		}
		first++
	}
	for i := first; i < min(t.n, first+limit); i++ {
		e := t.entry(i)
		if i == t.at {
			key := e.Name + "/"
			e = manifest.Entry{Name: e.Name, Kind: manifest.Directory, Object: oss.Object{Key: key}, Cursor: key + ":"}
		}
		page = append(page, e)
	}
	return page, manifest.Validity{}, nil
}

// What is asked for ahead may end with a directory, whose key ends with a slash.
func TestWalkGoesOnAfterADirectory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 10_000
		tree, bucket := overSlow(t, n)
		defer tree.Close()
		at := 1 // the names after that are asked for first
		for window := 16; window <= 2048; window *= 2 {
			at += window
		}
		tree.base = oneDirectory{numbers{n: n}, at}
		began := time.Now()
		for i := range n {
			if i == at {
				continue
			}
			if _, _, err := tree.Lookup(t.Context(), "", fmt.Sprintf("%06d", i)); err != nil {
				t.Fatal(err)
			}
		}
		if trips := time.Since(began) / time.Hour; trips > 13 {
			t.Errorf("%d round trips for %d names, want 13 at most", trips, n)
		}
		if got := bucket.heads.Load(); got != n-1 {
			t.Errorf("%d requests for %d names", got, n-1)
		}
	})
}
