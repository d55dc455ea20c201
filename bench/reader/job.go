package reader

import (
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/pailfs/pailfs/bench/bare"
	"github.com/pailfs/pailfs/bench/dataset"
)

// Pattern is the order in which a job reads.
type Pattern string

// The patterns.
const (
	// Sequential reads each file from its start to its end in blocks.
	Sequential Pattern = "sequential"
	// Random reads pages of 4 KiB at random places of open files.
	Random Pattern = "random"
	// Small opens, reads and closes one file after another in random order.
	Small Pattern = "small"
	// Train loads batches of files in random order and computes between them.
	Train Pattern = "train"
)

// Check says how much of what was read is compared with what must be there.
type Check string

// The checks.
const (
	// Stamps compares the first eight bytes of every page.
	Stamps Check = "stamps"
	// Bytes compares every byte.
	Bytes Check = "bytes"
	// CRC64 compares the CRC-64/XZ of whole files, worked out as the bytes come;
	// only for a bucket.
	CRC64 Check = "crc64"
)

// Job says what is to be read and how.
type Job struct {
	// Manifest is the path of the data set's manifest.
	Manifest string `json:"manifest"`
	// Root is the directory that holds the set, unless Bucket is set.
	Root string `json:"root,omitempty"`
	// Bucket holds the set below Prefix.
	Bucket *bare.Config `json:"bucket,omitempty"`
	Prefix string       `json:"prefix,omitempty"`

	Pattern Pattern `json:"pattern"`
	Check   Check   `json:"check"`
	// Readers is how many files are read at once (Small, Train), or how many requests are
	// under way at once (Sequential over a bucket).
	Readers int `json:"readers"`
	// BlockBytes is how much one read call or request asks for (Sequential).
	BlockBytes int `json:"block_bytes,omitempty"`
	// Order seeds the random order; the same seed gives the same order.
	Order uint64 `json:"order,omitempty"`
	// First and Count cut a piece out of the order: files (Small, Train) or pages
	// (Random). Count 0 means all.
	First int `json:"first,omitempty"`
	Count int `json:"count,omitempty"`
	// EachLatency says that every read is timed by itself, checked outside its time, and
	// of another file (Random).
	EachLatency bool `json:"each_latency,omitempty"`
	// List reads all directories before the clock starts, as a program does that
	// must first learn which files there are (Small, Train).
	List bool `json:"list,omitempty"`
	// Training says how a Train job trains.
	Training *Training `json:"training,omitempty"`
}

// Outcome is what a job found.
type Outcome struct {
	// Seconds is the time from the first read to the end of the last one.
	Seconds float64 `json:"seconds"`
	Bytes   int64   `json:"bytes"`
	// Ops counts files (Small, Train), pages (Random) or read calls (Sequential).
	Ops int64 `json:"ops"`
	// Latencies are the seconds of every single read, if they were asked for, or those
	// that each step waited for its batch (Train).
	Latencies []float64 `json:"latencies,omitempty"`
	// Utilisation is the part of the time that was computed (Train).
	Utilisation float64 `json:"utilisation,omitempty"`
	// Hints is what it cost to announce files.
	Hints *HintCost `json:"hints,omitempty"`
	// PeakBytes is the largest resident size of the process that read.
	PeakBytes int64 `json:"peak_bytes"`
}

func (j *Job) validate() error {
	switch {
	case j.Manifest == "":
		return errors.New("the job names no manifest")
	case (j.Root == "") == (j.Bucket == nil):
		return errors.New("the job must name either a directory or a bucket")
	case j.Readers < 1:
		return fmt.Errorf("%d readers read nothing", j.Readers)
	case j.Check == CRC64 && (j.Bucket == nil || j.Pattern != Sequential):
		return errors.New("CRC64 is checked in sequential reads of a bucket only")
	}
	switch j.Check {
	case Stamps, Bytes, CRC64:
	default:
		return fmt.Errorf("there is no check %q", j.Check)
	}
	switch j.Pattern {
	case Sequential:
		if j.BlockBytes < 1 || j.BlockBytes%dataset.SumSize != 0 && j.Check == Bytes {
			return fmt.Errorf("blocks of %d bytes cannot be checked", j.BlockBytes)
		}
	case Random, Small:
	case Train:
		return j.validateTraining()
	default:
		return fmt.Errorf("there is no pattern %q", j.Pattern)
	}
	return nil
}

// Files returns the files of a Small or Train job in its order.
func (j *Job) Files(m *dataset.Manifest) ([]*dataset.File, error) {
	order := shuffled(j.Order, len(m.Files))
	piece, err := cut(order, j.First, j.Count)
	if err != nil {
		return nil, fmt.Errorf("choose files of %q: %w", m.Name, err)
	}
	files := make([]*dataset.File, len(piece))
	for i, n := range piece {
		files[i] = &m.Files[n]
	}
	return files, nil
}

// page is one read of a Random job.
type page struct {
	file   int
	offset int64
}

// slotBytes is a piece of a file of which a Random job reads one page before it
// comes to it again.
const slotBytes = 1 << 20

// pages returns the reads of a Random job: each in another slot, at a random
// page of it. A Count above the number of slots goes round again, at other
// pages. Where each latency matters no two reads are of one file: there are
// clients that bring in 256 MiB around a page, and would answer the others from
// that.
func (j *Job) pages(m *dataset.Manifest) ([]page, error) {
	random := rand.New(rand.NewPCG(j.Order, 1))
	var slots []page
	for i := range m.Files {
		n := m.Files[i].Size / slotBytes
		if j.EachLatency && n > 0 {
			slots = append(slots, page{i, random.Int64N(n) * slotBytes})
			continue
		}
		for s := range n {
			slots = append(slots, page{i, s * slotBytes})
		}
	}
	if len(slots) == 0 {
		return nil, fmt.Errorf("choose pages of %q: its files are smaller than %d bytes", m.Name, slotBytes)
	}
	order := shuffled(j.Order, len(slots))
	count := j.Count
	if count == 0 {
		count = len(slots)
	}
	if j.EachLatency && j.First+count > len(slots) {
		return nil, fmt.Errorf("choose pages of %q: %d reads from %d on are more than its %d files, and none may be read twice", m.Name, count, j.First, len(slots))
	}
	pages := make([]page, 0, count)
	for i := range j.First + count {
		p := slots[order[i%len(order)]]
		p.offset += random.Int64N(slotBytes/dataset.PageSize) * dataset.PageSize
		if i >= j.First {
			pages = append(pages, p)
		}
	}
	return pages, nil
}

func shuffled(seed uint64, n int) []int { return rand.New(rand.NewPCG(seed, 0)).Perm(n) }

func cut(order []int, first, count int) ([]int, error) {
	if count == 0 {
		count = len(order) - first
	}
	if first < 0 || count < 1 || first+count > len(order) {
		return nil, fmt.Errorf("%d from %d are not among %d", count, first, len(order))
	}
	return order[first : first+count], nil
}
