package suite

import (
	"context"
	"runtime"
	"slices"

	"github.com/pailfs/pailfs/bench/reader"
	"github.com/pailfs/pailfs/bench/result"
	"github.com/pailfs/pailfs/bench/rig"
)

func processors() int { return runtime.NumCPU() }

// Goal is one thing that must be reached, with the way to measure it.
type Goal struct {
	// Name is how it is asked for alone.
	Name string
	// Work says what is measured, in words.
	Work string
	// Take measures.
	Take func(ctx context.Context, r *Runner) (Taken, error)
}

// Taken is what a goal's measurement gave.
type Taken struct {
	Targets []result.Target
	Series  []result.Series
}

// Goals returns all goals, in the order in which they are measured.
func Goals() []Goal {
	goals := []Goal{
		row("seq-warm"),
		row("seq-ssd"),
		{Name: "second", Work: "large file read a second time", Take: takeSecond},
		row("rand4k-warm"),
		row("rand4k-ssd"),
		versusBestBare("seq-cold-link", "cold sequential read, one reader, link 600 MB/s",
			rig.Link{Profile: "seed", Download: "600MB"}, 0.9, reader.Bytes),
		versusBestBare("seq-cold-cpu", "cold sequential read, one reader, no latency, no limit", rig.Link{}, 0.5, reader.CRC64, reader.Bytes),
		row("rand4k-cold"),
		row("small-warm-immutable-1"),
		row("small-warm-immutable-4"),
		row("small-warm-1"),
		row("small-warm-4"),
		row("audit"),
		row("small-cold"),
		{Name: "requests", Work: "requests for stat, open and read of a listed small file", Take: takeRequests},
		{Name: "memory", Work: "daemon's memory while a huge object is read", Take: takeMemory},
		listingOf("flat"),
		listingOf("skewed"),
		{Name: "manifest-inventory", Work: "a manifest of ten million objects from an inventory", Take: takeInventory},
		{Name: "list", Work: "names of a directory of a frozen manifest", Take: takeList},
		{Name: "list-large", Work: "names and attributes of a very large directory", Take: takeListLarge},
		{Name: "tree", Work: "find over many directories", Take: takeTree},
		{Name: "server", Work: "what the server itself can do, without a target", Take: takeServer},
	}
	return slices.Concat(goals, writeGoals(), trainingGoals())
}

// takeSecond reads a large file twice and says what of the second reading came from the
// disk. How fast it was is shown beside a plain file that was read once before.
func takeSecond(ctx context.Context, r *Runner) (Taken, error) {
	shown := result.Target{Name: "second", Work: "large file read a second time, whole on SSD by then", Against: "the disk itself, read a second time"}
	taken, err := r.compare(ctx, "read/second", Options{}, Subject{Driver: rig.Pailfs{}}, Subject{Driver: rig.Disk{}}, shown)
	if err != nil {
		return Taken{}, err
	}
	var read []float64
	for _, sample := range taken.Series[0].Samples {
		read = append(read, float64(sample.DiskRead))
	}
	measured := result.Median(read)
	taken.Targets = append(taken.Targets, result.Target{
		Name: "second-disk", Work: "read from the disk by whomever while it is", Against: "a hundredth of the file",
		Want: float64(r.cfg.Sizes.BigBytes) / 100, AtMost: true, Unit: "B",
		Measured: measured, Least: slices.Min(read), Most: slices.Max(read),
		Subject: result.ShowValue(measured, result.ResidentBytes), Reference: "–",
	})
	return taken, nil
}

// versusBestBare compares a cold sequential read with the fastest bare client,
// for every way in which that one may check what it gets. All take turns in one
// measurement; each way but the first gives a figure with its name appended, of
// which nothing is asked.
func versusBestBare(name, work string, link rig.Link, want float64, checks ...reader.Check) Goal {
	return Goal{Name: name, Work: work, Take: func(ctx context.Context, r *Runner) (Taken, error) {
		w, err := Find(r.cfg.Sizes, "read/seq-cold")
		if err != nil {
			return Taken{}, err
		}
		o := Options{Link: link}
		subjects := []Subject{{Driver: rig.Pailfs{}}}
		for _, check := range checks {
			best, err := r.BestBare(ctx, w, o, check)
			if err != nil {
				return Taken{}, err
			}
			subjects = append(subjects, best)
		}
		taken := Taken{}
		if taken.Series, err = r.Measure(ctx, w, o, subjects...); err != nil {
			return Taken{}, err
		}
		for i, check := range checks {
			t := result.Target{Name: name, Work: work, Against: taken.Series[i+1].Client, Want: want}
			if i > 0 {
				t.Name += "-" + string(check)
				t.Want = 0
			}
			t.Compare(&taken.Series[0], &taken.Series[i+1])
			taken.Targets = append(taken.Targets, t)
		}
		return taken, nil
	}}
}

// compare measures subject and reference in turn and completes t.
func (r *Runner) compare(ctx context.Context, workload string, o Options, subject, reference Subject, t result.Target) (Taken, error) {
	w, err := Find(r.cfg.Sizes, workload)
	if err != nil {
		return Taken{}, err
	}
	series, err := r.Measure(ctx, w, o, subject, reference)
	if err != nil {
		return Taken{}, err
	}
	t.Compare(&series[0], &series[1])
	return Taken{Targets: []result.Target{t}, Series: series}, nil
}
