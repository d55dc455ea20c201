package mountpoint

import (
	"sync"
	"time"
)

// Prober probes one mount again and again with at most one call into it at a
// time: a stuck mount keeps one thread, however often it is asked after.
type Prober struct {
	path string
	// probe asks the mount once; it may never return.
	probe func(path string) (State, error)
	mu    struct {
		sync.Mutex
		running *probing
	}
}

// probing is a call into the mount. Its result is set before done is closed.
type probing struct {
	done  chan struct{}
	state State
	err   error
}

// NewProber returns a prober of the mount at path.
func NewProber(path string) *Prober { return &Prober{path: path, probe: statfs} }

// Probe is as the function [Probe].
func (p *Prober) Probe(patience time.Duration) (State, error) {
	p.mu.Lock()
	now := p.mu.running
	if now == nil {
		now = &probing{done: make(chan struct{})}
		p.mu.running = now
		go p.run(now)
	}
	p.mu.Unlock()

	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-now.done:
		return now.state, now.err
	case <-timer.C:
		return Stuck, nil
	}
}

// run makes the call.
func (p *Prober) run(now *probing) {
	now.state, now.err = p.probe(p.path)
	p.mu.Lock()
	p.mu.running = nil
	p.mu.Unlock()
	close(now.done)
}
