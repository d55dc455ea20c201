package mounting

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pailfs/pailfs/cmd/pailfs/internal/machine"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/reach"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/web"
	"github.com/pailfs/pailfs/oss"
	"github.com/pailfs/pailfs/oss/limiter"
)

// openWeb takes the address for metrics: where it is required, a taken one must stop
// the mount before anything else happened.
func (d *Daemon) openWeb(context.Context) error {
	w, err := web.Listen(&d.Settings.Config, d.Log.Logger)
	if err != nil {
		return d.Settings.Refuse("http", err)
	}
	d.web = w
	d.opens("http server", w.Close)
	return nil
}

// openStore reads the credentials, connects to the bucket and proves with one
// request that it can be read.
func (d *Daemon) openStore(ctx context.Context) error {
	c := &d.Settings.Config
	source, warning, err := reach.OpenCredentials(d.Settings, d.Log.Logger)
	if err != nil {
		return err
	}
	d.store.credentials = source
	d.opens("credentials", source.Close)
	d.warnings.add(warning)
	if c.Credentials != "anonymous" {
		if err := machine.HideMemory(); err != nil {
			d.Log.Warn("the keys in memory can be read by this user's other programs", "error", err)
		}
	}
	if d.store.limiter, err = limiter.New(limiter.Config{}, d.registry); err != nil {
		return fmt.Errorf("limit requests: %w", err)
	}
	d.store.client, err = oss.Open(oss.Config{
		Endpoint:    c.Endpoint,
		Bucket:      d.Source.Bucket,
		Region:      c.Region,
		Credentials: source,
	}, d.store.limiter, d.registry, d.Log.Logger)
	if err != nil {
		return fmt.Errorf("open %s: %w", d.Source, err)
	}
	d.opens("object store", d.store.client.Close)
	patience := time.Duration(c.StartTimeout)
	checkCtx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	first, err := d.store.client.Preflight(checkCtx, d.Source.Prefix)
	if err != nil {
		if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
			return fmt.Errorf("%s at %s did not answer within %s: check the endpoint and the network, or raise --start-timeout",
				d.Source, c.Endpoint, c.StartTimeout)
		}
		return err // it names the bucket, the endpoint and the remedy
	}
	d.store.first = first
	return nil
}
