package result

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/pailfs/pailfs/bench/machine"
)

// Format is the version of the JSON form. Readers refuse another one.
const Format = 1

// Report is one run of the tool.
type Report struct {
	Format  int           `json:"format"`
	Taken   time.Time     `json:"taken"`
	Command string        `json:"command"`
	Machine machine.Facts `json:"machine"`
	// Short says that sizes were reduced: the run shows that everything works, and
	// no figure in it says how fast.
	Short   bool     `json:"short"`
	Series  []Series `json:"series"`
	Targets []Target `json:"targets,omitempty"`
}

// Metric is what a series measures.
type Metric string

// The metrics.
const (
	BytesPerSecond Metric = "bytes/s"
	FilesPerSecond Metric = "files/s"
	ReadsPerSecond Metric = "reads/s"
	// ObjectsPerSecond counts objects that a manifest took in.
	ObjectsPerSecond Metric = "objects/s"
	// NamesPerSecond counts names that were listed.
	NamesPerSecond Metric = "names/s"
	// Utilisation is the part of the time in which an accelerator computes.
	Utilisation Metric = "AU"
	// Seconds is the time of a single read or save, as the median or the mean of a run.
	Seconds Metric = "s"
	// Requests counts requests to the server.
	Requests Metric = "requests"
	// ResidentBytes is the daemon's peak memory above its memory tier.
	ResidentBytes Metric = "bytes"
)

// Series is what one client did on one workload.
type Series struct {
	Workload string `json:"workload"`
	Client   string `json:"client"`
	// Link is how slow the server pretended to be.
	Link string `json:"link"`
	// How holds what else distinguishes the series, such as "8 readers".
	How    string `json:"how,omitempty"`
	Metric Metric `json:"metric"`
	// Value is the median of the samples' values.
	Value   float64  `json:"value"`
	Samples []Sample `json:"samples"`
	// Failed says why the client could not be measured to the end.
	Failed string `json:"failed,omitempty"`
}

// Sample is one timed run.
type Sample struct {
	// Value is the run in the series' metric.
	Value   float64 `json:"value"`
	Seconds float64 `json:"seconds"`
	Bytes   int64   `json:"bytes"`
	Ops     int64   `json:"ops"`
	// Quantiles of single reads in seconds, where they were timed.
	Quantiles *Quantiles `json:"quantiles,omitempty"`
	// Latencies are the seconds of every single operation, for what is worked out of
	// them.
	Latencies []float64 `json:"-"`
	// ReaderCPU, DaemonCPU and ServerCPU are processor seconds.
	ReaderCPU float64 `json:"reader_cpu_seconds"`
	DaemonCPU float64 `json:"daemon_cpu_seconds"`
	ServerCPU float64 `json:"server_cpu_seconds"`
	// ReaderPeak and DaemonPeak are the largest resident sizes in bytes.
	ReaderPeak int64 `json:"reader_peak_bytes"`
	DaemonPeak int64 `json:"daemon_peak_bytes,omitempty"`
	// DiskRead is how many bytes were read from the disk that everything lies on, by
	// whomever.
	DiskRead int64 `json:"disk_read_bytes,omitempty"`
	// ServerShare is the part of all processors that the server used.
	ServerShare float64 `json:"server_share"`
	// OtherShare is the part of all processors that neither client, daemon nor
	// server used: a machine that is not idle.
	OtherShare float64 `json:"other_share"`
	// Load is the machine's load average when the run began.
	Load float64 `json:"load"`
	// Spent says where the time went.
	Spent *Spent `json:"spent,omitempty"`
	// Utilisation is the part of the time that was computed, for what is worked out of it.
	Utilisation float64 `json:"-"`
	// Requests counts the server's requests by operation, ServerBytes what it sent.
	Requests    map[string]int64 `json:"requests,omitempty"`
	ServerBytes int64            `json:"server_bytes,omitempty"`
	// Hints is what it cost to announce files.
	Hints *Hints `json:"hints,omitempty"`
}

// Hints describe the calls that announce files and let them go.
type Hints struct {
	// Preload and Release are the times of single calls.
	Preload *Quantiles `json:"preload"`
	Release *Quantiles `json:"release"`
	// Echo are the times in which another process returned a byte, after each call that
	// announced: what the machine takes for that just then. nil in older reports.
	Echo *Quantiles `json:"echo,omitempty"`
	// Files is how many were announced, Late how many were read before.
	Files int64 `json:"files"`
	Late  int64 `json:"late"`
}

// Quantiles describe a distribution of times in seconds.
type Quantiles struct {
	Min float64 `json:"min"`
	P50 float64 `json:"p50"`
	P90 float64 `json:"p90"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
}

// Save writes r to path, making its directory.
func (r *Report) Save(path string) error {
	b, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return fmt.Errorf("encode report: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("save report: %w", err)
	}
	if err := os.WriteFile(path, append(b, '\n'), 0o644); err != nil {
		return fmt.Errorf("save report: %w", err)
	}
	return nil
}

// Load reads a report that Save wrote.
func Load(path string) (*Report, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("load report: %w", err)
	}
	var r Report
	if err := json.Unmarshal(b, &r); err != nil {
		return nil, fmt.Errorf("decode report %q: %w", path, err)
	}
	if r.Format != Format {
		return nil, fmt.Errorf("decode report %q: its format is %d, this program knows %d", path, r.Format, Format)
	}
	return &r, nil
}
