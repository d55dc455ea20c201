//go:build !race

package session

import (
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pailfs/pailfs/oss"
	"github.com/pailfs/pailfs/prefetch/budget"
)

// TestWhatIsHeldIsCharged compares the heap with what the ledger has. The cache's part of
// what a name costs is not here, nor the text of the object's key.
func TestWhatIsHeldIsCharged(t *testing.T) {
	// elsewhere is what of a name's charge is for what others keep of it.
	const elsewhere = 384
	for what, paths := range map[string][]string{
		"names of one folder":   someNames(strings.Repeat("base/", 200), 5000),
		"each in its own":       folders(5000),
		"long names, no folder": long(5000),
	} {
		b := NewBook(Config{Budget: 1 << 40})
		id, _, err := b.Open(time.Unix(1e9, 0), "s", Key{}, Params{Buffer: MaxBuffer})
		if err != nil {
			t.Fatal(err)
		}
		before := heap()
		charged := b.cfg.Ledger.Use(budget.Names).Used
		out, err := b.Preload(time.Unix(1e9, 0), Name{Session: id}, paths, false)
		if err != nil || out.Accepted != len(paths) {
			t.Fatalf("%+v, %v", out, err)
		}
		charged = b.cfg.Ledger.Use(budget.Names).Used - charged
		keys := 0
		for e := b.NextResolve(); e != nil; e = b.NextResolve() {
			keys++
			b.Resolved(e, []oss.Object{{Key: strconv.Itoa(keys), Size: 1}}, 0, nil)
		}
		for e := b.NextFetch(); e != nil; e = b.NextFetch() {
			b.Fetched(e, false, nil)
		}
		grown := heap() - before
		t.Logf("%s: %d bytes a name of heap, %d charged", what, grown/int64(len(paths)), charged/int64(len(paths)))
		if book := charged - elsewhere*int64(len(paths)); grown > book {
			t.Errorf("%s: the heap grew by %d bytes, %d were charged for the book", what, grown, book)
		}
		runtime.KeepAlive(b)
	}
}

func folders(n int) []string {
	paths := make([]string, n)
	for i := range paths {
		paths[i] = fmt.Sprintf("%06d/f", i)
	}
	return paths
}

func long(n int) []string {
	paths := make([]string, n)
	for i := range paths {
		paths[i] = fmt.Sprintf("%0500d", i)
	}
	return paths
}

// heap returns how many bytes are in use after a collection.
func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
