package node

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pailfs/pailfs/deploy/node/api"
)

// cleanProbes is how many probes in a row must find a mount well before it counts as
// ready again.
const cleanProbes = 3

// mountWatcher watches one mount.
type mountWatcher struct {
	mount  Mount
	cfg    *Config
	probes prometheus.Observer
	mu     struct {
		sync.Mutex
		known    bool
		state    probed
		clean    int
		status   *status
		degraded string
		egress   egress
	}
}

// run probes the mount and asks its daemon until ctx ends, and calls news when its
// readiness changed. It does not wait for children that cannot be ended.
func (w *mountWatcher) run(ctx context.Context, news func()) {
	p := &prober{command: w.cfg.Statfs, path: w.mount.Path, patience: w.cfg.ProbePatience}
	defer p.close()
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { w.ask(ctx) })
	for ticks := time.NewTicker(w.cfg.ProbeEvery); ; {
		asked := time.Now()
		found := p.probe(ctx)
		w.probes.Observe(time.Since(asked).Seconds())
		if ctx.Err() == nil && w.note(found) {
			w.cfg.Log.Info("mount changed", "mount", w.mount.Name, "path", w.mount.Path, "state", found.reason, "why", found.message)
			news()
		}
		select {
		case <-ctx.Done():
			ticks.Stop()
			return
		case <-ticks.C:
		}
	}
}

// note takes the result of a probe and reports whether it changed the mount's state.
func (w *mountWatcher) note(found probed) (changed bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if found.ready() && w.mu.known && !w.mu.state.ready() {
		if w.mu.clean++; w.mu.clean < cleanProbes {
			return false
		}
	}
	w.mu.clean = 0
	changed = !w.mu.known || w.mu.state.reason != found.reason
	w.mu.known, w.mu.state = true, found
	return changed
}

// ask asks the daemon again and again while the mount is ready.
func (w *mountWatcher) ask(ctx context.Context) {
	for ctx.Err() == nil {
		if s, ok := w.state(); ok && s.ready() {
			st, err := ask(ctx, w.cfg.Pailfs, w.mount.Path)
			w.answered(st, err, time.Now())
		}
		select {
		case <-ctx.Done():
		case <-time.After(w.cfg.FactsEvery):
		}
	}
}

// answered takes what the daemon said.
func (w *mountWatcher) answered(st *status, err error, at time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil {
		w.mu.degraded = fmt.Sprintf("its daemon does not say how it is: %v", err)
		return
	}
	w.mu.degraded = st.degraded(w.mu.status)
	w.mu.status = st
	w.mu.egress.take(at, st.received())
}

// state returns what is known, if anything is.
func (w *mountWatcher) state() (mountState, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := mountState{Mount: w.mount, probed: w.mu.state, status: w.mu.status, egress: w.mu.egress.rate()}
	if s.reason == api.ReasonReady {
		s.degraded = w.mu.degraded
	}
	return s, w.mu.known
}
