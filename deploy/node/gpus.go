package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/pailfs/pailfs/deploy/node/api"
)

// verdict and reading are what the agent reads of `pailfs gpu --json --watch`.
type verdict struct {
	State   string `json:"state"`
	Reasons []struct {
		Code    string `json:"code"`
		Message string `json:"message"`
	} `json:"reasons"`
}

type reading struct {
	Expected int `json:"expected"`
	Devices  []struct {
		Health verdict `json:"health"`
	} `json:"devices"`
	Health verdict `json:"health"`
}

// States of a verdict that let a GPU work.
const (
	gpuHealthy  = "Healthy"
	gpuDegraded = "Degraded"
	gpuUnknown  = "Unknown"
)

// codeStuck is the code of a reading that the driver gave no answer to. Nothing is known of
// the node's GPUs then, not even that there are none.
const codeStuck = "DriverStuck"

// readingAge is how old a reading may be before it says nothing any more: a driver can
// hang as a mount can.
const readingAge = 30 * time.Second

// gpus watches the GPUs through a program that needs the driver's library, so that a crash
// in it ends that program and not the agent.
type gpus struct {
	command []string
	mu      struct {
		sync.Mutex
		last   *reading
		at     time.Time
		reason string
	}
}

// run watches until ctx ends, and starts the program again when it ends.
func (g *gpus) run(ctx context.Context, news func()) {
	for ctx.Err() == nil {
		err := g.watch(ctx, news)
		g.mu.Lock()
		g.mu.last, g.mu.reason = nil, fmt.Sprintf("%s ended: %v", g.command[0], err)
		g.mu.Unlock()
		news()
		select {
		case <-ctx.Done():
		case <-time.After(5 * time.Second):
		}
	}
}

// watch runs the program once.
func (g *gpus) watch(ctx context.Context, news func()) error {
	c := exec.CommandContext(ctx, g.command[0], g.command[1:]...)
	c.Cancel = func() error { return c.Process.Signal(syscall.SIGTERM) }
	c.WaitDelay = 2 * time.Second
	var complaint strings.Builder
	c.Stderr = &complaint
	out, err := c.StdoutPipe()
	if err != nil {
		return err
	}
	if err := c.Start(); err != nil {
		return err
	}
	lines := json.NewDecoder(out)
	for {
		var r reading
		if err = lines.Decode(&r); err != nil {
			break
		}
		g.mu.Lock()
		g.mu.last, g.mu.at = &r, time.Now()
		g.mu.Unlock()
		news()
	}
	_ = c.Process.Kill() // it has ended, or says what nobody understands
	if werr := c.Wait(); werr != nil {
		err = werr
	}
	if text := strings.TrimSpace(complaint.String()); text != "" {
		err = errors.New(text)
	}
	return err
}

// state returns what is known at the time now, nil before the first reading.
func (g *gpus) state(now time.Time) *gpuState {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.mu.last != nil && now.Sub(g.mu.at) <= readingAge:
		return g.mu.last.state()
	case g.mu.last != nil:
		s := g.mu.last.state()
		s.verdict, s.reason, s.message = gpuUnknown, api.ReasonUnreadable, fmt.Sprintf("the driver has not answered for %s", now.Sub(g.mu.at).Round(time.Second))
		s.healthy = 0
		return s
	case g.mu.reason != "":
		return &gpuState{verdict: gpuUnknown, reason: api.ReasonUnreadable, message: g.mu.reason}
	}
	return nil
}

// gpuState is what is known of a node's GPUs.
type gpuState struct {
	verdict, reason, message string
	codes                    []string
	expected, healthy        int
}

// state sums a reading up.
func (r *reading) state() *gpuState {
	s := &gpuState{verdict: r.Health.State, reason: r.Health.State, expected: max(r.Expected, len(r.Devices))}
	for _, d := range r.Devices {
		if d.Health.State == gpuHealthy || d.Health.State == gpuDegraded {
			s.healthy++
		}
	}
	var messages []string
	for _, reason := range r.Health.Reasons {
		if len(s.codes) < 8 {
			s.codes = append(s.codes, reason.Code)
			messages = append(messages, reason.Code+": "+reason.Message)
		}
	}
	if len(s.codes) > 0 {
		s.reason = s.codes[0]
	}
	s.message = strings.Join(messages, "; ")
	if s.expected == 0 && s.verdict == gpuUnknown && !slices.Contains(s.codes, codeStuck) {
		s.reason = api.ReasonNoGPU
	}
	if s.message == "" {
		s.message = fmt.Sprintf("%d of %d GPUs may be given work", s.healthy, s.expected)
	}
	return s
}

// works reports whether the node's GPUs may be given work, as far as is known, or there
// are none.
func (s *gpuState) works() bool {
	return s.verdict == gpuHealthy || s.verdict == gpuDegraded || s.reason == api.ReasonNoGPU
}
