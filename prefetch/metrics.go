package prefetch

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/pailfs/pailfs/prefetch/session"
)

// registerMetrics exports the state of p.
func registerMetrics(reg prometheus.Registerer, p *Prefetcher) error {
	if reg == nil {
		return nil
	}
	counter := func(name, help string, value func(session.Totals) int64) prometheus.Collector {
		return prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help}, func() float64 { return float64(value(p.Sessions.Totals())) })
	}
	collectors := []prometheus.Collector{
		counter("pailfs_prefetch_preloaded_total", "Paths that samplers announced.", func(t session.Totals) int64 { return t.Preloaded }),
		counter("pailfs_prefetch_dropped_hints_total", "Announced paths that were dropped because the sampler ignored its quota.", func(t session.Totals) int64 { return t.Dropped }),
		counter("pailfs_prefetch_implicit_total", "Paths that were read without having been announced in their session.", func(t session.Totals) int64 { return t.Implicit }),
		counter("pailfs_prefetch_released_total", "Paths that were let go.", func(t session.Totals) int64 { return t.Released }),
		counter("pailfs_prefetch_unknown_releases_total", "Releases of paths that the caller did not hold.", func(t session.Totals) int64 { return t.Unknown }),
		counter("pailfs_prefetch_leaked_total", "Holders whose lease ran out.", func(t session.Totals) int64 { return t.Leaked }),
		counter("pailfs_prefetch_adopted_total", "Holders that a restarted worker took over.", func(t session.Totals) int64 { return t.Adopted }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "pailfs_prefetch_charged_bytes", Help: "Bytes of the cache that sessions hold."}, func() float64 {
			_, charged := p.Sessions.Budget()
			return float64(charged)
		}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "pailfs_prefetch_in_flight", Help: "Objects that are being prefetched."}, func() float64 {
			return float64(p.sched.InFlight())
		}),
	}
	for _, c := range collectors {
		if err := reg.Register(c); err != nil {
			return err
		}
	}
	return nil
}

// Status is what `pailfs status` shows of the loader.
type Status struct {
	Budget   int64             `json:"budget_bytes"`
	Charged  int64             `json:"charged_bytes"`
	InFlight int               `json:"in_flight"`
	WarmJobs int               `json:"warm_jobs"`
	Totals   session.Totals    `json:"totals"`
	Sessions []session.Summary `json:"sessions"`
}
