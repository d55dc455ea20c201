package wire

import (
	"time"

	"github.com/pailfs/pailfs/cache"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/audit"
	pailfs "github.com/pailfs/pailfs/fs"
	"github.com/pailfs/pailfs/fs/writeback"
	"github.com/pailfs/pailfs/manifest/follow"
	"github.com/pailfs/pailfs/prefetch"
)

// Status is what `pailfs status --json` prints and the control method
// status answers. It holds no secret. Fields may be added; what is here keeps its
// name and meaning.
type Status struct {
	Version    string    `json:"version"`
	PID        int       `json:"pid"`
	Started    time.Time `json:"started"`
	Uptime     float64   `json:"uptime_seconds"`
	Source     string    `json:"source"`
	MountPoint string    `json:"mountpoint"`
	// Log says where the log goes, HTTP where metrics are served ("" for nowhere).
	Log  string `json:"log"`
	HTTP string `json:"http,omitempty"`
	// Warnings say what is wrong and does not end the mount.
	Warnings []string `json:"warnings,omitempty"`
	// Resident is the daemon's memory in bytes, its memory tier included.
	Resident   int64         `json:"resident_bytes"`
	FileSystem pailfs.Status `json:"file_system"`
	// Latencies are the kernel's requests as the daemon answered them.
	Latencies []LatencyStats `json:"latencies"`
	Cache     cache.Stats    `json:"cache"`
	Store     Store          `json:"store"`
	// Loader is what is brought in before it is read.
	Loader prefetch.Status `json:"loader"`
	// Manifest says where names come from.
	Manifest Names `json:"manifest"`
	// Writing is absent where the mount cannot be written.
	Writing *writeback.Status `json:"writing,omitempty"`
	// Drain is absent unless the machine is about to go.
	Drain *Drain `json:"drain,omitempty"`
	// SpotNotice is whether the machine was said to be taken back: SpotOff, SpotUnknown, SpotNone or
	// SpotGiven.
	SpotNotice string `json:"spot_notice"`
	// Audit is absent where nothing is recorded.
	Audit *audit.Status `json:"audit,omitempty"`
	// MetadataTTL is for how many seconds a name is believed.
	MetadataTTL float64 `json:"metadata_ttl_seconds"`
}

// Store is what is known of the object store.
type Store struct {
	Endpoint    string      `json:"endpoint"`
	Region      string      `json:"region,omitempty"`
	Credentials Credentials `json:"credentials"`
	Limiter     Limiter     `json:"limiter"`
	// DownloadLimit is download-bandwidth, absent without a limit.
	DownloadLimit int64          `json:"download_limit_bytes_per_second,omitempty"`
	Requests      []LatencyStats `json:"requests"`
	// Refused is absent unless the store refuses our keys or rights.
	Refused *Refused `json:"refused,omitempty"`
}

// Refused says since when the store refuses access, and why.
type Refused struct {
	Since  time.Time `json:"since"`
	Reason string    `json:"reason"`
}

// Credentials says whose keys are used, and never the keys.
type Credentials struct {
	Kind string `json:"kind"`
	// AccessKeyID is shortened.
	AccessKeyID string `json:"access_key_id,omitempty"`
	// Expires is absent if they do not, or if it is not known.
	Expires *time.Time `json:"expires,omitempty"`
	// Error is why they could not be renewed.
	Error string `json:"error,omitempty"`
}

// Limiter is the state of the request limiter.
type Limiter struct {
	Limit     int            `json:"limit"`
	InFlight  map[string]int `json:"in_flight"`
	Waiting   map[string]int `json:"waiting"`
	Rate      float64        `json:"rate_limit_per_second"`
	Throttled uint64         `json:"throttled"`
}

// LatencyStats are the requests of one kind since the daemon started.
type LatencyStats struct {
	Operation string `json:"operation"`
	Count     uint64 `json:"count"`
	// Errors counts those that did not end well, by how they ended.
	Errors map[string]uint64 `json:"errors,omitempty"`
	// Bytes counts the content received.
	Bytes uint64 `json:"bytes,omitempty"`
	// P50 and P99 are quantiles of the duration in seconds, as exact as the
	// histogram's buckets.
	P50 float64 `json:"p50_seconds"`
	P99 float64 `json:"p99_seconds"`
}

// Names is what status says of names.
type Names struct {
	// Asked is the setting, Mode what came of it (off, follow or frozen) and Reason
	// why.
	Asked  string `json:"asked"`
	Mode   string `json:"mode"`
	Reason string `json:"reason"`
	// File is the manifest's path where one was named.
	File string `json:"file,omitempty"`
	// Generation is the number of the manifest, 0 where it has none.
	Generation uint64 `json:"generation,omitempty"`
	// Objects and Bytes are what it names.
	Objects int64 `json:"objects,omitempty"`
	Bytes   int64 `json:"bytes,omitempty"`
	// Built is when the bucket was looked at last for it; Age is how long ago.
	Built time.Time `json:"built,omitzero"`
	Age   float64   `json:"age_seconds,omitempty"`
	// Damaged is how often a part of it was found damaged since it was opened, and
	// Damage the first of these.
	Damaged int64  `json:"damaged,omitempty"`
	Damage  string `json:"damage,omitempty"`
	// Follow is how newer generations are taken, in mode follow.
	Follow *follow.Status `json:"follow,omitempty"`
}
