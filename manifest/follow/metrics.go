package follow

import "github.com/prometheus/client_golang/prometheus"

// metrics are the counters of one Tree.
type metrics struct {
	reg      prometheus.Registerer
	collect  []prometheus.Collector
	steps    prometheus.Counter
	failures prometheus.Counter
	unasked  prometheus.Counter
}

// newMetrics registers what t counts.
func newMetrics(reg prometheus.Registerer, t *Tree) (*metrics, error) {
	m := &metrics{
		reg: reg,
		steps: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "pailfs_manifest_generations_taken_total",
			Help: "Times that a mount went over to a newer published manifest.",
		}),
		failures: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "pailfs_manifest_follow_failures_total",
			Help: "Attempts to find, download or open a newer published manifest that failed.",
		}),
		unasked: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "pailfs_manifest_forgotten_names_dropped_total",
			Help: "Names that the manifest was found to be wrong about and for which there was no room to ask the bucket.",
		}),
	}
	number := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "pailfs_manifest_generation_number",
		Help: "Number of the published manifest that is shown.",
	}, func() float64 { return float64(t.now.Load().Number) })
	built := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "pailfs_manifest_built_timestamp_seconds",
		Help: "When the bucket was looked at last for the manifest that is shown.",
	}, func() float64 { return float64(t.now.Load().Ended.Unix()) })
	asked := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "pailfs_manifest_asked_names",
		Help: "Names that are asked of the bucket because the manifest was found to be wrong about them.",
	}, func() float64 { return float64(t.suspect.count.Load()) })
	m.collect = []prometheus.Collector{m.steps, m.failures, m.unasked, number, built, asked}
	for i, c := range m.collect {
		if err := reg.Register(c); err != nil {
			m.collect = m.collect[:i]
			m.unregister()
			return nil, err
		}
	}
	return m, nil
}

// unregister takes the metrics back.
func (m *metrics) unregister() {
	for _, c := range m.collect {
		m.reg.Unregister(c)
	}
}
