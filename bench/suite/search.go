package suite

import (
	"context"
	"fmt"

	"github.com/pailfs/pailfs/bench/reader"
	"github.com/pailfs/pailfs/bench/rig"
	"github.com/pailfs/pailfs/bench/workload"
)

// BestBare finds the number and the size of parallel ranged GETs with which a
// bare client reads w fastest, each way tried once, and returns it as a subject.
func (r *Runner) BestBare(ctx context.Context, w workload.Workload, o Options, check reader.Check) (Subject, error) {
	if err := r.provideBucket(ctx, w.Set, o.Link); err != nil {
		return Subject{}, err
	}
	best, bestRate := bareSubject(check, 8, 8<<20), 0.0
	try := func(readers, block int) (bool, error) {
		s := bareSubject(check, readers, block)
		b := &bench{runner: r, workload: w, options: o, subject: s}
		sample, err := b.sample(ctx, 0)
		if err != nil {
			return false, fmt.Errorf("search the best bare client: %w", err)
		}
		if sample.Value <= bestRate {
			return false, nil
		}
		best, bestRate = s, sample.Value
		return true, nil
	}
	readers := 0
	for _, n := range []int{1, 2, 4, 8, 16, 32, 64} {
		better, err := try(n, 8<<20)
		if err != nil {
			return Subject{}, err
		}
		if better {
			readers = n
		}
	}
	for _, block := range []int{1 << 20, 2 << 20, 4 << 20, 16 << 20} {
		if _, err := try(readers, block); err != nil {
			return Subject{}, err
		}
	}
	r.cfg.Say("  best bare client: %s", best.Label)
	return best, nil
}

// bareSubject is a bare client with readers requests of block bytes at once.
func bareSubject(check reader.Check, readers, block int) Subject {
	return Subject{
		Driver: rig.Bare{},
		Label:  fmt.Sprintf("bare, %d × %d MiB, %s", readers, block>>20, check),
		Adjust: func(job *reader.Job) {
			job.Readers, job.BlockBytes, job.Check = readers, block, check
		},
	}
}

// BareChecked is the bare client with the workload's own number of requests,
// every byte checked.
func BareChecked() Subject {
	return Subject{Driver: rig.Bare{}, Adjust: func(job *reader.Job) { job.Check = reader.Bytes }}
}
