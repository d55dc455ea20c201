package ls

import (
	"github.com/pailfs/pailfs/cmd/pailfs/internal/look"
)

// Report is what `pailfs ls --json` prints. Fields may be added; what is here keeps its name and
// meaning.
type Report struct {
	Mounts []Entry `json:"mounts"`
}

// Entry is one mount.
type Entry struct {
	Source     string `json:"source"`
	MountPoint string `json:"mountpoint"`
	// Mode is "ro" or "rw".
	Mode   string `json:"mode"`
	Health string `json:"health"`
	// Reasons say what is wrong.
	Reasons []string `json:"reasons"`
	// What follows is what the daemon says: absent where it did not answer.
	PID     int     `json:"pid,omitempty"`
	Version string  `json:"version,omitempty"`
	Uptime  float64 `json:"uptime_seconds,omitempty"`
	// CachedBytes is what the cache holds in memory and on SSD.
	CachedBytes int64 `json:"cached_bytes"`
	// PendingFiles and PendingBytes are what the object store does not have yet; absent where the
	// mount cannot be written.
	PendingFiles *int   `json:"pending_files,omitempty"`
	PendingBytes *int64 `json:"pending_bytes,omitempty"`
}

// newReport returns what is printed of the mounts.
func newReport(seen []look.Seen) Report {
	r := Report{Mounts: []Entry{}}
	for _, s := range seen {
		r.Mounts = append(r.Mounts, newEntry(s))
	}
	return r
}

func newEntry(s look.Seen) Entry {
	e := Entry{Source: s.Source, MountPoint: s.Path, Mode: "rw", Health: string(s.Health), Reasons: s.Reasons}
	if s.ReadOnly {
		e.Mode = "ro"
	}
	if e.Reasons == nil {
		e.Reasons = []string{}
	}
	status := s.Status
	if status == nil {
		return e
	}
	e.PID, e.Version, e.Uptime = status.PID, status.Version, status.Uptime
	e.CachedBytes = status.Cache.Memory.Kept
	if ssd := status.Cache.SSD; ssd != nil {
		e.CachedBytes += ssd.Used
	}
	if w := status.Writing; w != nil {
		e.PendingFiles, e.PendingBytes = &w.DirtyFiles, &w.DirtyBytes
	}
	return e
}
