package fs

import "github.com/pailfs/pailfs/manifest"

// Status is the present state of a mount.
type Status struct {
	Mountpoint string `json:"mountpoint"`
	Source     string `json:"source"`
	// Mode is "immutable" or "ordinary".
	Mode string `json:"mode"`
	// NoOpen says whether files are opened without asking us, and why.
	NoOpen Feature `json:"no_open"`
	// Passthrough says whether whole files are read without us, and why.
	Passthrough Feature `json:"passthrough"`
	// PassthroughFailures counts files that the kernel did not take although it had
	// taken others; they are read through us.
	PassthroughFailures int64 `json:"passthrough_failures"`
	// PassthroughMin is the smallest file, in bytes, that is passed through.
	PassthroughMin int64 `json:"passthrough_min_bytes"`
	// Kernel is the version of the FUSE protocol that the kernel speaks.
	Kernel string `json:"kernel_protocol"`
	// ReadAheadKiB is the kernel's readahead in force; 0 if it cannot be known.
	ReadAheadKiB int `json:"readahead_kib"`
	// ReadAheadReason says why it is not what was asked for.
	ReadAheadReason string `json:"readahead_reason,omitempty"`
	// MaxRead is the largest READ in bytes.
	MaxRead int `json:"max_read_bytes"`
	// OpenFiles and OpenDirs count open descriptions. With no-open the kernel does
	// not tell of files.
	OpenFiles int64 `json:"open_files"`
	OpenDirs  int64 `json:"open_dirs"`
	// Inodes counts the inodes that the kernel knows.
	Inodes int64 `json:"inodes"`
	// Opens counts opens by the way they are read.
	Opens Opens `json:"opens"`
	// Reads and ReadBytes count READ requests and what they returned; what the
	// kernel reads from its own cache or in passthrough never gets here.
	Reads     int64 `json:"reads"`
	ReadBytes int64 `json:"read_bytes"`
	// Stale counts object versions that were read and found replaced.
	Stale int64 `json:"stale"`
	// Errors counts requests that ended with an error that is ours or the store's,
	// not the caller's.
	Errors int64 `json:"errors"`
	// Problems are the keys that could not be shown under their own name.
	Problems manifest.Problems `json:"problems"`
}

// Feature says whether something is on, and why.
type Feature struct {
	On     bool   `json:"on"`
	Reason string `json:"reason"`
}

// Opens counts opens.
type Opens struct {
	Cached      int64 `json:"cached"`
	Passthrough int64 `json:"passthrough"`
}
