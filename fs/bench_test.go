package fs

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/pailfs/pailfs/cache"
)

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
	run := func(name, dir string) {
		for _, readers := range []int{1, 4} {
			b.Run(fmt.Sprintf("mode=%s/readers=%d", name, readers), func(b *testing.B) {
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
	s := mounted(b, w, Config{}, cache.Config{Memory: 1 << 30})
	run("ordinary", s.dir)
	s = mounted(b, w, Config{Immutable: true}, cache.Config{Memory: 1 << 30})
	run("immutable", s.dir)
}
