package main

import (
	"context"
	"time"

	"github.com/pailfs/pailfs/deploy/pause"
)

// checkEvery is the time between two questions to the mount's daemon.
const checkEvery = 2 * time.Second

// news is what whoever waits for a command is told of its mount.
type news struct {
	// failed is closed when the mount has failed twice in a row.
	failed chan struct{}
	// notices says when the machine goes, and when that changes; no deadline: it stays.
	notices chan notice
}

func newNews() *news {
	return &news{failed: make(chan struct{}), notices: make(chan notice)}
}

// watch looks at a mount until ctx ends or it has failed.
func (m *mount) watch(ctx context.Context, n *news) {
	var last notice
	for bad := 0; pause.For(ctx, checkEvery); {
		s, err := m.check(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			if bad++; bad == 2 {
				m.p.Report(err)
				close(n.failed)
				return
			}
			continue
		}
		bad = 0
		if now := s.notice(); !now.Deadline.Equal(last.Deadline) {
			last = now
			select {
			case n.notices <- now:
			case <-ctx.Done():
				return
			}
		}
	}
}

// untilNotice returns a context that ends when the machine is about to go, with the
// reason as its cause. stop ends the watching.
func (m *mount) untilNotice(ctx context.Context) (until context.Context, stop func()) {
	until, cancel := context.WithCancelCause(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for pause.For(until, checkEvery) {
			if s, err := m.check(until); err == nil && s.Drain != nil {
				cancel(s.Drain.error())
			}
		}
	}()
	return until, func() {
		cancel(nil)
		<-done
	}
}
