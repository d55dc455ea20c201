package suite

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/pailfs/pailfs/bench/dataset"
	"github.com/pailfs/pailfs/bench/reader"
	"github.com/pailfs/pailfs/bench/result"
	"github.com/pailfs/pailfs/bench/rig"
)

// GrowthSizes are the steps in which each axis grows.
type GrowthSizes struct {
	// Bytes are sizes of an object, Files numbers of files in a directory, Readers are
	// at work at once, Levels are directories above a file.
	Bytes                  [3]int64
	Files, Readers, Levels [3]int
	// Reads is how many small files are read where readers grow.
	Reads int
}

func fullGrowth() GrowthSizes {
	return GrowthSizes{
		Bytes: [3]int64{10 << 20, 100 << 20, 1000 << 20}, Files: [3]int{100, 1_000, 10_000},
		Readers: [3]int{1, 10, 64}, Levels: [3]int{1, 10, 100}, Reads: 640,
	}
}

func shortGrowth() GrowthSizes {
	return GrowthSizes{
		Bytes: [3]int64{2 << 20, 4 << 20, 8 << 20}, Files: [3]int{10, 100, 1_000},
		Readers: [3]int{1, 2, 4}, Levels: [3]int{1, 10, 100}, Reads: 40,
	}
}

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

func growthSet(name string, step int) Set { return Set(name + "-" + strconv.Itoa(step)) }

// makeGrowth describes the files of a set that grows, nil if it is none.
func (s Sizes) makeGrowth(set Set) *dataset.Manifest {
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

// growth is one figure that is taken at each step of an axis.
type growth struct {
	axis, work string
	// steps say what each step has.
	steps [3]string
	// workload is what is measured at a step.
	workload func(step int) (w Workload, readers int)
	// per says of what the time is one: a file that a reader waits for, or the whole.
	per func(s *result.Sample, readers int) float64
}

func (s Sizes) growths() []growth {
	g := s.Growth
	whole := func(x *result.Sample, _ int) float64 { return x.Seconds }
	each := func(x *result.Sample, readers int) float64 { return x.Seconds * float64(readers) / float64(x.Ops) }
	small := func(set Set, state State, profile string, job reader.Job) Workload {
		job.Pattern, job.Check, job.Order = reader.Small, reader.Stamps, 12
		return Workload{Name: "growth/" + string(set), Set: set, State: state, Metric: result.FilesPerSecond, Job: job, Profile: profile, pieces: 1}
	}
	count := func(n [3]int, unit string) (said [3]string) {
		for i := range n {
			said[i] = fmt.Sprintf("%d %s", n[i], unit)
		}
		return said
	}
	return []growth{
		{
			axis: "size", work: "an object is read from start to end, nothing cached",
			steps: [3]string{gib(g.Bytes[0]), gib(g.Bytes[1]), gib(g.Bytes[2])},
			workload: func(step int) (Workload, int) {
				job := reader.Job{Pattern: reader.Sequential, BlockBytes: 1 << 20, Readers: 1, Check: reader.Stamps}
				set := growthSet(sizedSet, step)
				return Workload{Name: "growth/" + string(set), Set: set, State: Cold, Metric: result.BytesPerSecond, Job: job, Profile: "seed"}, 1
			},
			per: whole,
		},
		{
			axis: "files", work: "one file of a directory that nobody has listed is read, nothing cached",
			steps: count(g.Files, "in the directory"),
			workload: func(step int) (Workload, int) {
				return small(growthSet(wideSet, step), Cold, "seed", reader.Job{Readers: 1, Count: 1}), 1
			},
			per: whole,
		},
		{
			axis: "depth", work: "one file is read by its path, nothing cached",
			steps: count(g.Levels, "directories above it"),
			workload: func(step int) (Workload, int) {
				return small(growthSet(deepSet, step), Cold, "seed", reader.Job{Readers: 1, Count: 1}), 1
			},
			per: whole,
		},
		{
			axis: "depth", work: "files are opened by their path, read and closed, all cached",
			steps: count(g.Levels, "directories above them"),
			workload: func(step int) (Workload, int) {
				return small(growthSet(deepSet, step), Warm, "none", reader.Job{Readers: 1}), 1
			},
			per: each,
		},
		{
			axis: "readers", work: fmt.Sprintf("all of %d files of %s are read in random order, nothing cached but names: a file", g.Reads, gib(s.SmallBytes)),
			steps: count(g.Readers, "at once"),
			workload: func(step int) (Workload, int) {
				return small(readSet, Cold, "seed", reader.Job{Readers: 1, List: true}), g.Readers[step]
			},
			per: each,
		},
		{
			axis: "readers", work: "the same, all cached",
			steps: count(g.Readers, "at once"),
			workload: func(step int) (Workload, int) {
				return small(readSet, Warm, "none", reader.Job{Readers: 1, List: true}), g.Readers[step]
			},
			per: each,
		},
	}
}

// Growth measures pailfs while size, files, depth and readers grow, one of them at a
// time: a row for each step, with latency, memory and requests.
func (r *Runner) Growth(ctx context.Context) (result.Table, []result.Series, error) {
	t := result.Table{Columns: []string{"what grows", "work", "step", "time", "at the first step", "daemon's processor time", "daemon's peak memory", "requests"}}
	var all []result.Series
	for _, g := range r.cfg.Sizes.growths() {
		first := 0.0
		for step, said := range g.steps {
			w, readers := g.workload(step)
			series, err := r.Measure(ctx, w, Options{Link: w.Link(), Readers: readers}, Subject{Driver: rig.Pailfs{}})
			all = append(all, series...)
			if err != nil {
				return t, all, err
			}
			s := &series[0]
			took := s.MedianOf(func(x *result.Sample) float64 { return g.per(x, readers) })
			if step == 0 {
				first = took
			}
			t.Rows = append(t.Rows, []string{
				g.axis, g.work, said, result.ShowValue(took, result.Seconds), fmt.Sprintf("× %.2f", took/first),
				result.ShowValue(s.MedianOf(func(x *result.Sample) float64 { return x.DaemonCPU }), result.Seconds),
				gib(int64(s.MedianOf(func(x *result.Sample) float64 { return float64(x.DaemonPeak) }))),
				showRequests(s),
			})
		}
	}
	return t, all, nil
}

// showRequests says which requests the middle one of the samples made, by their number.
func showRequests(s *result.Series) string {
	order := slices.Clone(s.Samples)
	slices.SortFunc(order, func(a, b result.Sample) int { return int(total(a.Requests) - total(b.Requests)) })
	middle := order[len(order)/2].Requests
	said := ""
	for _, name := range slices.Sorted(maps.Keys(middle)) {
		if said != "" {
			said += ", "
		}
		said += fmt.Sprintf("%d %s", middle[name], name)
	}
	if said == "" {
		return "none"
	}
	return said
}
