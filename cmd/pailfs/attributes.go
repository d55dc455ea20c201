package main

import (
	"context"
	"fmt"

	"github.com/pailfs/pailfs/manifest/attributes"
	"github.com/pailfs/pailfs/oss"
)

// openAttributes lays what the metadata of objects says over the names, where it is
// asked for. A frozen manifest has nobody to ask: it shows what it holds.
func (d *daemon) openAttributes(context.Context) error {
	d.shown = d.names.tree
	base, live := d.names.tree.(attributes.Base)
	d.attrs = d.settings.KeepsAttrs()
	if d.settings.Attrs == "auto" && d.names.followed != nil && d.names.followed.Info().Properties["attrs"] != "yes" {
		// Its names cost no request, unless somebody wants them to.
		d.attrs = false
	}
	if !d.attrs || !live {
		return nil
	}
	tree, err := attributes.New(attributes.Config{
		Prefix:  d.source.Prefix,
		Markers: d.names.followed == nil,
		TTL:     lifetime(d.settings.MetadataTTL),
	}, base, d.client.As(oss.Demand), d.client.As(oss.Prefetch), d.cache, d.registry)
	if err != nil {
		return fmt.Errorf("open attributes: %w", err)
	}
	d.shown = tree
	d.opens("attributes", tree.Close)
	return nil
}
