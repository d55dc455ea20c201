package workload

import (
	"github.com/pailfs/pailfs/bench/names"
	"github.com/pailfs/pailfs/bench/reader"
	"github.com/pailfs/pailfs/bench/result"
	"github.com/pailfs/pailfs/bench/rig"
	"github.com/pailfs/pailfs/bench/writer"
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

	// Pieces is how many runs read different files; the next one begins anew.
	Pieces int
}

// Link is the server where none is chosen.
func (w Workload) Link() rig.Link {
	return rig.Link{Profile: w.Profile, Upload: w.Upload, Memory: w.Task != nil}
}

// JobOf is the job of one run. Every run of a cold state continues in the order
// where the one before ended, so that together they read more of the set.
func (w Workload) JobOf(run, readers int) reader.Job {
	job := w.Job
	if readers > 0 {
		job.Readers = readers
	}
	switch w.State {
	case Cold:
		if job.Pattern == reader.Small && job.Count > 0 {
			job.First = run % w.Pieces * job.Count
		}
	case Again, OnSSD, Warm:
	}
	return job
}

// Fresh reports whether every sample of w has a new client.
func (w Workload) Fresh() bool { return w.State == Cold || w.State == Again }

// Value is what a sample means in the metric of w.
func (w Workload) Value(sample result.Sample) float64 {
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

// Task is what a workload does with files of its own, mostly writing them. Every
// sample begins with an empty prefix of the bucket.
type Task struct {
	Job writer.Job
	// Save, if set, is done by torch.save instead of Job.
	Save *Saving
	// Exists says that the files are there before the client is started; the job then
	// appends to them, or reads them.
	Exists bool
	// Restore reads the files again when all is in the bucket.
	Restore bool
	// Only says that the restoring is what is measured: the writing has no series.
	Only bool
}

// Saving says how torch.save is called.
type Saving struct {
	// Bytes is the size of the tensors, all together.
	Bytes int64 `json:"bytes"`
	// Rounds is how often they are saved, Every the seconds from one begin to the next.
	Rounds int     `json:"rounds"`
	Every  float64 `json:"every"`
	// Keep is how many older files are kept.
	Keep int `json:"keep"`
}

// Listing is what a workload lists.
type Listing struct {
	Tree    string
	Pattern names.Pattern
}

// InStore is added to a workload's name for the time until all is in the bucket.
const InStore = "-in-oss"

// ListedAgain is added to a workload's name for the second time.
const ListedAgain = "-again"

// Takes reports whether a client of that source, with a directory of its own or
// without, has a part in w: what is cached needs no requests, what is not has no
// limit but theirs, and only a directory can be appended to.
func (w Workload) Takes(d rig.Driver) bool {
	if p, ok := d.(rig.Pailfs); ok && p.ReadOnly() && w.Task != nil && w.Task.Job.Pattern != writer.Map {
		return false
	}
	disk, bare := d.Source() == rig.FromDisk, d.Name() == (rig.Bare{}).Name()
	if w.Task != nil {
		reads := w.Task.Job.Pattern == writer.Map
		files := w.Task.Save != nil || w.Task.Job.Pattern == writer.Append || w.Task.Only
		return (!disk || !reads) && (!bare || !files)
	}
	if w.List != nil {
		return true
	}
	return (!bare || w.State == Cold) && (!disk || w.State != Cold)
}
