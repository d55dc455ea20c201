package suite

import (
	"context"
	"fmt"

	"github.com/pailfs/pailfs/bench/result"
)

// Study is a measurement of several workloads that brings its own clients.
type Study struct {
	// Name is stable, as a workload's.
	Name string
	// Help says what happens, in a line.
	Help string
	// Take measures. The table is empty where the series say it all.
	Take func(ctx context.Context, r *Runner) (result.Table, []result.Series, error)
}

// Studies returns all studies.
func Studies() []Study {
	return []Study{
		{
			Name: "train/workers", Help: "epochs with 2, 4 and 6 workers and batches of 16, 32 and 64, with hints and without; clients of its own",
			Take: func(ctx context.Context, r *Runner) (result.Table, []result.Series, error) {
				taken, err := takeWorkers(ctx, r)
				return result.Table{}, taken.Series, err
			},
		},
		{
			Name: "seeds/table", Help: "a published table of ways to store, with columns measured here (bench seeds); clients of its own",
			Take: func(ctx context.Context, r *Runner) (result.Table, []result.Series, error) { return r.SeedsTable(ctx) },
		},
	}
}

// FindStudy returns the study called name.
func FindStudy(name string) (Study, error) {
	for _, s := range Studies() {
		if s.Name == name {
			return s, nil
		}
	}
	return Study{}, fmt.Errorf("there is no workload %q: see --list", name)
}
