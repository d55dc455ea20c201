package mounting

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pailfs/pailfs/cmd/pailfs/internal/wire"
	"github.com/pailfs/pailfs/fs/writeback"
	"github.com/pailfs/pailfs/prefetch/control"
)

const (
	// drainNotice is how long a machine has when nobody says otherwise: a spot instance
	// is told five minutes ahead.
	drainNotice = 5 * time.Minute
	// drainReports is how often the log says what is safe, while something is not.
	drainReports = 10 * time.Second
	// drainNamed is how many paths the log names.
	drainNamed = 5
)

// draining is a time in which what was written comes before all else, because the
// machine is about to go: nothing is prefetched, uploads are neither paced nor held
// back, and the log and status say what is safe.
type draining struct {
	log *slog.Logger
	// space is what is to be published; nil where the mount cannot be written.
	space *writeback.Space

	on atomic.Bool
	mu struct {
		sync.Mutex
		reason          string
		begun, deadline time.Time
		stop            context.CancelFunc
	}
	reports sync.WaitGroup
}

// begin begins to drain, or brings the deadline forward.
func (x *draining) begin(reason string, deadline time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.on.Load() {
		if deadline.Before(x.mu.deadline) {
			x.mu.reason, x.mu.deadline = reason, deadline
			x.log.Warn("draining", "reason", reason, "deadline", deadline.UTC().Format(time.RFC3339))
		}
		return
	}
	x.on.Store(true)
	x.mu.reason, x.mu.begun, x.mu.deadline = reason, time.Now(), deadline
	var ctx context.Context
	ctx, x.mu.stop = context.WithCancel(context.Background())
	x.log.Warn("draining: prefetching stops, and uploads get all the bandwidth", "reason", reason, "deadline", deadline.UTC().Format(time.RFC3339))
	if x.space != nil {
		x.space.SetDraining(true)
		x.reports.Go(func() { x.tell(ctx) })
	}
}

// end goes back to the ordinary.
func (x *draining) end() {
	x.mu.Lock()
	on := x.on.Swap(false)
	if on {
		x.mu.stop()
	}
	x.mu.Unlock()
	x.reports.Wait()
	if on && x.space != nil {
		x.space.SetDraining(false)
		x.log.Info("draining ends")
	}
}

// tell logs what is safe and what is not, until ctx ends.
func (x *draining) tell(ctx context.Context) {
	tick := time.NewTicker(drainReports)
	defer tick.Stop()
	safe, late := false, false
	for {
		r := x.report()
		switch {
		case r == nil:
			return
		case r.Safe && !safe:
			x.log.Info("drained: everything that was written is in the object store", "deadline", r.Deadline.Format(time.RFC3339))
		case r.Safe:
		case time.Now().After(r.Deadline) && !late:
			late = true
			x.log.Error("the deadline has passed and not everything is safe", "changes", r.Unsafe, "bytes", r.UnsafeBytes, "not_safe", x.unsafePaths())
		default:
			x.log.Warn("not safe yet", "changes", r.Unsafe, "bytes", r.UnsafeBytes, "left", time.Until(r.Deadline).Round(time.Second).String(), "not_safe", x.unsafePaths())
		}
		safe = r.Safe
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// unsafePaths names some of what the object store does not have.
func (x *draining) unsafePaths() string {
	var names []string
	for _, e := range x.space.Pending("", drainNamed) {
		names = append(names, fmt.Sprintf("%s (%s)", e.Path, e.State))
	}
	return strings.Join(names, ", ")
}

// report returns what status says, nil unless draining.
func (x *draining) report() *wire.Drain {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.on.Load() {
		return nil
	}
	r := &wire.Drain{Reason: x.mu.reason, Begun: x.mu.begun.UTC(), Deadline: x.mu.deadline.UTC(), Safe: true}
	if x.space != nil {
		st := x.space.Status()
		r.Unsafe, r.UnsafeBytes = st.Pending, st.DirtyBytes
		r.Safe = st.Pending == 0 && len(st.Suspects) == 0
	}
	return r
}

// register exports what Prometheus is told.
func (x *draining) register(registry *prometheus.Registry) error {
	for name, gauge := range map[string]struct {
		help string
		of   func() float64
	}{
		"pailfs_drain_active": {"1 while the machine is about to go and what was written comes before all else.", func() float64 {
			if x.on.Load() {
				return 1
			}
			return 0
		}},
		"pailfs_drain_deadline_timestamp_seconds": {"When the machine may be gone, 0 unless draining.", func() float64 {
			x.mu.Lock()
			defer x.mu.Unlock()
			if !x.on.Load() {
				return 0
			}
			return float64(x.mu.deadline.Unix())
		}},
	} {
		if err := registry.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: gauge.help}, gauge.of)); err != nil {
			return fmt.Errorf("register metrics of draining: %w", err)
		}
	}
	return nil
}

// answerDrain is the control method drain.
func (d *Daemon) answerDrain(ctx context.Context, caller control.Caller, params wire.DrainParams) (wire.Drain, error) {
	select {
	case <-d.opened:
	case <-ctx.Done():
		return wire.Drain{}, ctx.Err()
	}
	if params.Stop {
		d.draining.end()
		return wire.Drain{}, nil
	}
	notice := time.Duration(params.Seconds * float64(time.Second))
	if notice <= 0 {
		notice = drainNotice
	}
	d.draining.begin(fmt.Sprintf("pailfs drain by user %d", caller.UID), time.Now().Add(notice))
	if r := d.draining.report(); r != nil {
		return *r, nil
	}
	return wire.Drain{}, nil
}
