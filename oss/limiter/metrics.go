package limiter

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// waitBounds are seconds, as those of the requests themselves.
var waitBounds = []float64{0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60}

// metrics show a limiter.
type metrics struct {
	waitSeconds [Classes]prometheus.Observer
}

func newMetrics(reg prometheus.Registerer, l *Limiter) (*metrics, error) {
	wait := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "pailfs_oss_wait_seconds",
		Help:    "Time that requests waited for their turn, by class; those that did not wait are not counted.",
		Buckets: waitBounds,
	}, []string{"class"})
	if reg != nil {
		for _, c := range []prometheus.Collector{wait, &collector{limiter: l}} {
			if err := reg.Register(c); err != nil {
				return nil, fmt.Errorf("register metrics: %w", err)
			}
		}
	}
	m := &metrics{}
	for c := range m.waitSeconds {
		m.waitSeconds[c] = wait.WithLabelValues(Class(c).String())
	}
	return m, nil
}

// collector reads all gauges of a limiter at one moment.
type collector struct{ limiter *Limiter }

var (
	limitDesc    = prometheus.NewDesc("pailfs_oss_in_flight_limit", "Requests that may be in flight now.", nil, nil)
	inFlightDesc = prometheus.NewDesc("pailfs_oss_in_flight", "Requests in flight, by class.", []string{"class"}, nil)
	waitingDesc  = prometheus.NewDesc("pailfs_oss_waiting", "Requests waiting for their turn, by class.", []string{"class"}, nil)
	rateDesc     = prometheus.NewDesc("pailfs_oss_rate_limit", "Requests that may start each second while the server throttles; 0 means no bound.", nil, nil)
	throttleDesc = prometheus.NewDesc("pailfs_oss_throttled_total", "Answers that asked to slow down.", nil, nil)
)

// Describe implements prometheus.Collector.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{limitDesc, inFlightDesc, waitingDesc, rateDesc, throttleDesc} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	s := c.limiter.Stats()
	ch <- prometheus.MustNewConstMetric(limitDesc, prometheus.GaugeValue, float64(s.Limit))
	for class := range Classes {
		name := Class(class).String()
		ch <- prometheus.MustNewConstMetric(inFlightDesc, prometheus.GaugeValue, float64(s.InFlight[class]), name)
		ch <- prometheus.MustNewConstMetric(waitingDesc, prometheus.GaugeValue, float64(s.Waiting[class]), name)
	}
	ch <- prometheus.MustNewConstMetric(rateDesc, prometheus.GaugeValue, s.Rate)
	ch <- prometheus.MustNewConstMetric(throttleDesc, prometheus.CounterValue, float64(s.Throttled))
}
