package fs

import (
	"fmt"
	iofs "io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pailfs/pailfs/cache"
)

// BenchmarkSmallWarm opens, reads and closes small files that the kernel has,
// from another process, on the disk itself and on mounts.
func BenchmarkSmallWarm(b *testing.B) {
	const files, size = 4000, 115 << 10
	disk := tempDir(b)
	w := newWorld()
	for i := range files {
		o := w.put(smallName(i), size)
		p := filepath.Join(disk, smallName(i))
		must(b, os.MkdirAll(filepath.Dir(p), 0o755))
		must(b, os.WriteFile(p, all(o), 0o644))
	}
	run := func(mode, dir string) {
		for _, readers := range []int{1, 4} {
			b.Run(fmt.Sprintf("mode=%s/readers=%d", mode, readers), func(b *testing.B) {
				var r rateResult
				inReader(b, "small", smallArgs{Dir: dir, Files: files, Readers: readers, Rounds: 1}, &r)
				for b.Loop() {
					inReader(b, "small", smallArgs{Dir: dir, Files: files, Readers: readers, Rounds: 5}, &r)
				}
				b.ReportMetric(r.opsPerSecond(), "files/s")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
	run("disk", disk)
	run("ordinary", mounted(b, w, Config{}, cache.Config{Memory: 1 << 30}).dir)
	run("immutable", mounted(b, w, Config{Immutable: true}, cache.Config{Memory: 1 << 30}).dir)
}

// BenchmarkPassthroughFrom compares, at several sizes, opening, reading and
// closing files that are whole on SSD with and without passthrough.
func BenchmarkPassthroughFrom(b *testing.B) {
	for _, size := range []int64{64 << 10, 128 << 10, 256 << 10, 512 << 10, 1 << 20, 4 << 20} {
		files := int(min(2000, 256<<20/size))
		for _, choice := range []Choice{Off, On} {
			w := newWorld()
			s := mounted(b, w, Config{Passthrough: choice, PassthroughMin: 1}, cache.Config{Memory: 1 << 30})
			for i := range files {
				makeWhole(b, s, w.put(smallName(i), size))
			}
			for _, readers := range []int{1, 4} {
				b.Run(fmt.Sprintf("size=%dKiB/passthrough=%s/readers=%d", size>>10, choice, readers), func(b *testing.B) {
					var first, r rateResult
					inReader(b, "small", smallArgs{Dir: s.dir, Files: files, Readers: readers, Rounds: 1}, &first)
					for b.Loop() {
						inReader(b, "small", smallArgs{Dir: s.dir, Files: files, Readers: readers, Rounds: 5}, &r)
					}
					b.ReportMetric(first.opsPerSecond(), "first-files/s")
					b.ReportMetric(r.opsPerSecond(), "files/s")
					b.ReportMetric(0, "ns/op")
				})
			}
		}
	}
}

// BenchmarkWhole reads one file that is whole on SSD, and the same bytes on the
// disk itself, with and without the kernel's page cache.
func BenchmarkWhole(b *testing.B) {
	const size = 1 << 30
	w := newWorld()
	o := w.put("big", size)
	disk := filepath.Join(tempDir(b), "big")
	writeContent(b, disk, o)
	s := mounted(b, w, Config{Passthrough: On}, cache.Config{Memory: 1 << 30})
	makeWhole(b, s, o)
	for _, c := range []struct{ name, path, below string }{
		{"disk", disk, filepath.Dir(disk)},
		{"passthrough", s.path("big"), filepath.Join(filepath.Dir(s.dir), "cache")},
	} {
		for _, pages := range []string{"warm", "dropped"} {
			for _, pattern := range []string{"sequential", "random"} {
				b.Run(fmt.Sprintf("file=%s/pages=%s/pattern=%s", c.name, pages, pattern), func(b *testing.B) {
					var r, total rateResult
					for b.Loop() {
						b.StopTimer()
						if pages == "dropped" {
							dropBelow(b, c.below)
						} else {
							inReader(b, "large", largeArgs{Path: c.path, Pattern: "sequential"}, &r)
						}
						b.StartTimer()
						inReader(b, "large", largeArgs{Path: c.path, Pattern: pattern, Ops: 20_000}, &r)
						total.Ops, total.Bytes, total.Seconds = total.Ops+r.Ops, total.Bytes+r.Bytes, total.Seconds+r.Seconds
					}
					b.ReportMetric(total.bytesPerSecond()/1e9, "GB/s")
					b.ReportMetric(total.opsPerSecond(), "reads/s")
					b.ReportMetric(0, "ns/op")
				})
			}
		}
	}
	if n := s.mount.Status().Reads; n != 0 {
		b.Errorf("%d READs came to us", n)
	}
}

// dropBelow makes the kernel drop the pages of every file below dir.
func dropBelow(b *testing.B, dir string) {
	b.Helper()
	must(b, filepath.WalkDir(dir, func(path string, d iofs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer func() { _ = f.Close() }() // only read
		if err := f.Sync(); err != nil {
			return err
		}
		return unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)
	}))
}

type largeArgs struct {
	Path, Pattern string
	Ops           int
}

// readLarge reads one file, in order by 1 MiB or anywhere by 4 KiB.
func readLarge(a largeArgs) (rateResult, error) {
	f, err := os.Open(a.Path)
	if err != nil {
		return rateResult{}, err
	}
	defer func() { _ = f.Close() }() // only read
	info, err := f.Stat()
	if err != nil {
		return rateResult{}, err
	}
	fd := int(f.Fd())
	r := rateResult{}
	rng := rand.New(rand.NewPCG(1, 2))
	buf := make([]byte, 1<<20)
	start := time.Now()
	if a.Pattern == "sequential" {
		for {
			n, err := unix.Read(fd, buf)
			if err != nil {
				return r, err
			}
			if n == 0 {
				break
			}
			r.Ops, r.Bytes = r.Ops+1, r.Bytes+int64(n)
		}
	} else {
		for range a.Ops {
			n, err := unix.Pread(fd, buf[:4096], rng.Int64N(info.Size()/4096)*4096)
			if err != nil {
				return r, err
			}
			r.Ops, r.Bytes = r.Ops+1, r.Bytes+int64(n)
		}
	}
	r.Seconds = time.Since(start).Seconds()
	return r, nil
}
