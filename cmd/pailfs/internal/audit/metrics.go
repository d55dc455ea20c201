package audit

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// register exports the state of an audit.
func register(reg prometheus.Registerer, status func() Status) error {
	counter := func(name, help string, value func(Status) float64) prometheus.Collector {
		return prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help}, func() float64 { return value(status()) })
	}
	gauge := func(name, help string, value func(Status) float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 { return value(status()) })
	}
	for _, c := range []prometheus.Collector{
		counter("pailfs_audit_written_records_total", "Records that the sink of the audit has taken.", func(s Status) float64 { return float64(s.Written) }),
		counter("pailfs_audit_dropped_records_total", "Records of the audit that nobody will see.", func(s Status) float64 { return float64(s.Dropped) }),
		counter("pailfs_audit_failed_writes_total", "Writes that the sink of the audit refused.", func(s Status) float64 { return float64(s.Failures) }),
		counter("pailfs_audit_reopened_total", "How often the file of the audit was opened again.", func(s Status) float64 { return float64(s.Reopened) }),
		gauge("pailfs_audit_queued_records", "Records of the audit that wait for its sink.", func(s Status) float64 { return float64(s.Queued) }),
		gauge("pailfs_audit_waiting_operations", "Operations that wait for room for their record.", func(s Status) float64 { return float64(s.Waiting) }),
		gauge("pailfs_audit_failing", "1 while the sink of the audit refuses records, else 0.", func(s Status) float64 {
			if s.Error != "" {
				return 1
			}
			return 0
		}),
	} {
		if err := reg.Register(c); err != nil {
			return fmt.Errorf("register metrics: %w", err)
		}
	}
	return nil
}
