package oss

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// nonZeroGatherer leaves out the counters that are zero: every combination of
// operation and outcome is there from the start.
type nonZeroGatherer struct{ prometheus.Gatherer }

func (g nonZeroGatherer) Gather() ([]*dto.MetricFamily, error) {
	families, err := g.Gatherer.Gather()
	for _, f := range families {
		f.Metric = slices.DeleteFunc(f.Metric, func(m *dto.Metric) bool {
			return m.Counter != nil && m.Counter.GetValue() == 0
		})
	}
	return families, err
}
