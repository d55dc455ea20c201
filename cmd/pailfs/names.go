package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/pailfs/pailfs/cmd/internal/command"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/config"
	"github.com/pailfs/pailfs/cmd/terminal"
	pailfs "github.com/pailfs/pailfs/fs"
	"github.com/pailfs/pailfs/manifest"
	"github.com/pailfs/pailfs/manifest/follow"
	"github.com/pailfs/pailfs/manifest/publish"
	"github.com/pailfs/pailfs/oss"
)

// names is where the daemon has its names from.
type names struct {
	tree manifest.Tree
	// mode is off, follow or frozen, and reason says why.
	mode, reason string
	// file is the manifest's path where one was named.
	file string
	// followed is the tree in mode follow, snapshot that in mode frozen; else nil.
	followed *follow.Tree
	snapshot *manifest.Snapshot
	// generation is the one that was published, in mode frozen.
	generation publish.Generation
}

// frozen reports whether names never change while mounted.
func (n *names) frozen() bool { return n.mode == config.ManifestFrozen }

// changes is what tells the file system of generations, or nil.
func (n *names) changes() pailfs.Changes {
	if n.followed == nil {
		return nil
	}
	return n.followed
}

// meanSize is how many bytes the files have on average: all of a manifest, else the
// first ones of the bucket; 0 where nothing is known.
func (d *daemon) meanSize() int64 {
	files, bytes := int64(0), int64(0)
	if d.names.snapshot != nil {
		files, bytes = d.names.snapshot.Totals()
	} else {
		for _, o := range d.first {
			if strings.HasSuffix(o.Key, "/") || strings.HasPrefix(strings.TrimPrefix(o.Key, d.source.Prefix), ".pailfs/") {
				continue // no file
			}
			files, bytes = files+1, bytes+o.Size
		}
	}
	return bytes / max(1, files)
}

// manifestBucket downloads beside what readers wait for, and asks for names before
// it.
type manifestBucket struct {
	oss.RangeReader
	oss.Stater
}

// openTree opens the view of names that --manifest asks for.
func (d *daemon) openTree(ctx context.Context) error {
	err := d.openManifest(ctx)
	switch {
	case err == nil:
		return nil
	case !spoiled(err):
		return err
	case d.settings.ManifestFallback:
		d.log.Warn("the manifest cannot be used; names are listed instead", "error", err)
		return d.openLive("the manifest cannot be used: " + command.OneLine(err))
	default:
		return fmt.Errorf("%w; --manifest off lists names instead, and --manifest-fallback does so whenever a manifest is damaged", err)
	}
}

// spoiled reports whether err says that a manifest is there and cannot be used.
func spoiled(err error) bool {
	for _, kind := range []error{manifest.ErrDamaged, manifest.ErrVersion, manifest.ErrForeign, publish.ErrPointer, oss.ErrCorrupted} {
		if errors.Is(err, kind) {
			return true
		}
	}
	return false
}

// openManifest opens what --manifest names, without a fallback.
func (d *daemon) openManifest(ctx context.Context) error {
	c := &d.settings.Config
	asked := c.Manifest
	switch asked {
	case config.ManifestOff:
		return d.openLive("by configuration")
	case config.ManifestAuto, config.ManifestFollow, config.ManifestFrozen:
	default:
		return d.openFile(asked)
	}
	patience, cancel := context.WithTimeout(ctx, time.Duration(c.StartTimeout))
	defer cancel()
	newest, err := publish.Latest(patience, d.client.As(oss.Demand), d.source.Prefix)
	if asked == config.ManifestAuto {
		switch {
		case errors.Is(err, publish.ErrNone):
			return d.openLive("no manifest is published")
		case errors.Is(err, oss.ErrAccessDenied):
			return d.openLive("these credentials may not look for a manifest")
		}
	}
	switch {
	case errors.Is(err, publish.ErrNone):
		return d.settings.Refuse("manifest", fmt.Errorf("%s: none is published for %s: publish one with pailfs manifest build %s, or use --manifest off", asked, d.source, d.source))
	case err != nil:
		return fmt.Errorf("find the manifest of %s: %w", d.source, err)
	case asked == config.ManifestFrozen, asked == config.ManifestAuto && c.Immutable:
		return d.openFrozen(ctx, newest)
	}
	return d.openFollowed(ctx)
}

// followConfig says how manifests of the bucket are kept and asked for.
func (d *daemon) followConfig() follow.Config {
	c := &d.settings.Config
	cfg := follow.Config{
		Prefix:      d.source.Prefix,
		Bucket:      d.source.Bucket,
		Poll:        time.Duration(c.ManifestPoll),
		TTL:         lifetime(c.MetadataTTL),
		NegativeTTL: lifetime(c.NegativeTTL),
	}
	if c.CacheDir != "" {
		cfg.Dir = c.CacheDir + "/manifests"
	}
	return cfg
}

// manifestBucket returns the bucket as manifests are read from it.
func (d *daemon) manifestBucket() manifestBucket {
	return manifestBucket{d.client.As(oss.Prefetch), d.client.As(oss.Demand)}
}

// openLive lists names as they are asked for.
func (d *daemon) openLive(reason string) error {
	c := &d.settings.Config
	tree, err := manifest.NewLive(manifest.LiveConfig{
		Prefix:      d.source.Prefix,
		TTL:         lifetime(c.MetadataTTL),
		NegativeTTL: lifetime(c.NegativeTTL),
		Ahead:       d.client.As(oss.Prefetch),
	}, d.client.As(oss.Demand), d.registry, d.log.Logger)
	if err != nil {
		return fmt.Errorf("open names of %s: %w", d.source, err)
	}
	d.names = names{tree: tree, mode: config.ManifestOff, reason: reason}
	d.opens("names", tree.Close)
	return nil
}

// openFile shows the manifest file at path.
func (d *daemon) openFile(path string) error {
	snapshot, err := manifest.OpenSnapshot(path, manifest.SnapshotConfig{Prefix: d.source.Prefix, Bucket: d.source.Bucket, Links: d.client.As(oss.Demand)})
	switch {
	case errors.Is(err, os.ErrNotExist):
		return d.settings.Refuse("manifest", fmt.Errorf("%q does not exist: name a manifest file, or one of auto, follow, frozen and off", path))
	case err != nil:
		return d.settings.Refuse("manifest", err)
	}
	d.warnOfPath("manifest", path)
	d.names = names{tree: snapshot, mode: config.ManifestFrozen, reason: "by configuration", file: path, snapshot: snapshot}
	d.opens("names", snapshot.Close)
	return nil
}

// openFrozen shows one published generation.
func (d *daemon) openFrozen(ctx context.Context, g publish.Generation) error {
	d.log.Info("opening the manifest", "generation", g.Number, "objects", g.Objects, "bytes", g.Object.Size)
	snapshot, err := follow.Fetch(ctx, d.followConfig(), d.manifestBucket(), g)
	if err != nil {
		return fmt.Errorf("open the manifest of %s: %w", d.source, err)
	}
	reason := "by configuration"
	if d.settings.Manifest == config.ManifestAuto {
		reason = "one is published, and the mount is immutable"
	}
	d.names = names{tree: snapshot, mode: config.ManifestFrozen, reason: reason, snapshot: snapshot, generation: g}
	d.opens("names", snapshot.Close)
	return nil
}

// openFollowed shows the newest published generation, whichever that is.
func (d *daemon) openFollowed(ctx context.Context) error {
	tree, err := follow.Open(ctx, d.followConfig(), d.manifestBucket(), d.registry, d.log.Logger)
	if err != nil {
		return fmt.Errorf("open the manifest of %s: %w", d.source, err)
	}
	reason := "by configuration"
	if d.settings.Manifest == config.ManifestAuto {
		reason = "one is published"
	}
	d.names = names{tree: tree, mode: config.ManifestFollow, reason: reason, followed: tree}
	running, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- tree.Run(running) }()
	d.opens("names", func() error {
		stop()
		return errors.Join(<-ended, tree.Close())
	})
	return nil
}

// lifetime translates a setting: zero asks again each time, but is the default in
// the configuration of a part.
func lifetime(d config.Duration) time.Duration { return max(time.Duration(d), time.Nanosecond) }

// manifestReport is what status says of names.
type manifestReport struct {
	// Asked is the setting, Mode what came of it (off, follow or frozen) and Reason
	// why.
	Asked  string `json:"asked"`
	Mode   string `json:"mode"`
	Reason string `json:"reason"`
	// File is the manifest's path where one was named.
	File string `json:"file,omitempty"`
	// Generation is the number of the manifest, 0 where it has none.
	Generation uint64 `json:"generation,omitempty"`
	// Objects and Bytes are what it names.
	Objects int64 `json:"objects,omitempty"`
	Bytes   int64 `json:"bytes,omitempty"`
	// Built is when the bucket was looked at last for it; Age is how long ago.
	Built time.Time `json:"built,omitzero"`
	Age   float64   `json:"age_seconds,omitempty"`
	// Damaged is how often a part of it was found damaged since it was opened, and
	// Damage the first of these.
	Damaged int64  `json:"damaged,omitempty"`
	Damage  string `json:"damage,omitempty"`
	// Follow is how newer generations are taken, in mode follow.
	Follow *follow.Status `json:"follow,omitempty"`
}

// report returns what status says of n at the time now.
func (n *names) report(asked string, now time.Time) manifestReport {
	r := manifestReport{Asked: asked, Mode: n.mode, Reason: n.reason, File: n.file}
	var stats manifest.SnapshotStats
	switch {
	case n.snapshot != nil:
		info := n.snapshot.Info()
		r.Generation, r.Objects, r.Bytes, r.Built = info.Generation, info.Objects, info.Bytes, info.Ended
		if n.generation.Number != 0 {
			r.Generation = n.generation.Number
		}
		stats = n.snapshot.Stats()
	case n.followed != nil:
		s := n.followed.Status()
		r.Generation, r.Objects, r.Bytes, r.Built, r.Follow = s.Generation, s.Objects, s.Bytes, s.Built, &s
		stats = n.followed.Stats()
	}
	if !r.Built.IsZero() {
		r.Age = now.Sub(r.Built).Seconds()
	}
	r.Damaged = stats.Damaged
	if stats.FirstDamage != nil {
		r.Damage = stats.FirstDamage.Error()
	}
	return r
}

// show writes the report.
func (r *manifestReport) show(line func(name, format string, args ...any), metadataTTL float64) {
	text := r.Mode + " (" + r.Reason + ")"
	if r.Asked != r.Mode && r.File == "" {
		text = fmt.Sprintf("%s, asked for %s (%s)", r.Mode, r.Asked, r.Reason)
	}
	if r.Mode == config.ManifestOff {
		line("  names", "manifest %s; listings are believed for %s", text, seconds(metadataTTL))
		return
	}
	line("  names", "manifest %s", text)
	what := fmt.Sprintf("generation %d", r.Generation)
	if r.File != "" {
		what = r.File
	}
	line("  manifest", "%s: %d objects, %s; built %s ago", what, r.Objects, terminal.Size(r.Bytes), seconds(r.Age))
	if f := r.Follow; f != nil && f.Failing > 0 {
		line("  FOLLOWING", "failed %d times, last at %s: %s", f.Failing, f.LastErrorTime.Format(time.RFC3339), f.LastError)
	}
	if f := r.Follow; f != nil && f.Asked > 0 {
		line("  out of date", "%d names differ from the manifest and are asked of the bucket", f.Asked)
	}
	if r.Damaged > 0 {
		line("  DAMAGED", "%d times, first: %s", r.Damaged, r.Damage)
	}
}
