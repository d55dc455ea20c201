package follow

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/pailfs/pailfs/manifest"
	"github.com/pailfs/pailfs/manifest/publish"
	"github.com/pailfs/pailfs/oss"
)

// Run asks for newer generations until ctx ends, and returns nil then. A failure
// changes nothing but the status; it is tried again.
func (t *Tree) Run(ctx context.Context) error {
	for {
		// Thousands of mounts that were started together must not ask together.
		wait := t.cfg.Poll - t.cfg.Poll/10 + rand.N(t.cfg.Poll/5+1)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
		if err := t.Poll(ctx); err != nil && ctx.Err() == nil {
			t.failed(err)
		}
	}
}

// Poll asks once for a newer generation and goes over to it.
func (t *Tree) Poll(ctx context.Context) error {
	newest, err := publish.Latest(ctx, t.bucket, t.cfg.Prefix)
	if err != nil {
		return err
	}
	have := t.now.Load().Number
	switch {
	case newest.Number <= have:
		t.well()
		return nil
	case t.refuses(newest):
		return nil // and goes on failing
	}
	next, err := t.fetch(ctx, newest)
	if err != nil {
		t.refuse(newest, err)
		return err
	}
	t.goTo(next)
	return nil
}

// refusedPolls is for how many polls a generation that cannot be used is left alone:
// it is as large as any, and probably stays as it is.
const refusedPolls = 10

// refuse notes that g was found damaged, if that is what err says.
func (t *Tree) refuse(g publish.Generation, err error) {
	if !errors.Is(err, manifest.ErrDamaged) && !errors.Is(err, manifest.ErrVersion) && !errors.Is(err, oss.ErrCorrupted) {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mu.refused, t.mu.refusedUntil = g, time.Now().Add(refusedPolls*t.cfg.Poll)
}

// refuses reports whether g was found damaged a short time ago.
func (t *Tree) refuses(g publish.Generation) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return g.Object == t.mu.refused.Object && time.Now().Before(t.mu.refusedUntil)
}

// goTo makes next answer from now on. The tree takes over its holding.
func (t *Tree) goTo(next *generation) {
	before := t.now.Load()
	t.suspect.settle(before.snapshot, next.snapshot)
	t.now.Store(next)
	before.release()
	select {
	case t.stepped <- struct{}{}:
	default:
	}
	t.mu.Lock()
	t.mu.status.Taken = time.Now()
	t.mu.Unlock()
	t.metrics.steps.Inc()
	t.well()
	t.log.Info("went over to a newer manifest", "generation", next.Number, "before", before.Number,
		"objects", next.Objects, "age", time.Since(next.Ended).Round(time.Second))
}

// failed notes a failure, and logs the first of a row.
func (t *Tree) failed(err error) {
	t.metrics.failures.Inc()
	t.mu.Lock()
	first := t.mu.status.Failing == 0
	t.mu.status.Failures++
	t.mu.status.Failing++
	t.mu.status.LastError = err.Error()
	t.mu.status.LastErrorTime = time.Now()
	t.mu.Unlock()
	if first {
		t.log.Warn("no newer manifest can be had; the mount goes on with the one it has",
			"generation", t.now.Load().Number, "err", err)
	}
}

// well notes that the newest generation is the one that answers.
func (t *Tree) well() {
	t.mu.Lock()
	failing := t.mu.status.Failing
	t.mu.status.Failing = 0
	t.mu.Unlock()
	if failing > 0 {
		t.log.Info("manifests are followed again", "generation", t.now.Load().Number, "failures", failing)
	}
}
