package prefetch

import (
	"context"
	"log/slog"
	"testing"

	"github.com/pailfs/pailfs/manifest"
	"github.com/pailfs/pailfs/prefetch/internal/prefetchtest"
)

// running starts a prefetcher and returns what stops it.
func running(t *testing.T, cfg Config, tree manifest.Tree, c Cache) (*Prefetcher, func()) {
	t.Helper()
	return runningWith(t, cfg, tree, c, nil)
}

// runningWith is running with a log.
func runningWith(t *testing.T, cfg Config, tree manifest.Tree, c Cache, log *slog.Logger) (*Prefetcher, func()) {
	t.Helper()
	if cfg.Rights == nil {
		cfg.Rights = prefetchtest.Rights{Names: tree}
	}
	p, err := New(cfg, tree, c, nil, log)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	return p, func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}
