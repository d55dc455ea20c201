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

// The benchmarks compare. Everything that is compared is measured in turn within
// one iteration, and the best of all iterations counts, so that other work on the
// machine does not decide. Reading is done by another process.

// contest keeps the best rate of each contender.
type contest map[string]float64

func (c contest) note(name string, rate float64) { c[name] = max(c[name], rate) }

// report reports the rates and, of each contender, the share of the first's.
func (c contest) report(b *testing.B, unit, base string) {
	b.ReportMetric(0, "ns/op")
	for name, rate := range c {
		b.ReportMetric(rate, name+"-"+unit)
		if name != base {
			b.ReportMetric(rate/c[base], name+"/"+base)
		}
	}
}

// BenchmarkSmallWarm opens, reads and closes small files that the kernel has, on
// the disk itself and on mounts.
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
	dirs := map[string]string{
		"disk":      disk,
		"ordinary":  mounted(b, w, Config{}, cache.Config{Memory: 1 << 30}).dir,
		"immutable": mounted(b, w, Config{Immutable: true}, cache.Config{Memory: 1 << 30}).dir,
	}
	for _, readers := range []int{1, 4} {
		b.Run(fmt.Sprintf("readers=%d", readers), func(b *testing.B) {
			best := contest{}
			for b.Loop() {
				for name, dir := range dirs {
					var r rateResult
					inReader(b, "small", smallArgs{Dir: dir, Files: files, Readers: readers, Rounds: 2}, &r)
					best.note(name, r.opsPerSecond())
				}
			}
			best.report(b, "files/s", "disk")
		})
	}
}

// BenchmarkPassthroughFrom opens, reads and closes files of one size that are
// whole on SSD, with and without passthrough: once when the kernel has none of
// their pages in the mount (first), then when it has.
func BenchmarkPassthroughFrom(b *testing.B) {
	for _, size := range []int64{64 << 10, 128 << 10, 256 << 10, 512 << 10, 1 << 20, 4 << 20} {
		b.Run(fmt.Sprintf("size=%dKiB", size>>10), func(b *testing.B) {
			files := int(min(1000, 128<<20/size))
			best := contest{}
			dirs := map[string]string{}
			for name, choice := range map[string]Choice{"daemon": Off, "passthrough": On} {
				w := newWorld()
				s := mounted(b, w, Config{Passthrough: choice, PassthroughMin: 1}, cache.Config{Memory: 512 << 20})
				for i := range files {
					makeWhole(b, s, w.put(smallName(i), size))
				}
				dirs[name] = s.dir
				var r rateResult
				inReader(b, "small", smallArgs{Dir: s.dir, Files: files, Readers: 1, Rounds: 1}, &r)
				best.note(name+"-first", r.opsPerSecond())
			}
			for b.Loop() {
				for _, readers := range []int{1, 4} {
					for name, dir := range dirs {
						var r rateResult
						inReader(b, "small", smallArgs{Dir: dir, Files: files, Readers: readers, Rounds: 1}, &r)
						best.note(fmt.Sprintf("%s-%d", name, readers), r.opsPerSecond())
					}
				}
			}
			best.report(b, "files/s", "daemon-1")
		})
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
	below := map[string]string{disk: filepath.Dir(disk), s.path("big"): filepath.Join(filepath.Dir(s.dir), "cache")}
	for _, pages := range []string{"warm", "dropped"} {
		for _, pattern := range []string{"sequential", "random"} {
			b.Run(fmt.Sprintf("pages=%s/pattern=%s", pages, pattern), func(b *testing.B) {
				best := contest{}
				for b.Loop() {
					for name, path := range map[string]string{"disk": disk, "mount": s.path("big")} {
						var r rateResult
						if pages == "dropped" {
							dropBelow(b, below[path])
						} else {
							inReader(b, "large", largeArgs{Path: path, Pattern: "sequential"}, &r)
						}
						inReader(b, "large", largeArgs{Path: path, Pattern: pattern, Ops: 20_000}, &r)
						best.note(name, r.bytesPerSecond()/1e9)
					}
				}
				best.report(b, "GB/s", "disk")
			})
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
