package node

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are what the agent counts itself. What it observes is collected from it when
// somebody asks.
type metrics struct {
	turns  *prometheus.CounterVec
	probes *prometheus.HistogramVec
}

func newMetrics() *metrics {
	return &metrics{
		turns: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "pailfs_node_turns_total", Help: "Turns in which what the node has to say was written where that was due, by whether the API server took it.",
		}, []string{"outcome"}),
		probes: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "pailfs_node_probe_seconds", Help: "How long a mount took to answer a probe; one that did not answer took as long as it was waited for.",
			Buckets: []float64{.0005, .001, .005, .01, .05, .1, .5, 1, 2, 5},
		}, []string{"mount"}),
	}
}

// turn counts one turn.
func (m *metrics) turn(err error) {
	outcome := "ok"
	if err != nil {
		outcome = "failed"
	}
	m.turns.WithLabelValues(outcome).Inc()
}

// figure describes a gauge that is collected.
func figure(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("pailfs_node_"+name, help, labels, nil)
}

var (
	mountReady    = figure("mount_ready", "1 while the mount serves.", "mount")
	mountDegraded = figure("mount_degraded", "1 while the mount serves less well than it should; the Node's condition says why.", "mount")
	mountEgress   = figure("mount_egress_bytes_per_second", "Bytes a second that the mount reads from the object store, averaged over a minute.", "mount")
	mountUsed     = figure("mount_cache_used_bytes", "Bytes in the mount's cache on SSD.", "mount")
	mountCapacity = figure("mount_cache_capacity_bytes", "Bytes that the mount's cache on SSD may take.", "mount")
	mountDirty    = figure("mount_dirty_bytes", "Bytes that were written to the mount and are not in the object store yet.", "mount")
	datasetWarm   = figure("dataset_warm_bytes", "Bytes of a dataset that are in the cache.", "mount", "dataset")
	datasetSize   = figure("dataset_bytes", "Bytes of a dataset, 0 if that is not known.", "mount", "dataset")
	gpusExpected  = figure("gpus_expected", "GPUs that the node should have.")
	gpusHealthy   = figure("gpus_healthy", "GPUs that may be given work.")
	lastTurn      = figure("last_turn_timestamp_seconds", "When the agent last finished a turn; it does so every second, and less often while the API server refuses.")
)

// Describe implements [prometheus.Collector].
func (a *Agent) Describe(to chan<- *prometheus.Desc) {
	a.metrics.turns.Describe(to)
	a.metrics.probes.Describe(to)
	for _, d := range []*prometheus.Desc{
		mountReady, mountDegraded, mountEgress, mountUsed, mountCapacity, mountDirty, datasetWarm, datasetSize, gpusExpected, gpusHealthy, lastTurn,
	} {
		to <- d
	}
}

// Collect implements [prometheus.Collector].
func (a *Agent) Collect(to chan<- prometheus.Metric) {
	a.metrics.turns.Collect(to)
	a.metrics.probes.Collect(to)
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	if last := a.Turned(); !last.IsZero() {
		gauge(lastTurn, float64(last.UnixMilli())/1000)
	}
	o, known := a.observe(time.Now())
	if !known {
		return
	}
	for _, m := range o.mounts {
		gauge(mountReady, one(m.ready()), m.Name)
		gauge(mountDegraded, one(m.ready() && m.degraded != ""), m.Name)
	}
	s := statusOf(o)
	for _, m := range s.Mounts {
		gauge(mountEgress, float64(m.EgressBytesPerSecond), m.Name)
		gauge(mountUsed, float64(m.UsedBytes), m.Name)
		gauge(mountCapacity, float64(m.CapacityBytes), m.Name)
		gauge(mountDirty, float64(m.DirtyBytes), m.Name)
	}
	for _, d := range s.Datasets {
		gauge(datasetWarm, float64(d.BytesWarm), d.Mount, d.Name)
		gauge(datasetSize, float64(d.BytesTotal), d.Mount, d.Name)
	}
	if s.GPUs != nil {
		gauge(gpusExpected, float64(s.GPUs.Expected))
		gauge(gpusHealthy, float64(s.GPUs.Healthy))
	}
}

// one is a boolean as Prometheus has it.
func one(is bool) float64 {
	if is {
		return 1
	}
	return 0
}
