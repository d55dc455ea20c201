package writeback

import (
	"slices"
	"strings"
	"time"

	"github.com/pailfs/pailfs/fs/writeback/internal/order"
)

// counters are what happened since the start.
type counters struct {
	published [order.Marker + 1]int64
	// sent are bytes that the object store took, early those of parts of files that were being written.
	sent      int64
	early     int64
	failures  int64
	conflicts int64
}

// Status says where changed bytes are.
type Status struct {
	// DirtyFiles and DirtyBytes are what the object store does not have yet, Pending
	// the operations that are due: uploads, deletions, directories.
	DirtyFiles int   `json:"dirty_files"`
	DirtyBytes int64 `json:"dirty_bytes"`
	Pending    int   `json:"pending"`
	// NotDurable is how many files that were closed or renamed the loss of power would
	// set back.
	NotDurable int `json:"not_durable"`
	// Oldest is since when the oldest of them waits.
	Oldest time.Time `json:"oldest,omitzero"`
	// UploadedFiles counts the files that were published since the start, UploadedBytes what
	// was sent for that: bytes that are copied in the bucket are not, those of a part that
	// had to be sent again are, and of what is under way those that have arrived.
	UploadedFiles int64 `json:"uploaded_files"`
	UploadedBytes int64 `json:"uploaded_bytes"`
	// StagedBytes is what staged files occupy, StagedLimit what they may; 0 is no
	// limit.
	StagedBytes int64 `json:"staged_bytes"`
	StagedLimit int64 `json:"staged_limit"`
	// Failures counts the attempts that failed since the start: it never falls. What fails
	// now is in Retrying and Failing.
	Failures int64 `json:"failures"`
	// Retrying are publications whose last attempt failed, and which are tried again soon, at
	// most 20 of them.
	RetryingCount int            `json:"retrying_count"`
	Retrying      []PendingEntry `json:"retrying,omitempty"`
	// Failing are publications that cannot succeed as things are, at most 20 of them.
	FailingCount int            `json:"failing_count"`
	Failing      []PendingEntry `json:"failing,omitempty"`
	// RestlessCount is how many large files changed each time before all of them was sent:
	// nothing is published of them until they rest. Restless are some, at most 20.
	RestlessCount int            `json:"restless_count"`
	Restless      []PendingEntry `json:"restless,omitempty"`
	// Conflicts are changes that met somebody else's, the last hundred.
	ConflictCount int        `json:"conflict_count"`
	Conflicts     []Conflict `json:"conflicts,omitempty"`
	// Suspects are paths whose content the disk lost.
	SuspectCount int      `json:"suspect_count"`
	Suspects     []string `json:"suspects,omitempty"`
	Draining     bool     `json:"draining"`
}

// Conflict is one change that met somebody else's: theirs is at Path.
type Conflict struct {
	Path string `json:"path"`
	// Kept is where ours is; "" if it was a deletion, which was not carried out.
	Kept string    `json:"kept,omitempty"`
	Time time.Time `json:"time"`
}

// PendingEntry is one publication that is due.
type PendingEntry struct {
	Path string `json:"path"`
	// Doing is upload, delete or mkdir.
	Doing string `json:"doing"`
	// State is waiting, uploading, open, restless (see Status), retrying or failing.
	State string    `json:"state"`
	Bytes int64     `json:"bytes"`
	Since time.Time `json:"since"`
	Error string    `json:"error,omitempty"`
}

// maxEntries is how many examples Status has of each kind.
const maxEntries = 20

// Status returns the state now.
func (s *Space) Status() Status {
	used, limit, _ := s.Usage() // what could not be measured is told as 0
	s.mu.Lock()
	defer s.mu.Unlock()
	st := Status{
		Pending: len(s.mu.Ops), StagedBytes: used, StagedLimit: limit, Draining: s.mu.draining > 0,
		NotDurable: s.mu.undurable.settle(s.journal.Synced()),
		DirtyFiles: s.mu.Tally.DirtyFiles, DirtyBytes: s.mu.Tally.DirtyBytes,
		UploadedFiles: s.mu.stats.published[order.Put], UploadedBytes: s.mu.stats.sent, Failures: s.mu.stats.failures,
	}
	if at, some := s.mu.Tally.Oldest.Since(s.mu.Ops); some {
		st.Oldest = time.Unix(0, at)
	}
	st.FailingCount, st.RetryingCount = s.failures(func(op *order.Operation, failing bool) {
		entries := &st.Retrying
		if failing {
			entries = &st.Failing
		}
		if len(*entries) < maxEntries {
			*entries = append(*entries, s.pendingEntry(op))
		}
	})
	for id := range s.mu.troubles.unsettled {
		if op := s.mu.Ops[id]; op != nil && s.outpaces(op) {
			if st.RestlessCount++; len(st.Restless) < maxEntries {
				st.Restless = append(st.Restless, s.pendingEntry(op))
			}
		}
	}
	for id := range s.mu.Tally.Suspects {
		f := s.mu.Files[id]
		st.Suspects = append(st.Suspects, order.Join(f.Dir, f.Name))
	}
	slices.Sort(st.Suspects)
	for _, c := range s.mu.Conflicts {
		st.Conflicts = append(st.Conflicts, Conflict{Path: c.Path, Kept: c.Kept, Time: time.Unix(0, c.At).UTC()})
	}
	st.SuspectCount, st.ConflictCount = len(st.Suspects), len(st.Conflicts)
	return st
}

// failures counts the operations that cannot succeed as things are, and those of which the last
// attempt failed, and shows some of each, or all. Only where the loss of power has taken a file
// does it look at all that is due. s.mu is held.
func (s *Space) failures(show func(op *order.Operation, failing bool)) (failing, retrying int) {
	if len(s.mu.Losses) == 0 {
		for _, some := range []struct {
			ids     map[uint64]bool
			failing bool
		}{{s.mu.troubles.failing, true}, {s.mu.troubles.retrying, false}} {
			shown := 0
			for id := range some.ids {
				if shown++; shown > maxEntries {
					break
				}
				show(s.mu.Ops[id], some.failing)
			}
		}
		return len(s.mu.troubles.failing), len(s.mu.troubles.retrying)
	}
	for id, op := range s.mu.Ops {
		switch {
		case s.mu.troubles.failing[id] || s.lostBefore(op) != nil:
			failing++
			show(op, true)
		case s.mu.troubles.retrying[id]:
			retrying++
			show(op, false)
		}
	}
	return failing, retrying
}

// oldestAge returns for how long the oldest operation has been due, in seconds.
func (s *Space) oldestAge() float64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	at, some := s.mu.Tally.Oldest.Since(s.mu.Ops)
	if !some {
		return 0
	}
	return max(time.Since(time.Unix(0, at)).Seconds(), 0)
}

// Pending returns what is due at path or below it, the oldest first, at most limit
// entries.
func (s *Space) Pending(path string, limit int) []PendingEntry {
	s.mu.Lock()
	defer s.mu.Unlock()
	var entries []PendingEntry
	for op := range s.mu.Queue.All() {
		if len(entries) == limit {
			break
		}
		if covers(path, strings.TrimSuffix(order.Join(op.Dir, op.Name), "/")) {
			entries = append(entries, s.pendingEntry(op))
		}
	}
	return entries
}

// pendingEntry describes op. s.mu is held.
func (s *Space) pendingEntry(op *order.Operation) PendingEntry {
	run := s.mu.runs[op.ID]
	e := PendingEntry{Path: order.Join(op.Dir, op.Name), Doing: op.Kind.String(), State: "waiting", Since: time.Unix(0, op.At).UTC()}
	if f := s.mu.Files[op.File]; f != nil && op.Kind == order.Put {
		e.Bytes = f.Own()
		if !f.Staged {
			e.Bytes = f.Object.Size
		}
	}
	switch {
	case run.failing:
		e.State = "failing"
	case run.attempts > 0:
		e.State = "retrying"
	case s.outpaces(op):
		e.State = "restless"
	case run.open:
		e.State = "open"
	case run.running || op.Begun:
		e.State = "uploading"
	}
	if run.err != nil && run.attempts > 0 {
		e.Error = run.err.Error()
	}
	if l := s.lostBefore(op); l != nil {
		e.State, e.Error = "failing", l.Err().Error()
	}
	return e
}
