package read

import (
	"fmt"

	"github.com/pailfs/pailfs/bench/dataset"
	"github.com/pailfs/pailfs/bench/reader"
	"github.com/pailfs/pailfs/bench/result"
	"github.com/pailfs/pailfs/bench/workload"
)

// Workloads returns the workloads that read, in the order in which they are listed.
func Workloads(s workload.Sizes) []workload.Workload {
	sequential := reader.Job{Pattern: reader.Sequential, BlockBytes: 1 << 20, Readers: 1, Check: reader.Stamps}
	random := func(count int) reader.Job {
		return reader.Job{Pattern: reader.Random, Readers: 1, Check: reader.Stamps, Order: 11, Count: count}
	}
	small := func(readers, count int) reader.Job {
		return reader.Job{Pattern: reader.Small, Readers: readers, Check: reader.Stamps, Order: 12, Count: count, List: true}
	}
	each := random(s.ColdReads)
	each.EachLatency, each.Check = true, reader.Bytes
	read := func(name, help string, set workload.Set, state workload.State, metric result.Metric, job reader.Job, profile string) workload.Workload {
		return workload.Workload{Name: name, Help: help, Set: set, State: state, Metric: metric, Job: job, Profile: profile, Pieces: pieces(s)}
	}
	return []workload.Workload{
		read("read/seq-cold", "one reader reads a large object from start to end, nothing cached", Big, workload.Cold, result.BytesPerSecond, sequential, "seed"),
		read("read/seq-ssd", "the same from the cache on SSD, page cache dropped", Big, workload.OnSSD, result.BytesPerSecond, sequential, "none"),
		read("read/seq-warm", "the same with the page cache warm", Big, workload.Warm, result.BytesPerSecond, sequential, "none"),
		read("read/second", "one reader reads a large object that was read once before, by a new client, and is whole in its cache", Big, workload.Again, result.BytesPerSecond, sequential, "seed"),
		read("read/rand4k-cold", fmt.Sprintf("single pages at random places of %d open files of %d MiB, one of each, nothing cached", s.ColdReads, s.WideBytes>>20), Wide, workload.Cold, result.Seconds, each, "seed"),
		read("read/rand4k-ssd", "single pages from the cache on SSD, page cache dropped", Big, workload.OnSSD, result.ReadsPerSecond, random(s.SSDReads), "none"),
		read("read/rand4k-warm", "single pages with the page cache warm", Big, workload.Warm, result.ReadsPerSecond, random(s.WarmReads), "none"),
		read("read/small-cold", "open, read and close of small files in random order, nothing cached but names", Small, workload.Cold, result.FilesPerSecond, small(8, s.ColdFiles), "seed"),
		read("read/small-warm", "the same with the page cache warm", Small, workload.Warm, result.FilesPerSecond, small(1, 0), "none"),
	}
}

// pieces is how many cold runs over small files read different ones.
func pieces(s workload.Sizes) int { return max(1, s.SmallFiles/max(1, s.ColdFiles)) }

// The data sets.
const (
	// Big is one large file.
	Big workload.Set = "big"
	// Wide are files that are larger than what a random read need bring in.
	Wide workload.Set = "wide"
	// Small are many small files, 1,000 to a directory.
	Small workload.Set = "small"
	// Stream is one huge file, whose content repeats.
	Stream workload.Set = "stream"
)

// streamPeriod is the length after which the content of Stream repeats, which
// lets the server make it by copying parts.
const streamPeriod = 256 << 20

// Files describes the files of a set that is read.
func Files(s workload.Sizes, set workload.Set) *dataset.Manifest {
	name := string(set)
	switch set {
	case Big:
		return dataset.Big(name, 1, 1, s.BigBytes)
	case Wide:
		return dataset.Big(name, 2, s.ColdReads, s.WideBytes)
	case Small:
		return dataset.Small(name, 3, s.SmallFiles, s.SmallBytes, 1000)
	default:
		return dataset.Repeated(name, 4, s.StreamBytes, min(streamPeriod, s.StreamBytes))
	}
}
