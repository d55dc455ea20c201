package manifest

import (
	"github.com/prometheus/client_golang/prometheus"
)

// metrics are the counters of one Live.
type metrics struct {
	known    prometheus.Counter
	asked    prometheus.Counter
	duration prometheus.Histogram
	failures prometheus.Counter
	evicted  prometheus.Counter
	entries  prometheus.Gauge
	bytes    prometheus.Gauge
}

// newMetrics registers what l counts.
func newMetrics(reg prometheus.Registerer, problems func() float64) (*metrics, error) {
	answers := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "pailfs_manifest_answers_total",
		Help: "Lookups and pieces of directories that were answered, by whether the answer was known or had to be asked for.",
	}, []string{"from"})
	m := &metrics{
		known: answers.WithLabelValues("memory"),
		asked: answers.WithLabelValues("listing"),
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "pailfs_manifest_listing_duration_seconds",
			Help:    "Time of each request for a page of names, failed ones included.",
			Buckets: prometheus.ExponentialBuckets(0.001, 4, 8),
		}),
		failures: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "pailfs_manifest_listing_failures_total",
			Help: "Requests for names that failed.",
		}),
		evicted: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "pailfs_manifest_evicted_entries_total",
			Help: "Names that were dropped to make room for others.",
		}),
		entries: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "pailfs_manifest_held_entries",
			Help: "Names that are remembered.",
		}),
		bytes: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "pailfs_manifest_held_bytes",
			Help: "Memory that remembered names take.",
		}),
	}
	count := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "pailfs_manifest_problem_keys",
		Help: "Keys met that could not be shown under their own name.",
	}, problems)
	for _, c := range []prometheus.Collector{answers, m.duration, m.failures, m.evicted, m.entries, m.bytes, count} {
		if err := reg.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}
