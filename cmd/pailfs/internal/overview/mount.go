package overview

import (
	"time"

	"github.com/pailfs/pailfs/cmd/pailfs/internal/mountpoint"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/rates"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/wire"
	"github.com/pailfs/pailfs/fs/writeback"
	"github.com/pailfs/pailfs/prefetch/session"
)

// Mount is what is shown of one mount.
type Mount struct {
	Source     string `json:"source"`
	MountPoint string `json:"mountpoint"`
	// Health is as `pailfs ls` says it: OK or Degraded of a daemon that answers.
	Health  string   `json:"health"`
	Reasons []string `json:"reasons"`
	PID     int      `json:"pid"`
	Uptime  float64  `json:"uptime_seconds"`
	// Resident is the daemon's memory.
	Resident int64 `json:"resident_bytes"`
	// Rates are null before the second look, and where the daemon did not answer or is another.
	Rates *rates.Rates `json:"rates"`
	// Hits are the shares of all reads since the daemon started.
	Hits  Hits  `json:"hits"`
	Cache Cache `json:"cache"`
	// Latencies are of the kernel's requests, Requests of those to the object store, since the
	// daemon started.
	Latencies []wire.LatencyStats `json:"latencies"`
	Requests  []wire.LatencyStats `json:"requests"`
	Link      Link                `json:"link"`
	// Uploads are null where the mount cannot be written.
	Uploads  *Uploads          `json:"uploads"`
	Sessions []session.Summary `json:"sessions"`
	// Readers are the processes that have files of the mount open, as far as they can be seen.
	Readers []mountpoint.User `json:"readers"`
}

// Hits are shares from 0 to 1, by where reads were answered from.
type Hits struct {
	Memory float64 `json:"memory_share"`
	SSD    float64 `json:"ssd_share"`
	OSS    float64 `json:"oss_share"`
}

// Cache is how full the tiers are.
type Cache struct {
	MemoryUsed  int64 `json:"memory_used_bytes"`
	MemoryLimit int64 `json:"memory_limit_bytes"`
	SSDUsed     int64 `json:"ssd_used_bytes"`
	SSDLimit    int64 `json:"ssd_limit_bytes"`
	// SSDState is ok, degraded or down; "" without an SSD tier.
	SSDState string `json:"ssd_state"`
}

// Link is the way to the object store.
type Link struct {
	Endpoint string `json:"endpoint"`
	// InFlight and Waiting count requests, Limit is how many may be in flight.
	InFlight int `json:"requests_in_flight"`
	Waiting  int `json:"requests_waiting"`
	Limit    int `json:"requests_limit"`
	// Throttled is how often the store said to slow down.
	Throttled uint64 `json:"throttled"`
	// Bandwidth is download-bandwidth; 0 is no limit.
	Bandwidth int64 `json:"download_limit_bytes_per_second"`
	// Refused is why the store refuses access; "" if it does not.
	Refused string `json:"refused"`
}

// Uploads are what is on its way to the object store.
type Uploads struct {
	PendingFiles   int   `json:"pending_files"`
	PendingBytes   int64 `json:"pending_bytes"`
	PendingChanges int   `json:"pending_changes"`
	// OldestSeconds is for how long the oldest change waits.
	OldestSeconds float64 `json:"oldest_seconds"`
	StagedBytes   int64   `json:"staged_bytes"`
	StagedLimit   int64   `json:"staged_limit_bytes"`
	Failing       int     `json:"failing"`
	Retrying      int     `json:"retrying"`
	// WaitFor are changes that wait for more than their turn, with the reason.
	WaitFor []writeback.PendingEntry `json:"wait_for"`
}

// Filled returns m with lists that are empty instead of absent.
func (m Mount) Filled() Mount {
	if m.Reasons == nil {
		m.Reasons = []string{}
	}
	if m.Latencies == nil {
		m.Latencies = []wire.LatencyStats{}
	}
	if m.Requests == nil {
		m.Requests = []wire.LatencyStats{}
	}
	if m.Sessions == nil {
		m.Sessions = []session.Summary{}
	}
	if m.Readers == nil {
		m.Readers = []mountpoint.User{}
	}
	return m
}

// New returns what is shown of what a daemon says, at the moment at which it said it: without rates,
// which need two answers, and without readers, which the daemon does not know.
func New(s *wire.Status, at time.Time) Mount {
	m := Mount{Source: s.Source, MountPoint: s.MountPoint}
	m.Health, m.Reasons = Judge(s, at)
	m.PID, m.Uptime, m.Resident = s.PID, s.Uptime, s.Resident
	reads := s.Cache.Reads
	if all := float64(reads.Memory + reads.SSD + reads.OSS); all > 0 {
		m.Hits = Hits{float64(reads.Memory) / all, float64(reads.SSD) / all, float64(reads.OSS) / all}
	}
	m.Cache.MemoryUsed, m.Cache.MemoryLimit = s.Cache.Memory.Used, s.Cache.Memory.Limit
	if ssd := s.Cache.SSD; ssd != nil {
		m.Cache.SSDUsed, m.Cache.SSDLimit, m.Cache.SSDState = ssd.Used, ssd.Limit, ssd.State
	}
	m.Latencies, m.Requests, m.Sessions = s.Latencies, s.Store.Requests, s.Loader.Sessions
	m.Link = newLink(&s.Store)
	m.Uploads = newUploads(s.Writing, at)
	return m.Filled()
}

func newLink(s *wire.Store) Link {
	l := Link{Endpoint: s.Endpoint, Limit: s.Limiter.Limit, Throttled: s.Limiter.Throttled, Bandwidth: s.DownloadLimit}
	for _, n := range s.Limiter.InFlight {
		l.InFlight += n
	}
	for _, n := range s.Limiter.Waiting {
		l.Waiting += n
	}
	if s.Refused != nil {
		l.Refused = s.Refused.Reason
	}
	return l
}

func newUploads(w *writeback.Status, now time.Time) *Uploads {
	if w == nil {
		return nil
	}
	u := &Uploads{
		PendingFiles: w.DirtyFiles, PendingBytes: w.DirtyBytes, PendingChanges: w.Pending,
		StagedBytes: w.StagedBytes, StagedLimit: w.StagedLimit, Failing: w.FailingCount, Retrying: w.RetryingCount,
		WaitFor: []writeback.PendingEntry{},
	}
	if !w.Oldest.IsZero() {
		u.OldestSeconds = max(now.Sub(w.Oldest).Seconds(), 0)
	}
	for _, some := range [][]writeback.PendingEntry{w.Failing, w.Retrying, w.Restless} {
		u.WaitFor = append(u.WaitFor, some...)
	}
	return u
}
