package reader

import (
	"errors"
	"fmt"

	"github.com/pailfs/pailfs/bench/dataset"
)

// Training says how a job of the pattern [Train] loads and computes: as PyTorch's
// DataLoader does, whose workers take whole batches in turn, and as MLPerf Storage
// does, which sleeps where an accelerator would compute.
type Training struct {
	// Batch is how many samples a step takes, Compute how many seconds it computes.
	Batch   int     `json:"batch"`
	Compute float64 `json:"compute"`
	// Ahead is how many batches each reader has loaded or is loading beside the one in
	// use; 0 means 2.
	Ahead int `json:"ahead,omitempty"`
	// Records, if set, is how many samples a file holds, each of RecordBytes. Every
	// reader then reads a file of its own from start to end, and a batch takes an equal
	// share from each. Else a sample is a file.
	Records     int   `json:"records,omitempty"`
	RecordBytes int64 `json:"record_bytes,omitempty"`
	// Directory reads the end of a file before the rest, as archives are read.
	Directory bool `json:"directory,omitempty"`
	// Hints announces to pailfs what comes next, up to Lookahead files, and lets go of
	// what was read.
	Hints     bool `json:"hints,omitempty"`
	Lookahead int  `json:"lookahead,omitempty"`
	// Gets is how many requests a bucket's reader has under way for batches to come; 0
	// means that each reader asks for one file after another.
	Gets int `json:"gets,omitempty"`
}

func (j *Job) validateTraining() error {
	t := j.Training
	switch {
	case t == nil:
		return errors.New("a training job says how it trains")
	case t.Batch < 1 || t.Compute < 0 || t.Ahead < 0 || t.Gets < 0:
		return fmt.Errorf("%+v trains nothing", *t)
	case t.Hints && t.Lookahead < 1:
		return errors.New("hints need a lookahead")
	case t.Records > 0 && (t.RecordBytes < 1 || t.Batch%j.Readers != 0):
		return fmt.Errorf("a batch of %d records cannot be read by %d readers", t.Batch, j.Readers)
	case j.Check != Bytes:
		return errors.New("what is trained with is checked as it is read: its bytes")
	case j.BlockBytes < 1 || j.BlockBytes%dataset.SumSize != 0:
		return fmt.Errorf("blocks of %d bytes cannot be checked", j.BlockBytes)
	}
	return nil
}

// ahead is how many batches each reader is ahead.
func (t *Training) ahead() int {
	if t.Ahead == 0 {
		return 2
	}
	return t.Ahead
}

// HintCost is what hints cost who gave them.
type HintCost struct {
	// Preload are the seconds of the calls that announced files, Files how many they
	// announced.
	Preload []float64 `json:"preload"`
	Files   int64     `json:"files"`
	// Echo are the seconds in which another process returned a byte, after each of these
	// calls: what the machine takes for two switches just then.
	Echo []float64 `json:"echo"`
	// Release are the seconds of the calls that let files go, a batch each.
	Release []float64 `json:"release"`
	// Late counts the files that were not announced when they were read.
	Late int64 `json:"late"`
}
