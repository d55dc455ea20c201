package ossemu

import "time"

// Stats is what the server has done since it was opened or [Server.ResetStats]
// was called.
type Stats struct {
	// Since is when counting began.
	Since time.Time `json:"since"`
	// Operations holds the operations that have occurred, by name. A request counts
	// from before the first byte of its answer, what is sent when it has been.
	Operations map[string]OperationStats `json:"operations"`
	// Requests, BytesIn and BytesOut are sums over all operations.
	Requests int64 `json:"requests"`
	BytesIn  int64 `json:"bytes_in"`
	BytesOut int64 `json:"bytes_out"`
	// InFlight is how many requests are being served now, MaxInFlight the most that
	// were at one time.
	InFlight    int64 `json:"in_flight"`
	MaxInFlight int64 `json:"max_in_flight"`
	// InjectedLatencyP50 and P99 are quantiles of the latency that the shape asked
	// for, without bandwidth, in seconds.
	InjectedLatencyP50 float64 `json:"injected_latency_p50_seconds"`
	InjectedLatencyP99 float64 `json:"injected_latency_p99_seconds"`
	// Faults counts the requests that suffered a fault, by kind.
	Faults map[FaultKind]int64 `json:"faults"`
	// CPUSeconds is the processor time of the whole process since Since.
	CPUSeconds float64 `json:"cpu_seconds"`
	// RSSBytes is the resident memory of the whole process.
	RSSBytes int64 `json:"rss_bytes"`
}

// OperationStats counts one operation.
type OperationStats struct {
	Requests int64 `json:"requests"`
	// Status counts answers by HTTP status. A request that got no answer counts
	// as 0.
	Status map[int]int64 `json:"status"`
	// BytesIn and BytesOut are bodies as stored and sent, without headers and
	// framing.
	BytesIn  int64 `json:"bytes_in"`
	BytesOut int64 `json:"bytes_out"`
}
