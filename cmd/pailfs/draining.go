package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pailfs/pailfs/cmd/terminal"
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
	on atomic.Bool
	mu struct {
		sync.Mutex
		reason          string
		begun, deadline time.Time
		stop            context.CancelFunc
	}
	reports sync.WaitGroup
}

// drainReport is what status says of it.
type drainReport struct {
	// Reason is what asked for it: a spot notice, a signal, a command.
	Reason string    `json:"reason"`
	Begun  time.Time `json:"begun"`
	// Deadline is when the machine may be gone.
	Deadline time.Time `json:"deadline"`
	// Unsafe counts the changes that the object store does not have, and their bytes;
	// Safe says that there are none.
	Unsafe      int   `json:"unsafe_changes"`
	UnsafeBytes int64 `json:"unsafe_bytes"`
	Safe        bool  `json:"safe"`
}

// drainNow begins to drain, or brings the deadline forward.
func (d *daemon) drainNow(reason string, deadline time.Time) {
	x := &d.draining
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.on.Load() {
		if deadline.Before(x.mu.deadline) {
			x.mu.reason, x.mu.deadline = reason, deadline
			d.log.Warn("draining", "reason", reason, "deadline", deadline.UTC().Format(time.RFC3339))
		}
		return
	}
	x.on.Store(true)
	x.mu.reason, x.mu.begun, x.mu.deadline = reason, time.Now(), deadline
	var ctx context.Context
	ctx, x.mu.stop = context.WithCancel(context.Background())
	d.log.Warn("draining: prefetching stops, and uploads get all the bandwidth", "reason", reason, "deadline", deadline.UTC().Format(time.RFC3339))
	if d.writing != nil {
		d.writing.space.SetDraining(true)
		x.reports.Go(func() { d.reportDrain(ctx) })
	}
}

// stopDraining goes back to the ordinary.
func (d *daemon) stopDraining() {
	x := &d.draining
	x.mu.Lock()
	on := x.on.Swap(false)
	if on {
		x.mu.stop()
	}
	x.mu.Unlock()
	x.reports.Wait()
	if on && d.writing != nil {
		d.writing.space.SetDraining(false)
		d.log.Info("draining ends")
	}
}

// reportDrain logs what is safe and what is not, until ctx ends.
func (d *daemon) reportDrain(ctx context.Context) {
	tick := time.NewTicker(drainReports)
	defer tick.Stop()
	safe, late := false, false
	for {
		r := d.drainReport()
		switch {
		case r == nil:
			return
		case r.Safe && !safe:
			d.log.Info("drained: everything that was written is in the object store", "deadline", r.Deadline.Format(time.RFC3339))
		case r.Safe:
		case time.Now().After(r.Deadline) && !late:
			late = true
			d.log.Error("the deadline has passed and not everything is safe", "changes", r.Unsafe, "bytes", r.UnsafeBytes, "not_safe", d.unsafePaths())
		default:
			d.log.Warn("not safe yet", "changes", r.Unsafe, "bytes", r.UnsafeBytes, "left", time.Until(r.Deadline).Round(time.Second).String(), "not_safe", d.unsafePaths())
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
func (d *daemon) unsafePaths() string {
	var names []string
	for _, e := range d.writing.space.Pending("", drainNamed) {
		names = append(names, fmt.Sprintf("%s (%s)", e.Path, e.State))
	}
	return strings.Join(names, ", ")
}

// drainReport returns what status says, nil unless draining.
func (d *daemon) drainReport() *drainReport {
	x := &d.draining
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.on.Load() {
		return nil
	}
	r := &drainReport{Reason: x.mu.reason, Begun: x.mu.begun.UTC(), Deadline: x.mu.deadline.UTC(), Safe: true}
	if d.writing != nil {
		st := d.writing.space.Status()
		r.Unsafe, r.UnsafeBytes = st.Pending, st.DirtyBytes
		r.Safe = st.Pending == 0 && len(st.Suspects) == 0
	}
	return r
}

// show writes the report.
func (r *drainReport) show(line func(name, format string, args ...any), now time.Time) {
	left := fmt.Sprintf("%s left", seconds(r.Deadline.Sub(now).Seconds()))
	if !now.Before(r.Deadline) {
		left = "the deadline has passed"
	}
	if r.Safe {
		line("  DRAINING", "%s, %s: everything is in the object store", r.Reason, left)
		return
	}
	line("  DRAINING", "%s, %s: %d changes, %s, are NOT in the object store", r.Reason, left, r.Unsafe, terminal.Size(r.UnsafeBytes))
}

// watchDraining exports what Prometheus is told, and ends draining with the daemon.
func (d *daemon) watchDraining() error {
	for name, gauge := range map[string]struct {
		help string
		of   func() float64
	}{
		"pailfs_drain_active": {"1 while the machine is about to go and what was written comes before all else.", func() float64 {
			if d.draining.on.Load() {
				return 1
			}
			return 0
		}},
		"pailfs_drain_deadline_timestamp_seconds": {"When the machine may be gone, 0 unless draining.", func() float64 {
			d.draining.mu.Lock()
			defer d.draining.mu.Unlock()
			if !d.draining.on.Load() {
				return 0
			}
			return float64(d.draining.mu.deadline.Unix())
		}},
	} {
		if err := d.registry.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: gauge.help}, gauge.of)); err != nil {
			return fmt.Errorf("register metrics of draining: %w", err)
		}
	}
	d.opens("draining", func() error {
		d.stopDraining()
		return nil
	})
	return nil
}

// drainParams are the parameters of the control method drain.
type drainParams struct {
	// Seconds are left until the machine may be gone; 0 means five minutes.
	Seconds float64 `json:"seconds,omitempty"`
	// Stop ends it.
	Stop bool `json:"stop,omitempty"`
}

// answerDrain is the control method drain.
func (d *daemon) answerDrain(ctx context.Context, caller control.Caller, params drainParams) (drainReport, error) {
	select {
	case <-d.opened:
	case <-ctx.Done():
		return drainReport{}, ctx.Err()
	}
	if params.Stop {
		d.stopDraining()
		return drainReport{}, nil
	}
	notice := time.Duration(params.Seconds * float64(time.Second))
	if notice <= 0 {
		notice = drainNotice
	}
	d.drainNow(fmt.Sprintf("pailfs drain by user %d", caller.UID), time.Now().Add(notice))
	if r := d.drainReport(); r != nil {
		return *r, nil
	}
	return drainReport{}, nil
}
