package build

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pailfs/pailfs/oss/ossemu/ossemutest"
)

// A manifest from an inventory of 200,000 objects, in no order, a thousand to a
// directory.
func BenchmarkInventory(b *testing.B) {
	const objects = 200_000
	e, bucket := store(b)
	files := make([]string, 2)
	for f := range files {
		var rows strings.Builder
		for i := f; i < objects; i += len(files) {
			n := i * 7919 % objects
			fmt.Fprintf(&rows, "\"source-bucket\",\"train/%05d/image%%2B%08d.jpg\",\"%d\",\"2026-11-18T06:44:41.000Z\",\"%032X\"\n", n/1000, n, 100_000+n, n*104729)
		}
		files[f] = rows.String()
	}
	inventoryOf(b, e, plainSchema, files...)
	v, err := OpenInventory(b.Context(), bucket, ossemutest.Bucket, inventoryKey, "source-bucket")
	if err != nil {
		b.Fatal(err)
	}
	cfg := config(b, bucket)
	cfg.Name, cfg.Source, cfg.Restart, cfg.MemoryBytes = "source-bucket", v, true, 0
	cfg.Output = filepath.Join(b.TempDir(), "out")
	for b.Loop() {
		result, err := try(b.Context(), cfg)
		if err != nil || result.Summary.Objects != objects {
			b.Fatal(result, err)
		}
	}
	b.ReportMetric(objects*float64(b.N)/b.Elapsed().Seconds(), "objects/s")
}
