package rates

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pailfs/pailfs/cache"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/wire"
	"github.com/pailfs/pailfs/fs/writeback"
)

// answers returns two answers of one daemon, ten seconds apart.
func answers() (a, b *wire.Status) {
	a = &wire.Status{PID: 7, Started: time.Unix(1000, 0), Uptime: 5, Writing: &writeback.Status{UploadedBytes: 100}}
	a.Cache.Reads = cache.ReadStats{Memory: 100, SSD: 50, OSS: 10, MemoryBytes: 1000, SSDBytes: 500, OSSBytes: 100}
	a.Store.Requests = []wire.LatencyStats{{Operation: "get", Count: 10, Bytes: 100, Errors: map[string]uint64{"timeout": 1}}}
	b = &wire.Status{PID: 7, Started: time.Unix(1000, 0), Uptime: 15, Writing: &writeback.Status{UploadedBytes: 1100, UploadedFiles: 20}}
	b.Cache.Reads = cache.ReadStats{Memory: 170, SSD: 70, OSS: 20, MemoryBytes: 2000, SSDBytes: 700, OSSBytes: 400}
	b.Cache.Fetched.DemandBytes, b.Cache.Fetched.AroundBytes = 50, 10
	b.FileSystem.Reads, b.FileSystem.ReadBytes, b.FileSystem.Errors = 100, 3000, 1
	b.Store.Limiter.Throttled = 5
	b.Store.Requests = []wire.LatencyStats{
		{Operation: "put", Count: 40},
		{Operation: "get", Count: 30, Bytes: 1100, Errors: map[string]uint64{"timeout": 1, "server_error": 2}},
	}
	return a, b
}

func TestRatesAreDifferencesInASecond(t *testing.T) {
	a, b := answers()
	got, ok := Between(a, b)
	want := Rates{
		Seconds: 10,
		Memory:  Tier{7, 100, 0.7}, SSD: Tier{2, 20, 0.2}, OSS: Tier{1, 30, 0.1},
		Reads: 10, ReadBytes: 300, Errors: 0.1,
		Fetched:       Fetched{Demand: 5, Around: 1},
		UploadedFiles: 2, UploadedBytes: 100, Throttled: 0.5,
		Operations: []Operation{},
		Requests:   []Operation{{"put", 4, 0, 0}, {"get", 2, 0.2, 100}},
	}
	if diff := cmp.Diff(want, got); !ok || diff != "" {
		t.Errorf("%t (-want +got):\n%s", ok, diff)
	}
	if sum := got.Fetched.Sum(); sum != 6 {
		t.Errorf("fetched %g", sum)
	}
}

// TestTwoDaemonsHaveNoRates: the second began with nothing, and a rate would be negative.
func TestTwoDaemonsHaveNoRates(t *testing.T) {
	for name, change := range map[string]func(a, b *wire.Status){
		"another process":                    func(_, b *wire.Status) { b.PID++ },
		"another daemon with the same pid":   func(_, b *wire.Status) { b.Started = b.Started.Add(time.Second) },
		"the same answer":                    func(a, b *wire.Status) { *b = *a },
		"answers in the order of overtaking": func(a, b *wire.Status) { *a, *b = *b, *a },
	} {
		a, b := answers()
		change(a, b)
		if r, ok := Between(a, b); ok {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

// TestNothingReadHasNoShare: there is nothing to divide by.
func TestNothingReadHasNoShare(t *testing.T) {
	a, b := answers()
	b.Cache.Reads = a.Cache.Reads
	if got, ok := Between(a, b); !ok || got.Memory != (Tier{}) || got.OSS != (Tier{}) {
		t.Errorf("%+v, %t", got, ok)
	}
}
