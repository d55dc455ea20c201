package reader

import (
	"context"
	"fmt"

	"github.com/pailfs/pailfs/bench/dataset"
)

// Run carries job out in this process.
func Run(ctx context.Context, job Job) (Outcome, error) {
	if err := job.validate(); err != nil {
		return Outcome{}, err
	}
	m, err := dataset.Load(job.Manifest)
	if err != nil {
		return Outcome{}, err
	}
	if job.Check == Stamps && m.Seed == 0 {
		return Outcome{}, fmt.Errorf("set %q is real: its pages carry no stamps", m.Name)
	}
	if job.Pattern == Train {
		return train(ctx, job, m)
	}
	if job.Bucket != nil {
		return runBucket(ctx, job, m)
	}
	return runFiles(job, m)
}

// checkFile compares p, which was read from f at offset, as check says.
func checkFile(check Check, m *dataset.Manifest, f *dataset.File, p []byte, offset int64) error {
	var err error
	switch check {
	case Stamps:
		content, _ := m.Content(f)
		err = content.CheckStamps(p, offset)
	case Bytes:
		if content, made := m.Content(f); made && (offset%dataset.SumSize != 0 || len(f.Sums) == 0) {
			err = content.Check(p, offset)
		} else {
			err = f.CheckSums(p, offset)
		}
	case CRC64: // at the end, over the whole
	}
	if err != nil {
		return fmt.Errorf("check %q: %w", f.Name, err)
	}
	return nil
}
