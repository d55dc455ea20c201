package mounting

import (
	"context"
	"fmt"

	"github.com/pailfs/pailfs/manifest/attributes"
	"github.com/pailfs/pailfs/oss"
)

// openAttributes lays what the metadata of objects says over the names, where it is
// asked for. A frozen manifest has nobody to ask: it shows what it holds.
func (d *Daemon) openAttributes(context.Context) error {
	d.names.shown = d.names.tree
	base, live := d.names.tree.(attributes.Base)
	d.names.attrs = d.Settings.KeepsAttrs()
	if d.Settings.Attrs == "auto" && d.names.followed != nil && d.names.followed.Info().Properties["attrs"] != "yes" {
		// Its names cost no request, unless somebody wants them to.
		d.names.attrs = false
	}
	if !d.names.attrs || !live {
		return nil
	}
	tree, err := attributes.New(attributes.Config{
		Prefix:  d.Source.Prefix,
		Markers: d.names.followed == nil,
		TTL:     lifetime(d.Settings.MetadataTTL),
	}, base, d.store.client.As(oss.Demand), d.store.client.As(oss.Prefetch), d.cache, d.registry)
	if err != nil {
		return fmt.Errorf("open attributes: %w", err)
	}
	d.names.shown = tree
	d.opens("attributes", tree.Close)
	return nil
}
