package writer

import (
	"errors"
	"fmt"

	"github.com/pailfs/pailfs/bench/bare"
)

// Pattern is what a job does with its files.
type Pattern string

// The patterns.
const (
	// Stream makes each file with write calls of a MiB, syncs it and closes it, as a
	// checkpoint is written.
	Stream Pattern = "stream"
	// Small makes directories and, in them, one file after another with a single write
	// call each, as git clone does.
	Small Pattern = "small"
	// Append opens a file that exists, writes at its end with one call, and closes it,
	// over and over.
	Append Pattern = "append"
	// Read reads each file with calls of a MiB, as a checkpoint is restored.
	Read Pattern = "read"
	// Map maps each file and copies it out of the mapping tensor by tensor, as a model
	// in the safetensors format is loaded.
	Map Pattern = "map"
)

// File is one file of a job.
type File struct {
	Name string `json:"name"`
	Size int64  `json:"size"`
}

// Job says what is to be written and how.
type Job struct {
	// Root is the directory for the files, unless Bucket is set.
	Root string `json:"root,omitempty"`
	// Bucket takes them below Prefix.
	Bucket *bare.Config `json:"bucket,omitempty"`
	Prefix string       `json:"prefix,omitempty"`

	Pattern Pattern `json:"pattern"`
	Files   []File  `json:"files"`
	// Writers is how many processes share the files, or how many requests to a bucket
	// are under way at once.
	Writers int `json:"writers"`
	// PartBytes is the size of the parts of an upload; only for a bucket.
	PartBytes int `json:"part_bytes,omitempty"`
	// NoSync leaves the fsync of Stream out.
	NoSync bool `json:"no_sync,omitempty"`
	// AppendBytes are written Rounds times to the end of the file; Size is what it has
	// before (Append).
	AppendBytes int `json:"append_bytes,omitempty"`
	Rounds      int `json:"rounds,omitempty"`
	// Beside is a file of another file system to which the same is appended in the same
	// rounds, before the job's file and after it in turn, so that both find the machine in
	// the same state. "" means none.
	Beside string `json:"beside,omitempty"`
	// Between is run after each round, off the clock.
	Between []string `json:"between,omitempty"`

	// Gate makes the process say that it is ready and wait for a line.
	Gate bool `json:"gate,omitempty"`
}

// Outcome is what a job found.
type Outcome struct {
	// Began is when the clock started, in nanoseconds since 1970.
	Began int64 `json:"began"`
	// Seconds is the time from the first call to the end of the last one.
	Seconds float64 `json:"seconds"`
	Bytes   int64   `json:"bytes"`
	// Ops counts files, or rounds.
	Ops int64 `json:"ops"`
	// Latencies are the seconds of every round.
	Latencies []float64 `json:"latencies,omitempty"`
	// Beside are those of the file beside.
	Beside []float64 `json:"beside,omitempty"`
	// PeakBytes is the largest resident size of a process that wrote.
	PeakBytes int64 `json:"peak_bytes"`
}

func (j *Job) validate() error {
	switch {
	case (j.Root == "") == (j.Bucket == nil):
		return errors.New("the job must name either a directory or a bucket")
	case len(j.Files) == 0 || j.Writers < 1:
		return fmt.Errorf("%d writers of %d files write nothing", j.Writers, len(j.Files))
	case j.Pattern == Append && (len(j.Files) != 1 || j.Writers != 1 || j.AppendBytes < 1 || j.Rounds < 1 || j.Bucket != nil):
		return errors.New("one writer appends to one file of a directory, a number of times")
	}
	for _, f := range j.Files {
		if f.Size < stampBytes {
			return fmt.Errorf("file %q of %d bytes is too small to be checked", f.Name, f.Size)
		}
	}
	switch j.Pattern {
	case Stream:
		if j.Bucket != nil && (j.PartBytes < blockBytes || j.PartBytes%blockBytes != 0) {
			return fmt.Errorf("parts of %d bytes are not whole MiB", j.PartBytes)
		}
	case Small, Read:
	case Append, Map:
		if j.Bucket != nil {
			return fmt.Errorf("a bucket cannot %s", j.Pattern)
		}
	default:
		return fmt.Errorf("there is no pattern %q", j.Pattern)
	}
	return nil
}

// share returns the files of writer i: neighbours, so that a directory belongs to
// one writer as far as it can.
func (j *Job) share(i int) []File {
	n := len(j.Files)
	return j.Files[i*n/j.Writers : (i+1)*n/j.Writers]
}
