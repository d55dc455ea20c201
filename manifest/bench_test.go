package manifest

import (
	"context"
	"crypto/md5"
	"encoding/hex"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pailfs/pailfs/oss"
)

// endless is a store with n objects in one directory, made up as they are asked
// for.
type endless struct {
	oss.Stater
	n int
}

func (s endless) key(i int) string { return fmt.Sprintf("train/n%08d.JPEG", i) }

func (s endless) List(_ context.Context, r oss.ListRequest) (oss.ListPage, error) {
	if r.Prefix != "train/" {
		return oss.ListPage{Prefixes: []string{"train/"}}, nil
	}
	first := 0
	if r.Token != "" {
		first, _ = strconv.Atoi(r.Token)
	} else if digits, ok := strings.CutPrefix(r.StartAfter, "train/n"); ok && len(digits) >= 8 {
		first, _ = strconv.Atoi(digits[:8])
	}
	page := oss.ListPage{Objects: make([]oss.ListedObject, 0, r.MaxKeys)}
	for i := first; i < min(first+r.MaxKeys, s.n); i++ {
		key := s.key(i)
		sum := md5.Sum([]byte(key))
		page.Objects = append(page.Objects, oss.ListedObject{Object: oss.Object{
			Key: key, ETag: strings.ToUpper(hex.EncodeToString(sum[:])), Size: int64(100_000 + i%50_000), ModTime: time.Unix(1_750_000_000+int64(i), 0).UTC(),
		}})
	}
	if first+r.MaxKeys < s.n {
		page.Next = strconv.Itoa(first + r.MaxKeys)
	}
	return page, nil
}

// heap returns what is reachable: what pools kept is gone after the second collection,
// what waited for a cleanup after the third.
func heap() int64 {
	for range 3 {
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// The account of memory is what the process really takes, and an entry with a
// name of 14 bytes takes at most 48 of them.
func TestEntriesAreSmall(t *testing.T) {
	const n = 100_000
	before := heap()
	l := newTestLive(t, LiveConfig{}, endless{n: n})
	if got := len(readAll(t, l, "train", 1000)); got != n {
		t.Fatalf("%d entries", got)
	}
	took := heap() - before
	l.mu.Lock()
	counted, entries := l.mu.bytes, l.mu.entries
	l.mu.Unlock()
	t.Logf("%d entries take %d bytes, counted as %d: %.1f a piece", entries, took, counted, float64(took)/n)
	if counted > 48*n || took > counted*5/4 || took < counted*3/4 {
		t.Errorf("%d entries take %d bytes, counted as %d", n, took, counted)
	}
	runtime.KeepAlive(l)
}

func BenchmarkReadDir(b *testing.B) {
	for _, n := range []int{1_000, 100_000, 1_000_000} {
		for _, known := range []bool{false, true} {
			b.Run(fmt.Sprintf("entries=%d/known=%v", n, known), func(b *testing.B) {
				l := newTestLive(b, LiveConfig{TTL: time.Hour}, endless{n: n})
				if known {
					readAll(b, l, "train", 1000)
				}
				b.ReportAllocs()
				for b.Loop() {
					if !known {
						b.StopTimer()
						l = newTestLive(b, LiveConfig{TTL: time.Hour}, endless{n: n})
						b.StartTimer()
					}
					if got := len(readAll(b, l, "train", 1000)); got != n {
						b.Fatalf("%d entries", got)
					}
				}
				b.ReportMetric(float64(b.N*n)/b.Elapsed().Seconds(), "entries/s")
				l.mu.Lock()
				b.ReportMetric(float64(l.mu.bytes)/float64(l.mu.entries), "held-B/entry")
				l.mu.Unlock()
			})
		}
	}
}

func BenchmarkLookup(b *testing.B) {
	const n = 1_000_000
	l := newTestLive(b, LiveConfig{TTL: time.Hour}, endless{n: n})
	readAll(b, l, "train", 1000)
	names := make([]string, 1<<16)
	absent := make([]string, len(names))
	for i := range names {
		names[i] = fmt.Sprintf("n%08d.JPEG", i*7919%n)
		absent[i] = names[i] + ".txt"
	}
	for _, bench := range []struct {
		name  string
		names []string
		found bool
	}{{"found", names, true}, {"absent", absent, false}} {
		b.Run("result="+bench.name, func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for i := 0; pb.Next(); i++ {
					if _, _, err := l.Lookup(context.Background(), "train", bench.names[i%len(bench.names)]); (err == nil) != bench.found {
						b.Fatal(err)
					}
				}
			})
		})
	}
}
