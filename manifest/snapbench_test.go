package manifest

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// benchObjects is how many objects the manifests of BenchmarkSnapshot hold.
var benchObjects = flag.Int("objects", 200_000, "how many objects the manifests of benchmarks hold")

// benchCache is how many bytes of decoded blocks BenchmarkSnapshotLookup may hold. So
// few that the index does not fit show what a larger manifest costs.
var benchCache = flag.Int64("cache", 0, "bytes of decoded blocks that lookups hold; 0 means the default")

// shape is how the keys of a manifest look.
type shape struct {
	name string
	// key returns key i of n; they ascend within a directory.
	key func(i, n int) string
	// dir and base return the path that shows it.
	crc bool
}

// classes is how many directories a manifest of images has.
const classes = 1000

func imageKey(i, n int) string {
	per := max(n/classes, 1)
	return fmt.Sprintf("train/n%08d/n%08d_%d.JPEG", i/per*7919, i/per*7919, i%per*3+i%7)
}

func hashKey(i, n int) string {
	r := rand.New(rand.NewPCG(1, uint64(i)))
	return fmt.Sprintf("blobs/%03x/%016x%016x", i*4096/n, r.Uint64(), r.Uint64())
}

func flatKey(i, _ int) string { return fmt.Sprintf("train/n%08d.JPEG", i) }

var shapes = []shape{
	{"images", imageKey, true},
	{"images-nocrc", imageKey, false},
	{"hashes-nocrc", hashKey, false},
	{"flat", flatKey, true},
}

// benchRecord returns record i of n: sizes of images, ETags and checksums at
// random, times within a month.
func (s shape) record(i, n int, etag []byte) Record {
	r := rand.New(rand.NewPCG(7, uint64(i)))
	hi, lo := r.Uint64(), r.Uint64()
	etag = fmt.Appendf(etag[:0], "%016X%016X", hi, lo)
	return Record{
		Key: s.key(i, n), ETag: string(etag), Size: int64(20_000 + r.ExpFloat64()*90_000),
		ModTime: time.Unix(1_750_000_000+int64(r.IntN(30*86400)), 0).UTC(), CRC64: r.Uint64(), HasCRC64: s.crc,
	}
}

// benchFiles are the manifests that were made, in the directory BENCH_DIR.
var benchFiles = struct {
	sync.Mutex
	made map[string]Summary
}{made: map[string]Summary{}}

// benchFile returns a manifest of n objects. With BENCH_DIR it is made once, or
// anew.
func benchFile(b *testing.B, s shape, n int, anew bool) (string, Summary) {
	b.Helper()
	benchFiles.Lock()
	defer benchFiles.Unlock()
	dir := os.Getenv("BENCH_DIR")
	if dir == "" {
		dir = b.TempDir()
	}
	name := filepath.Join(dir, s.name+"-"+strconv.Itoa(n))
	sum, ok := benchFiles.made[name]
	if !ok && !anew {
		// Another run may have left it.
		if made, err := OpenSnapshot(name, SnapshotConfig{}); err == nil {
			sum, ok = Summary{FileBytes: made.Info().FileBytes}, true
			if err := made.Close(); err != nil {
				b.Fatal(err)
			}
		}
	}
	if !ok || anew {
		sum = buildBench(b, s, n, name)
		benchFiles.made[name] = sum
	}
	return name, sum
}

func buildBench(b *testing.B, s shape, n int, path string) Summary {
	builder, err := NewBuilder(BuilderConfig{SpillDir: filepath.Dir(path)})
	if err != nil {
		b.Fatal(err)
	}
	defer builder.Close()
	var etag []byte
	for i := range n {
		if err := builder.Add(s.record(i, n, etag)); err != nil {
			b.Fatal(err)
		}
	}
	sum, err := builder.Finish(context.Background(), path, testHeader)
	if err != nil {
		b.Fatal(err)
	}
	return sum
}

// residentBytes returns what of the process is in memory, but for mapped files if
// anonymous is set.
func residentBytes(b *testing.B) (all, anonymous int64) {
	b.Helper()
	runtime.GC()
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		b.Fatal(err)
	}
	for line := range bytes.Lines(text) {
		fields := bytes.Fields(line)
		if len(fields) < 2 {
			continue
		}
		n, _ := strconv.ParseInt(string(fields[1]), 10, 64)
		switch string(fields[0]) {
		case "VmRSS:":
			all = n << 10
		case "RssAnon:":
			anonymous = n << 10
		}
	}
	return all, anonymous
}

func BenchmarkSnapshotBuild(b *testing.B) {
	for _, s := range shapes {
		b.Run("keys="+s.name, func(b *testing.B) {
			n := *benchObjects
			b.ReportAllocs()
			var sum Summary
			for b.Loop() {
				_, sum = benchFile(b, s, n, true)
			}
			b.ReportMetric(float64(sum.FileBytes)/float64(n), "B/object")
			b.ReportMetric(float64(b.N*n)/b.Elapsed().Seconds(), "objects/s")
		})
	}
}

func BenchmarkSnapshotOpen(b *testing.B) {
	n := *benchObjects
	path, sum := benchFile(b, shapes[0], n, false)
	before, _ := residentBytes(b)
	var s *Snapshot
	for b.Loop() {
		var err error
		if s, err = OpenSnapshot(path, SnapshotConfig{}); err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
	b.StopTimer()
	s, err := OpenSnapshot(path, SnapshotConfig{})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	after, _ := residentBytes(b)
	b.ReportMetric(float64(after-before)/(1<<20), "resident-MiB")
	b.ReportMetric(float64(sum.FileBytes)/float64(n), "B/object")
}

// BenchmarkSnapshotLookup looks up names at random over all of a manifest.
func BenchmarkSnapshotLookup(b *testing.B) {
	for _, s := range shapes {
		b.Run("keys="+s.name, func(b *testing.B) {
			n := *benchObjects
			path, _ := benchFile(b, s, n, false)
			type target struct{ dir, name string }
			targets := make([]target, 1<<16)
			r := rand.New(rand.NewPCG(3, 4))
			for i := range targets {
				key := s.key(r.IntN(n), n)
				slash := strings.LastIndexByte(key, '/')
				targets[i] = target{key[:slash], key[slash+1:]}
			}
			took := make([]time.Duration, 1<<20)
			for i := range took {
				took[i] = 1 // so that it is in memory
			}
			took = took[:0]
			before, _ := residentBytes(b)
			snap, err := OpenSnapshot(path, SnapshotConfig{CacheBytes: *benchCache})
			if err != nil {
				b.Fatal(err)
			}
			defer snap.Close()
			ctx := context.Background()
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				t := &targets[i%len(targets)]
				i++
				start := time.Now()
				if _, _, err := snap.Lookup(ctx, t.dir, t.name); err != nil {
					b.Fatal(err)
				}
				if d := time.Since(start); len(took) < cap(took) {
					took = append(took, d)
				}
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Nanoseconds())/1000, "p50-µs")
			b.ReportMetric(float64(took[len(took)*99/100].Nanoseconds())/1000, "p99-µs")
			after, anonymous := residentBytes(b)
			b.ReportMetric(float64(after-before)/(1<<20), "resident-MiB")
			b.ReportMetric(float64(anonymous)/(1<<20), "anonymous-MiB")
			runtime.KeepAlive(targets)
		})
	}
}

// BenchmarkSnapshotReadDir reads one directory of 1,000,000 names, or as many as
// there are objects.
func BenchmarkSnapshotReadDir(b *testing.B) {
	n := min(*benchObjects, 1_000_000)
	path, _ := benchFile(b, shapes[3], n, false)
	snap, err := OpenSnapshot(path, SnapshotConfig{})
	if err != nil {
		b.Fatal(err)
	}
	defer snap.Close()
	ctx := context.Background()
	pages := func(read func(cursor string) ([]Entry, Validity, error)) func() (int, error) {
		return func() (int, error) {
			count, cursor := 0, ""
			for {
				entries, _, err := read(cursor)
				if err != nil || len(entries) == 0 {
					return count, err
				}
				count += len(entries)
				cursor = entries[len(entries)-1].Cursor
			}
		}
	}
	for _, bench := range []struct {
		name string
		read func() (int, error)
	}{
		{"names", pages(func(cursor string) ([]Entry, Validity, error) { return snap.ReadDirNames(ctx, "train", cursor, 1000) })},
		{"entries", pages(func(cursor string) ([]Entry, Validity, error) { return snap.ReadDir(ctx, "train", cursor, 1000) })},
		{"positions", func() (int, error) {
			count := 0
			err := snap.ReadDirAt(ctx, "train", 0, false, func(int64, *Entry) bool { count++; return true })
			return count, err
		}},
		{"positions of names", func() (int, error) {
			count := 0
			err := snap.ReadDirAt(ctx, "train", 0, true, func(int64, *Entry) bool { count++; return true })
			return count, err
		}},
		{"records", func() (int, error) {
			count := 0
			for _, err := range snap.Records(ctx, "") {
				if err != nil {
					return count, err
				}
				count++
			}
			return count, nil
		}},
		{"verify", func() (int, error) { return n, snap.Verify(ctx, nil) }},
	} {
		b.Run("what="+bench.name, func(b *testing.B) {
			before, _ := residentBytes(b)
			b.ReportAllocs()
			for b.Loop() {
				if count, err := bench.read(); err != nil || count != n {
					b.Fatal(count, err)
				}
			}
			after, _ := residentBytes(b)
			b.ReportMetric(float64(b.N*n)/b.Elapsed().Seconds()/1e6, "M/s")
			b.ReportMetric(float64(after-before)/(1<<20), "resident-MiB")
		})
	}
}
