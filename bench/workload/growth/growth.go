package growth

import (
	"fmt"
	"strconv"

	"github.com/pailfs/pailfs/bench/dataset"
	"github.com/pailfs/pailfs/bench/reader"
	"github.com/pailfs/pailfs/bench/result"
	"github.com/pailfs/pailfs/bench/workload"
)

// The sets that grow; each step has its own.
const (
	sizedSet = "sized"
	wideSet  = "files"
	deepSet  = "deep"
	readSet  = "reads"
	// growthFile is the size of a file where neither size nor readers grow, growthReads
	// of how many files of a directory one run reads.
	growthFile = 4 << 10
	growthDeep = 100
)

func growthSet(name string, step int) workload.Set {
	return workload.Set(name + "-" + strconv.Itoa(step))
}

// Files describes the files of a set that grows, nil if it is none.
func Files(s workload.Sizes, set workload.Set) *dataset.Manifest {
	for i := range 3 {
		switch set {
		case growthSet(sizedSet, i):
			return dataset.Big(string(set), 31, 1, s.Growth.Bytes[i])
		case growthSet(wideSet, i):
			return dataset.Small(string(set), 32, s.Growth.Files[i], growthFile, s.Growth.Files[i])
		case growthSet(deepSet, i):
			return dataset.Deep(string(set), 33, growthDeep, growthFile, s.Growth.Levels[i])
		}
	}
	if set == readSet {
		return dataset.Small(string(set), 34, s.Growth.Reads, s.SmallBytes, s.Growth.Reads)
	}
	return nil
}

// Axis is one figure that is taken at each step of an axis.
type Axis struct {
	// Name is what grows, Work what is done then.
	Name, Work string
	// Steps say what each step has.
	Steps [3]string
	// workload.Workload is what is measured at a step.
	Workload func(step int) (w workload.Workload, readers int)
	// Per says of what the time is one: a file that a reader waits for, or the whole.
	Per func(s *result.Sample, readers int) float64
}

// Axes returns all figures, in the order in which they are taken.
func Axes(s workload.Sizes) []Axis {
	g := s.Growth
	whole := func(x *result.Sample, _ int) float64 { return x.Seconds }
	each := func(x *result.Sample, readers int) float64 { return x.Seconds * float64(readers) / float64(x.Ops) }
	small := func(set workload.Set, state workload.State, profile string, job reader.Job) workload.Workload {
		job.Pattern, job.Check, job.Order = reader.Small, reader.Stamps, 12
		return workload.Workload{Name: "growth/" + string(set), Set: set, State: state, Metric: result.FilesPerSecond, Job: job, Profile: profile, Pieces: 1}
	}
	count := func(n [3]int, unit string) (said [3]string) {
		for i := range n {
			said[i] = fmt.Sprintf("%d %s", n[i], unit)
		}
		return said
	}
	return []Axis{
		{
			Name: "size", Work: "an object is read from start to end, nothing cached",
			Steps: [3]string{size(g.Bytes[0]), size(g.Bytes[1]), size(g.Bytes[2])},
			Workload: func(step int) (workload.Workload, int) {
				job := reader.Job{Pattern: reader.Sequential, BlockBytes: 1 << 20, Readers: 1, Check: reader.Stamps}
				set := growthSet(sizedSet, step)
				return workload.Workload{Name: "growth/" + string(set), Set: set, State: workload.Cold, Metric: result.BytesPerSecond, Job: job, Profile: "seed"}, 1
			},
			Per: whole,
		},
		{
			Name: "files", Work: "one file of a directory that nobody has listed is read, nothing cached",
			Steps: count(g.Files, "in the directory"),
			Workload: func(step int) (workload.Workload, int) {
				return small(growthSet(wideSet, step), workload.Cold, "seed", reader.Job{Readers: 1, Count: 1}), 1
			},
			Per: whole,
		},
		{
			Name: "depth", Work: "one file is read by its path, nothing cached",
			Steps: count(g.Levels, "directories above it"),
			Workload: func(step int) (workload.Workload, int) {
				return small(growthSet(deepSet, step), workload.Cold, "seed", reader.Job{Readers: 1, Count: 1}), 1
			},
			Per: whole,
		},
		{
			Name: "depth", Work: "files are opened by their path, read and closed, all cached",
			Steps: count(g.Levels, "directories above them"),
			Workload: func(step int) (workload.Workload, int) {
				return small(growthSet(deepSet, step), workload.Warm, "none", reader.Job{Readers: 1}), 1
			},
			Per: each,
		},
		{
			Name: "readers", Work: fmt.Sprintf("all of %d files of %s are read in random order, nothing cached but names: a file", g.Reads, size(s.SmallBytes)),
			Steps: count(g.Readers, "at once"),
			Workload: func(step int) (workload.Workload, int) {
				return small(readSet, workload.Cold, "seed", reader.Job{Readers: 1, List: true}), g.Readers[step]
			},
			Per: each,
		},
		{
			Name: "readers", Work: "the same, all cached",
			Steps: count(g.Readers, "at once"),
			Workload: func(step int) (workload.Workload, int) {
				return small(readSet, workload.Warm, "none", reader.Job{Readers: 1, List: true}), g.Readers[step]
			},
			Per: each,
		},
	}
}

func size(bytes int64) string { return result.ShowValue(float64(bytes), result.ResidentBytes) }
