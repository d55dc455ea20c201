package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/pailfs/pailfs/cmd/pailfs/internal/access"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/config"
	"github.com/pailfs/pailfs/oss"
	"github.com/pailfs/pailfs/prefetch"
	"github.com/pailfs/pailfs/prefetch/session"
)

// accessQueue is how many opens may wait to be looked at by those who guess what
// comes next.
const accessQueue = 4096

// openPrefetch begins to bring objects in before they are read.
func (d *daemon) openPrefetch(context.Context) error {
	c := &d.settings.Config
	var store, shared prefetch.Store
	if d.sessions != nil {
		store = d.sessions
	}
	if d.writing != nil && store != nil {
		shared = newMountStore(d.client.As(oss.Upload), d.source.Prefix, d.attrs)
	}
	host, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("ask for this machine's name: %w", err)
	}
	// Without attributes and without a manifest, which may hold some, one umask is all.
	d.rights = access.New(d.shownNames, !d.attrs && d.names.mode == config.ManifestOff)
	p, err := prefetch.New(prefetch.Config{
		Rights: d.rights,
		Prefix: d.source.Prefix,
		Width: func() int {
			if d.draining.on.Load() {
				return 0
			}
			return d.limiter.Stats().Limit
		},
		Ledger: d.ledger,
		Store:  store,
		Shared: shared,
		Host:   host,
		Guess:  c.Prefetch == "auto",
	}, d.names.tree, d.cache, d.registry, d.log.Logger)
	if err != nil {
		return err
	}
	d.prefetch = p
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	d.opens("prefetch", func() error {
		stop()
		return <-ended
	})
	return nil
}

// shownNames returns what the mount shows, when there is one.
func (d *daemon) shownNames(ctx context.Context) (access.Names, error) {
	select {
	case <-d.opened:
		return d.mount.Names(), nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// warmAtMount brings the paths that the policy names, in the background, and logs
// how that went.
func (d *daemon) warmAtMount(paths []string) {
	if len(paths) == 0 {
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		switch progress, err := d.prefetch.Warm(ctx, session.Root(), paths, d.logUnwarmed); {
		case errors.Is(err, context.Canceled):
		case err != nil:
			d.log.Warn("cannot warm what policy-warm names", "error", err)
		default:
			d.log.Info("warmed what policy-warm names", "files", progress.DoneFiles, "bytes", progress.DoneBytes, "failed", progress.Failed)
		}
	}()
	d.opens("warming", func() error {
		stop()
		<-ended
		return nil
	})
}

// logUnwarmed logs what could not be warmed.
func (d *daemon) logUnwarmed(r prefetch.WarmResult) {
	if r.Error != "" {
		d.log.Warn("cannot warm a path that policy-warm names", "path", r.Path, "error", r.Error)
	}
}
