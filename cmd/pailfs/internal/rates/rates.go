package rates

import (
	"github.com/pailfs/pailfs/cmd/pailfs/internal/wire"
)

// Rates say what a mount did in a second, over the time between two answers. Fields may be added;
// what is here keeps its name and meaning.
type Rates struct {
	// Seconds is the time between the answers, by the daemon's clock.
	Seconds float64 `json:"over_seconds"`
	// Memory, SSD and OSS are what reads were answered from.
	Memory Tier `json:"memory"`
	SSD    Tier `json:"ssd"`
	OSS    Tier `json:"oss"`
	// Reads and ReadBytes are the kernel's READ requests; what it has itself, or reads in
	// passthrough, is not among them.
	Reads     float64 `json:"reads_per_second"`
	ReadBytes float64 `json:"read_bytes_per_second"`
	// Errors are requests that ended with an error of ours or the store's.
	Errors float64 `json:"errors_per_second"`
	// Fetched is what came from the object store, by what it was fetched for.
	Fetched Fetched `json:"fetched"`
	// UploadedFiles and UploadedBytes are what went there.
	UploadedFiles float64 `json:"uploaded_files_per_second"`
	UploadedBytes float64 `json:"uploaded_bytes_per_second"`
	// Throttled is how often the object store said to slow down.
	Throttled float64 `json:"throttled_per_second"`
	// Operations are the kernel's requests, Requests those to the object store.
	Operations []Operation `json:"operations"`
	Requests   []Operation `json:"requests"`
}

// Tier is what reads were answered from one place.
type Tier struct {
	Reads float64 `json:"reads_per_second"`
	Bytes float64 `json:"bytes_per_second"`
	// Share is that of all reads in this time, from 0 to 1; 0 where there was none.
	Share float64 `json:"share"`
}

// Fetched is bytes a second.
type Fetched struct {
	Demand    float64 `json:"demand_bytes_per_second"`
	Readahead float64 `json:"readahead_bytes_per_second"`
	Prefetch  float64 `json:"prefetch_bytes_per_second"`
	Around    float64 `json:"around_bytes_per_second"`
}

// Sum is all of it.
func (f Fetched) Sum() float64 { return f.Demand + f.Readahead + f.Prefetch + f.Around }

// Operation is requests of one kind.
type Operation struct {
	Operation string  `json:"operation"`
	PerSecond float64 `json:"per_second"`
	Errors    float64 `json:"errors_per_second"`
	Bytes     float64 `json:"bytes_per_second"`
}

// Between returns the rates between two answers, a before b. It reports false where there are none:
// they are of two daemons, or of the same moment.
func Between(a, b *wire.Status) (Rates, bool) {
	seconds := b.Uptime - a.Uptime
	if a.PID != b.PID || !a.Started.Equal(b.Started) || seconds <= 0 {
		return Rates{}, false
	}
	per := func(before, after int64) float64 { return float64(max(after-before, 0)) / seconds }
	before, after := a.Cache.Reads, b.Cache.Reads
	all := after.Memory + after.SSD + after.OSS - before.Memory - before.SSD - before.OSS
	tier := func(reads0, reads1, bytes0, bytes1 int64) Tier {
		t := Tier{Reads: per(reads0, reads1), Bytes: per(bytes0, bytes1)}
		if all > 0 {
			t.Share = float64(max(reads1-reads0, 0)) / float64(all)
		}
		return t
	}
	f0, f1 := a.Cache.Fetched, b.Cache.Fetched
	r := Rates{
		Seconds: seconds,
		Memory:  tier(before.Memory, after.Memory, before.MemoryBytes, after.MemoryBytes),
		SSD:     tier(before.SSD, after.SSD, before.SSDBytes, after.SSDBytes),
		OSS:     tier(before.OSS, after.OSS, before.OSSBytes, after.OSSBytes),
		Reads:   per(a.FileSystem.Reads, b.FileSystem.Reads), ReadBytes: per(a.FileSystem.ReadBytes, b.FileSystem.ReadBytes),
		Errors: per(a.FileSystem.Errors, b.FileSystem.Errors),
		Fetched: Fetched{
			Demand: per(f0.DemandBytes, f1.DemandBytes), Readahead: per(f0.ReadaheadBytes, f1.ReadaheadBytes),
			Prefetch: per(f0.FetchBytes, f1.FetchBytes), Around: per(f0.AroundBytes, f1.AroundBytes),
		},
		Throttled:  per(int64(a.Store.Limiter.Throttled), int64(b.Store.Limiter.Throttled)),
		Operations: operations(a.Latencies, b.Latencies, seconds),
		Requests:   operations(a.Store.Requests, b.Store.Requests, seconds),
	}
	if a.Writing != nil && b.Writing != nil {
		r.UploadedFiles = per(a.Writing.UploadedFiles, b.Writing.UploadedFiles)
		r.UploadedBytes = per(a.Writing.UploadedBytes, b.Writing.UploadedBytes)
	}
	return r, true
}

// operations returns the rates of every kind that b has, in its order.
func operations(a, b []wire.LatencyStats, seconds float64) []Operation {
	before := map[string]wire.LatencyStats{}
	for _, o := range a {
		before[o.Operation] = o
	}
	per := func(before, after uint64) float64 {
		if after < before {
			return 0
		}
		return float64(after-before) / seconds
	}
	all := make([]Operation, 0, len(b))
	for _, o := range b {
		was := before[o.Operation]
		all = append(all, Operation{o.Operation, per(was.Count, o.Count), per(errorsOf(was), errorsOf(o)), per(was.Bytes, o.Bytes)})
	}
	return all
}

// errorsOf counts the requests that did not end well.
func errorsOf(o wire.LatencyStats) (n uint64) {
	for _, count := range o.Errors {
		n += count
	}
	return n
}
