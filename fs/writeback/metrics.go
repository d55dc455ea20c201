package writeback

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/pailfs/pailfs/fs/writeback/internal/order"
)

// newMetrics registers what s counts; reg may be nil.
func newMetrics(reg prometheus.Registerer, s *Space) error {
	if reg == nil {
		return nil
	}
	gauge := func(name, help string, f func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, f)
	}
	locked := func(f func() float64) func() float64 {
		return func() float64 {
			s.mu.Lock()
			defer s.mu.Unlock()
			return f()
		}
	}
	counter := func(name, help string, f func(c *counters) int64) prometheus.Collector {
		return prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help}, func() float64 {
			s.mu.Lock()
			defer s.mu.Unlock()
			return float64(f(&s.mu.stats))
		})
	}
	for _, c := range []prometheus.Collector{
		gauge("pailfs_writeback_dirty_files", "Files of which the object store has not got the last version.",
			locked(func() float64 { return float64(s.mu.Tally.DirtyFiles) })),
		gauge("pailfs_writeback_dirty_bytes", "Bytes of those files that are staged.",
			locked(func() float64 { return float64(s.mu.Tally.DirtyBytes) })),
		gauge("pailfs_writeback_pending_operations", "Uploads, copies, deletions and directories that are due.",
			locked(func() float64 { return float64(len(s.mu.Ops)) })),
		gauge("pailfs_writeback_failing_operations", "Those of them that cannot succeed as things are.",
			locked(func() float64 { failing, _ := s.failures(func(*order.Operation, bool) {}); return float64(failing) })),
		gauge("pailfs_writeback_retrying_operations", "Those of them whose last attempt failed, and which are tried again soon.",
			locked(func() float64 { _, retrying := s.failures(func(*order.Operation, bool) {}); return float64(retrying) })),
		gauge("pailfs_writeback_oldest_seconds", "Age of the oldest of them.", s.oldestAge),
		gauge("pailfs_writeback_staged_bytes", "Bytes that staged files occupy.", func() float64 {
			used, _, _ := s.Usage()
			return float64(used)
		}),
		gauge("pailfs_writeback_staged_limit_bytes", "Bytes that staged files may occupy; 0 for no limit.",
			func() float64 { return float64(s.cfg.StagingSize) }),
		counter("pailfs_writeback_uploaded_files_total", "Files whose content was uploaded or copied.",
			func(c *counters) int64 { return c.published[order.Put] }),
		counter("pailfs_writeback_uploaded_bytes_total", "Bytes that were sent for that: none for what is copied in the bucket.", func(c *counters) int64 { return c.sent }),
		counter("pailfs_writeback_early_bytes_total", "Bytes of parts that were sent while their files were still being written.",
			func(c *counters) int64 { return c.early }),
		counter("pailfs_writeback_deleted_objects_total", "Objects that were deleted because their names were.",
			func(c *counters) int64 { return c.published[order.Delete] }),
		counter("pailfs_writeback_failures_total", "Attempts to publish that failed.", func(c *counters) int64 { return c.failures }),
		counter("pailfs_writeback_conflicts_total", "Changes that met somebody else's.", func(c *counters) int64 { return c.conflicts }),
	} {
		if err := reg.Register(c); err != nil {
			return err
		}
	}
	return nil
}
