package mounting

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/pailfs/pailfs/cmd/pailfs/internal/wire"
)

// latencyStats are the metrics that status shows.
type latencyStats struct {
	fileSystem, store []wire.LatencyStats
	resident          int64
}

// gatherLatencyStats reads the metrics that the packages export: they are the one
// place where durations are kept.
func gatherLatencyStats(g prometheus.Gatherer) (latencyStats, error) {
	families, err := g.Gather()
	if err != nil {
		return latencyStats{}, fmt.Errorf("gather metrics: %w", err)
	}
	byName := map[string]*dto.MetricFamily{}
	for _, f := range families {
		byName[f.GetName()] = f
	}
	var f latencyStats
	for _, m := range byName["process_resident_memory_bytes"].GetMetric() {
		f.resident = int64(m.GetGauge().GetValue())
	}
	f.fileSystem = operationsOf(byName["pailfs_fs_request_duration_seconds"], "op")
	f.store = operationsOf(byName["pailfs_oss_request_seconds"], "operation")
	addOutcomes(f.store, byName["pailfs_oss_requests_total"])
	for _, m := range byName["pailfs_oss_received_bytes_total"].GetMetric() {
		for i := range f.store {
			if f.store[i].Operation == label(m, "operation") {
				f.store[i].Bytes = uint64(m.GetCounter().GetValue())
			}
		}
	}
	return f, nil
}

// operationsOf returns the operations of a histogram that have happened, the most
// frequent first.
func operationsOf(family *dto.MetricFamily, name string) []wire.LatencyStats {
	out := []wire.LatencyStats{}
	for _, m := range family.GetMetric() {
		h := m.GetHistogram()
		if h.GetSampleCount() == 0 {
			continue
		}
		out = append(out, wire.LatencyStats{
			Operation: label(m, name),
			Count:     h.GetSampleCount(),
			P50:       quantile(h, 0.5),
			P99:       quantile(h, 0.99),
		})
	}
	slices.SortFunc(out, func(a, b wire.LatencyStats) int {
		if a.Count != b.Count {
			return int(min(max(int64(b.Count)-int64(a.Count), -1), 1))
		}
		return strings.Compare(a.Operation, b.Operation)
	})
	return out
}

// addOutcomes adds how the requests ended that did not end well.
func addOutcomes(operations []wire.LatencyStats, family *dto.MetricFamily) {
	for _, m := range family.GetMetric() {
		outcome, n := label(m, "outcome"), uint64(m.GetCounter().GetValue())
		if outcome == "ok" || n == 0 {
			continue
		}
		for i := range operations {
			if operations[i].Operation == label(m, "operation") {
				if operations[i].Errors == nil {
					operations[i].Errors = map[string]uint64{}
				}
				operations[i].Errors[outcome] += n
			}
		}
	}
}

// label returns the value of a label, "" if there is none.
func label(m *dto.Metric, name string) string {
	for _, l := range m.GetLabel() {
		if l.GetName() == name {
			return l.GetValue()
		}
	}
	return ""
}

// quantile returns the q-quantile of a histogram, taking the values in a bucket
// for evenly spread. Beyond the last bound it is that bound.
func quantile(h *dto.Histogram, q float64) float64 {
	if h.GetSampleCount() == 0 {
		return 0
	}
	rank := q * float64(h.GetSampleCount())
	lower, below := 0.0, 0.0
	for _, b := range h.GetBucket() {
		count, bound := float64(b.GetCumulativeCount()), b.GetUpperBound()
		if count >= rank && count > below {
			if math.IsInf(bound, 1) {
				return lower
			}
			return lower + (bound-lower)*(rank-below)/(count-below)
		}
		lower, below = bound, count
	}
	return lower
}
