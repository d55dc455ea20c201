package page

import (
	"math"
	"sync"
	"time"

	"github.com/pailfs/pailfs/cmd/pailfs/internal/overview"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/rates"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/wire"
)

// SampleEvery is the time between two samples, and Kept how many there are: half an hour of them.
const (
	SampleEvery = 10 * time.Second
	Kept        = 180
)

// series is how many figures a sample has.
const series = len(figures)

// figures are what a sample holds, by the name in the JSON document. Rates are those since the
// sample before.
var figures = [...]struct {
	name string
	of   func(m *overview.Mount, r *rates.Rates) float64
}{
	{"memory_bytes_per_second", func(_ *overview.Mount, r *rates.Rates) float64 { return r.Memory.Bytes }},
	{"ssd_bytes_per_second", func(_ *overview.Mount, r *rates.Rates) float64 { return r.SSD.Bytes }},
	{"oss_bytes_per_second", func(_ *overview.Mount, r *rates.Rates) float64 { return r.OSS.Bytes }},
	{"hit_share", func(_ *overview.Mount, r *rates.Rates) float64 { return r.Memory.Share + r.SSD.Share }},
	{"reads_per_second", func(_ *overview.Mount, r *rates.Rates) float64 { return r.Reads }},
	{"errors_per_second", func(_ *overview.Mount, r *rates.Rates) float64 { return r.Errors }},
	{"received_bytes_per_second", func(_ *overview.Mount, r *rates.Rates) float64 { return r.Fetched.Sum() }},
	{"sent_bytes_per_second", func(_ *overview.Mount, r *rates.Rates) float64 { return r.UploadedBytes }},
	{"throttled_per_second", func(_ *overview.Mount, r *rates.Rates) float64 { return r.Throttled }},
	{"requests_in_flight", func(m *overview.Mount, _ *rates.Rates) float64 { return float64(m.Link.InFlight) }},
	{"requests_waiting", func(m *overview.Mount, _ *rates.Rates) float64 { return float64(m.Link.Waiting) }},
	{"pending_changes", func(m *overview.Mount, _ *rates.Rates) float64 {
		if m.Uploads == nil {
			return 0
		}
		return float64(m.Uploads.PendingChanges)
	}},
	{"pending_bytes", func(m *overview.Mount, _ *rates.Rates) float64 {
		if m.Uploads == nil {
			return 0
		}
		return float64(m.Uploads.PendingBytes)
	}},
}

// sample is the figures of one moment.
type sample struct {
	// at is in seconds since 1970.
	at     int64
	values [series]float64
}

// History is the last half hour of a mount, as page.json has it.
type History struct {
	// Every is the time between two samples.
	Every float64 `json:"every_seconds"`
	// Time is when each sample was taken, in seconds since 1970, the oldest first.
	Time []int64 `json:"time"`
	// Series are the figures by name, one a sample.
	Series map[string][]float64 `json:"series"`
}

// recorder keeps the last [Kept] samples in 20 KiB that never grow, and one answer of the daemon to
// compare the next one with. Methods may be called at once.
type recorder struct {
	mu      sync.Mutex
	samples [Kept]sample
	next    int // where the next sample goes
	count   int // how many there are
	// last is what the daemon said last, without lists that nothing is computed from.
	last *wire.Status
	// rates are those of the newest sample; nil before there is one.
	rates *rates.Rates
}

// record takes a sample, if there is an answer before s to compare it with.
func (h *recorder) record(s *wire.Status, at time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	last := h.last
	h.last = counters(s)
	if last == nil {
		return
	}
	r, ok := rates.Between(last, s)
	if !ok {
		return
	}
	h.rates = &r
	m := overview.New(s, at)
	one := sample{at: at.Unix()}
	for i, f := range figures {
		// A hundredth is as exact as a picture shows, and keeps the document small.
		one.values[i] = math.Round(f.of(&m, &r)*100) / 100
	}
	h.samples[h.next] = one
	h.next = (h.next + 1) % Kept
	h.count = min(h.count+1, Kept)
}

// counters returns what rates are computed from, without what may be long.
func counters(s *wire.Status) *wire.Status {
	c := &wire.Status{PID: s.PID, Started: s.Started, Uptime: s.Uptime, Latencies: s.Latencies}
	c.Cache.Reads, c.Cache.Fetched = s.Cache.Reads, s.Cache.Fetched
	c.FileSystem.Reads, c.FileSystem.ReadBytes, c.FileSystem.Errors = s.FileSystem.Reads, s.FileSystem.ReadBytes, s.FileSystem.Errors
	c.Store.Limiter.Throttled, c.Store.Requests = s.Store.Limiter.Throttled, s.Store.Requests
	if w := s.Writing; w != nil {
		writing := *w
		writing.Retrying, writing.Failing, writing.Restless, writing.Conflicts, writing.Suspects = nil, nil, nil, nil, nil
		c.Writing = &writing
	}
	return c
}

// report returns what was recorded, and the newest rates, nil before there are any.
func (h *recorder) report() (History, *rates.Rates) {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := History{Every: SampleEvery.Seconds(), Time: make([]int64, h.count), Series: make(map[string][]float64, series)}
	for _, f := range figures {
		all.Series[f.name] = make([]float64, h.count)
	}
	for i := range h.count {
		one := &h.samples[(h.next-h.count+i+Kept)%Kept]
		all.Time[i] = one.at
		for k, f := range figures {
			all.Series[f.name][i] = one.values[k]
		}
	}
	return all, h.rates
}
