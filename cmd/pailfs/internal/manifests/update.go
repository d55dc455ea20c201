package manifests

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/pailfs/pailfs/cmd/internal/command"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/config"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/reach"
	"github.com/pailfs/pailfs/manifest"
	"github.com/pailfs/pailfs/manifest/build"
)

// updateCmd is `pailfs manifest update`.
type updateCmd struct {
	Source config.Location `arg:"" placeholder:"oss://BUCKET[/PREFIX]" help:"What the manifest is of."`
	Below  []string        `arg:"" optional:"" name:"path" help:"List only what begins with these, below the prefix, such as train/2026-11/. Without one everything is listed."`
	Over   string          `name:"over" placeholder:"FILE" help:"Update this file, not what is published."`
	Attrs  string          `name:"attrs" default:"auto" enum:"auto,yes,no" placeholder:"WHEN" help:"Ask new and changed objects for their metadata: auto (as the old manifest), yes, no."`
	List   bool            `name:"list" help:"Print every key that changed."`
	makingFlags
	reach.StoreFlags
}

// Help gives examples.
func (updateCmd) Help() string {
	return `What is not listed again is taken from the old manifest, and so is the metadata of objects that have not changed. If nothing has changed, nothing is published.

Exit codes: 0 updated, or nothing to update; 1 failed; 2 wrong arguments or configuration.

Examples:

	pailfs manifest update oss://bucket/imagenet
	pailfs manifest update oss://bucket/imagenet train/new/ val/
	pailfs manifest update oss://bucket/imagenet --over old.manifest --no-publish --output new.manifest`
}

// Run updates.
func (c *updateCmd) Run(p command.Program, parsed *kong.Context) error {
	if err := c.check(); err != nil {
		return err
	}
	ctx, cancel := command.Interruptible()
	defer cancel()
	r, err := openRun(ctx, p, parsed, &c.StoreFlags, c.Source)
	if err != nil {
		return orInterrupted(ctx, err, "")
	}
	return errors.Join(orInterrupted(ctx, c.update(ctx, r), ""), r.close())
}

func (c *updateCmd) update(ctx context.Context, r *run) error {
	old, err := c.old(ctx, r)
	if err != nil {
		return err
	}
	if root := old.Info().Root; root != c.Source.Prefix {
		return fmt.Errorf("the old manifest is of %q, not of %q: update what it is of", root, c.Source.Prefix)
	}
	listing := &build.Listing{Old: old}
	for _, path := range c.Below {
		if strings.HasPrefix(path, "/") || strings.HasPrefix(path, "oss://") {
			return command.Usage(fmt.Errorf("%q: write what is below %s, without a slash in front", path, c.Source))
		}
		listing.Below = append(listing.Below, c.Source.Prefix+path)
	}
	m := making{
		run: r, flags: &c.makingFlags, source: listing, attrs: c.Attrs == "yes" || c.Attrs == "auto" && old.Info().Properties["attrs"] == "yes",
		name: fmt.Sprintf("%s update %q %s", c.Source, c.Below, c.Over),
	}
	m.compare = func(path string) (bool, error) {
		newer, err := manifest.OpenSnapshot(path, manifest.SnapshotConfig{})
		if err != nil {
			return false, err
		}
		tell := func(d build.Difference) error {
			if c.List && !c.JSON {
				fmt.Fprintln(r.p.Stdout, showDifference(&d))
			}
			return nil
		}
		counts, err := build.Diff(ctx, old, newer, "", tell)
		m.changes = &counts
		return counts.Any(), errors.Join(err, newer.Close())
	}
	return m.do(ctx)
}

// old opens the manifest that is updated.
func (c *updateCmd) old(ctx context.Context, r *run) (*manifest.Snapshot, error) {
	if c.Over != "" {
		return r.open(c.Over)
	}
	return r.fetch(ctx, 0)
}
