package control

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// metrics are the counters of one Mux.
type metrics struct {
	calls    *prometheus.CounterVec
	duration *prometheus.HistogramVec
	running  prometheus.Gauge
	stored   prometheus.Gauge
	expired  prometheus.Counter
	panics   prometheus.Counter
}

func newMetrics(reg prometheus.Registerer) *metrics {
	f := promauto.With(reg)
	return &metrics{
		calls: f.NewCounterVec(prometheus.CounterOpts{
			Name: "pailfs_control_calls_total",
			Help: "Calls that were answered, by method and code (ok or the error's).",
		}, []string{"method", "code"}),
		duration: f.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "pailfs_control_call_duration_seconds",
			Help:    "Time from a call's start to the end of its method.",
			Buckets: prometheus.ExponentialBuckets(0.0001, 10, 7),
		}, []string{"method"}),
		running: f.NewGauge(prometheus.GaugeOpts{
			Name: "pailfs_control_calls_held",
			Help: "Calls that run or whose answer is still being fetched.",
		}),
		stored: f.NewGauge(prometheus.GaugeOpts{
			Name: "pailfs_control_answers_held_bytes",
			Help: "Bytes of answers that are still being fetched.",
		}),
		expired: f.NewCounter(prometheus.CounterOpts{
			Name: "pailfs_control_calls_expired_total",
			Help: "Calls that were given up because nobody asked after them.",
		}),
		panics: f.NewCounter(prometheus.CounterOpts{
			Name: "pailfs_control_panics_total",
			Help: "Panics of methods, each logged with its stack.",
		}),
	}
}
