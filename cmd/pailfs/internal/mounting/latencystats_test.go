package mounting

import (
	"math"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

func TestQuantilesLieWhereTheValuesAre(t *testing.T) {
	h := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "h", Buckets: []float64{1, 2, 4}})
	read := func() *dto.Histogram {
		var m dto.Metric
		if err := h.Write(&m); err != nil {
			t.Fatal(err)
		}
		return m.GetHistogram()
	}
	if q := quantile(read(), 0.5); q != 0 {
		t.Errorf("median of nothing is %g", q)
	}
	for range 50 {
		h.Observe(0.5)
	}
	for range 50 {
		h.Observe(3)
	}
	for q, want := range map[float64]float64{0.25: 0.5, 0.5: 1, 0.75: 3, 1: 4} {
		if got := quantile(read(), q); math.Abs(got-want) > 1e-9 {
			t.Errorf("quantile %g is %g, want %g", q, got, want)
		}
	}
	for range 1000 {
		h.Observe(100)
	}
	if q := quantile(read(), 0.99); q != 4 {
		t.Errorf("beyond the last bound: %g, want that bound", q)
	}
}

func TestFiguresAreTakenFromTheRegistry(t *testing.T) {
	r := prometheus.NewRegistry()
	seconds := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "pailfs_oss_request_seconds", Help: "x"}, []string{"operation"})
	outcomes := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "pailfs_oss_requests_total", Help: "x"}, []string{"operation", "outcome"})
	received := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "pailfs_oss_received_bytes_total", Help: "x"}, []string{"operation"})
	r.MustRegister(seconds, outcomes, received)
	for range 3 {
		seconds.WithLabelValues("get").Observe(0.02)
	}
	seconds.WithLabelValues("list").Observe(0.02)
	_ = seconds.WithLabelValues("put")
	outcomes.WithLabelValues("get", "ok").Add(2)
	outcomes.WithLabelValues("get", "timeout").Add(1)
	outcomes.WithLabelValues("list", "throttled").Add(0)
	received.WithLabelValues("get").Add(4096)
	f, err := gatherLatencyStats(r)
	if err != nil {
		t.Fatal(err)
	}
	if len(f.store) != 2 || f.store[0].Operation != "get" || f.store[1].Operation != "list" {
		t.Fatalf("operations: %+v", f.store)
	}
	if g := f.store[0]; g.Count != 3 || g.Bytes != 4096 || len(g.Errors) != 1 || g.Errors["timeout"] != 1 {
		t.Errorf("get: %+v", g)
	}
	if l := f.store[1]; len(l.Errors) != 0 {
		t.Errorf("list: %+v", l)
	}
}
