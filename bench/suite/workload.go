package suite

import (
	"fmt"
	"slices"

	"github.com/pailfs/pailfs/bench/reader"
	"github.com/pailfs/pailfs/bench/result"
	"github.com/pailfs/pailfs/bench/rig"
)

// State is what the caches hold when the clock starts.
type State string

// The states.
const (
	// Cold: the client has just been started with an empty cache; the plain disk's
	// pages have been dropped.
	Cold State = "cold"
	// Again: as Cold, but everything has been read once since. What the kernel keeps of
	// that is left alone.
	Again State = "again"
	// OnSSD: the client's cache on SSD is complete, and the kernel's caches have
	// been dropped.
	OnSSD State = "ssd"
	// Warm: as OnSSD, and everything has just been read once more.
	Warm State = "warm"
)

// Workload is something that a client is measured at.
type Workload struct {
	// Name is stable: results are compared by it.
	Name string
	// Help says what happens, in a line.
	Help string
	// Set is what is read.
	Set    Set
	State  State
	Metric result.Metric
	// Job is the pattern with its default number of readers.
	Job reader.Job
	// Profile is the server's profile where none is chosen.
	Profile string
	// CacheBytes bounds the client's cache, where it can be; 0 means its default.
	CacheBytes int64

	// Task is done instead of Job, List is listed instead, if set.
	Task *Task
	List *Listing
	// Upload bounds all uploads where no link is chosen.
	Upload string

	// pieces is how many runs read different files; the next one begins anew.
	pieces int
}

// Link is the server where none is chosen.
func (w Workload) Link() rig.Link {
	return rig.Link{Profile: w.Profile, Upload: w.Upload, Memory: w.Task != nil}
}

// Workloads returns all workloads for data of the given sizes, in the order in
// which they are listed.
func Workloads(s Sizes) []Workload {
	sequential := reader.Job{Pattern: reader.Sequential, BlockBytes: 1 << 20, Readers: 1, Check: reader.Stamps}
	random := func(count int) reader.Job {
		return reader.Job{Pattern: reader.Random, Readers: 1, Check: reader.Stamps, Order: 11, Count: count}
	}
	small := func(readers, count int) reader.Job {
		return reader.Job{Pattern: reader.Small, Readers: readers, Check: reader.Stamps, Order: 12, Count: count, List: true}
	}
	each := random(s.ColdReads)
	each.EachLatency, each.Check = true, reader.Bytes
	read := func(name, help string, set Set, state State, metric result.Metric, job reader.Job, profile string) Workload {
		return Workload{Name: name, Help: help, Set: set, State: state, Metric: metric, Job: job, Profile: profile, pieces: s.pieces()}
	}
	return slices.Concat([]Workload{
		read("read/seq-cold", "one reader reads a large object from start to end, nothing cached", Big, Cold, result.BytesPerSecond, sequential, "seed"),
		read("read/seq-ssd", "the same from the cache on SSD, page cache dropped", Big, OnSSD, result.BytesPerSecond, sequential, "none"),
		read("read/seq-warm", "the same with the page cache warm", Big, Warm, result.BytesPerSecond, sequential, "none"),
		read("read/second", "one reader reads a large object that was read once before, by a new client, and is whole in its cache", Big, Again, result.BytesPerSecond, sequential, "seed"),
		read("read/rand4k-cold", fmt.Sprintf("single pages at random places of %d open files of %d MiB, one of each, nothing cached", s.ColdReads, s.WideBytes>>20), Wide, Cold, result.Seconds, each, "seed"),
		read("read/rand4k-ssd", "single pages from the cache on SSD, page cache dropped", Big, OnSSD, result.ReadsPerSecond, random(s.SSDReads), "none"),
		read("read/rand4k-warm", "single pages with the page cache warm", Big, Warm, result.ReadsPerSecond, random(s.WarmReads), "none"),
		read("read/small-cold", "open, read and close of small files in random order, nothing cached but names", Small, Cold, result.FilesPerSecond, small(8, s.ColdFiles), "seed"),
		read("read/small-warm", "the same with the page cache warm", Small, Warm, result.FilesPerSecond, small(1, 0), "none"),
	}, writes(s), lists(s), trainings(s))
}

// Find returns the workload called name.
func Find(s Sizes, name string) (Workload, error) {
	for _, w := range Workloads(s) {
		if w.Name == name {
			return w, nil
		}
	}
	return Workload{}, fmt.Errorf("there is no workload %q: see --list", name)
}

// job is the job of one run. Every run of a cold state continues in the order
// where the one before ended, so that together they read more of the set.
func (w Workload) job(run, readers int) reader.Job {
	job := w.Job
	if readers > 0 {
		job.Readers = readers
	}
	switch w.State {
	case Cold:
		if job.Pattern == reader.Small && job.Count > 0 {
			job.First = run % w.pieces * job.Count
		}
	case Again, OnSSD, Warm:
	}
	return job
}

// fresh reports whether every sample of w has a new client.
func (w Workload) fresh() bool { return w.State == Cold || w.State == Again }

// value is what a sample means in the metric of w.
func (w Workload) value(sample result.Sample) float64 {
	switch w.Metric {
	case result.BytesPerSecond:
		return float64(sample.Bytes) / sample.Seconds
	case result.Seconds:
		return result.Median(sample.Latencies)
	case result.Utilisation:
		return sample.Utilisation
	default:
		return float64(sample.Ops) / sample.Seconds
	}
}
