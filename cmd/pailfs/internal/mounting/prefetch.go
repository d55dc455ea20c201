package mounting

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/pailfs/pailfs/cmd/pailfs/internal/access"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/config"
	"github.com/pailfs/pailfs/oss"
	"github.com/pailfs/pailfs/prefetch"
	"github.com/pailfs/pailfs/prefetch/keep"
	"github.com/pailfs/pailfs/prefetch/session"
	"github.com/pailfs/pailfs/prefetch/sessionstore"
	"github.com/pailfs/pailfs/prefetch/warm"
)

// accessQueue is how many opens may wait to be looked at by those who guess what
// comes next.
const accessQueue = 4096

// openPrefetch begins to bring objects in before they are read.
func (d *Daemon) openPrefetch(context.Context) error {
	c := &d.Settings.Config
	var store, shared keep.Store
	if d.loader.sessions != nil {
		store = d.loader.sessions
	}
	if d.writing != nil && store != nil {
		shared = sessionstore.NewShared(d.store.client.As(oss.Upload), d.Source.Prefix, d.names.attrs)
	}
	host, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("ask for this machine's name: %w", err)
	}
	// Without attributes and without a manifest, which may hold some, one umask is all.
	d.loader.rights = access.New(d.shownNames, !d.names.attrs && d.names.mode == config.ManifestOff)
	p, err := prefetch.New(prefetch.Config{
		Rights: d.loader.rights,
		Prefix: d.Source.Prefix,
		Width: func() int {
			if d.draining.on.Load() {
				return 0
			}
			return d.store.limiter.Stats().Limit
		},
		Ledger: d.loader.ledger,
		Store:  store,
		Shared: shared,
		Host:   host,
		Guess:  c.Prefetch == "auto",
	}, d.names.tree, d.cache, d.registry, d.Log.Logger)
	if err != nil {
		return err
	}
	d.loader.prefetch = p
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
func (d *Daemon) shownNames(ctx context.Context) (access.Names, error) {
	select {
	case <-d.opened:
		return d.mount.Names(), nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// warmAtMount brings the paths that the policy names, in the background, and logs
// how that went.
func (d *Daemon) warmAtMount(paths []string) {
	if len(paths) == 0 {
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		switch progress, err := d.loader.prefetch.Warm.Warm(ctx, session.Root(), paths, d.logUnwarmed); {
		case errors.Is(err, context.Canceled):
		case err != nil:
			d.Log.Warn("cannot warm what policy-warm names", "error", err)
		default:
			d.Log.Info("warmed what policy-warm names", "files", progress.DoneFiles, "bytes", progress.DoneBytes, "failed", progress.Failed)
		}
	}()
	d.opens("warming", func() error {
		stop()
		<-ended
		return nil
	})
}

// logUnwarmed logs what could not be warmed.
func (d *Daemon) logUnwarmed(r warm.Result) {
	if r.Error != "" {
		d.Log.Warn("cannot warm a path that policy-warm names", "path", r.Path, "error", r.Error)
	}
}
