package mounting

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pailfs/pailfs/cmd/internal/command"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/config"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/reach"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/wire"
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
	// close ends what the names come from.
	close func() error

	// shown is the tree as the mount shows it, and attrs says that modes, owners and times are
	// kept.
	shown manifest.Tree
	attrs bool
}

// openNames opens the view of names that --manifest asks for.
func (d *Daemon) openNames(ctx context.Context) error {
	opener := namesOpener{settings: d.Settings, source: d.Source, client: d.store.client, registry: d.registry, log: d.Log.Logger}
	opened, err := opener.open(ctx)
	if err != nil {
		return err
	}
	d.names = opened
	d.opens("names", opened.close)
	if opened.file != "" {
		d.warnings.add(reach.Exposed("manifest", opened.file))
	}
	return nil
}

// namesOpener opens the names of a source.
type namesOpener struct {
	settings *config.Loaded
	source   config.Location
	client   *oss.Client
	registry *prometheus.Registry
	log      *slog.Logger
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

// manifestBucket downloads beside what readers wait for, and asks for names before
// it.
type manifestBucket struct {
	oss.RangeReader
	oss.Stater
}

// meanSize is how many bytes the files have on average: all of a manifest, else the
// first ones of the bucket; 0 where nothing is known.
func (d *Daemon) meanSize() int64 {
	files, bytes := int64(0), int64(0)
	if d.names.snapshot != nil {
		files, bytes = d.names.snapshot.Totals()
	} else {
		for _, o := range d.store.first {
			if strings.HasSuffix(o.Key, "/") || strings.HasPrefix(strings.TrimPrefix(o.Key, d.Source.Prefix), ".pailfs/") {
				continue // no file
			}
			files, bytes = files+1, bytes+o.Size
		}
	}
	return bytes / max(1, files)
}

// open opens the view of names that --manifest asks for.
func (o *namesOpener) open(ctx context.Context) (names, error) {
	opened, err := o.openManifest(ctx)
	switch {
	case err == nil:
		return opened, nil
	case !spoiled(err):
		return names{}, err
	case o.settings.ManifestFallback:
		o.log.Warn("the manifest cannot be used; names are listed instead", "error", err)
		return o.openLive("the manifest cannot be used: " + command.OneLine(err))
	default:
		return names{}, fmt.Errorf("%w; --manifest off lists names instead, and --manifest-fallback does so whenever a manifest is damaged", err)
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
func (o *namesOpener) openManifest(ctx context.Context) (names, error) {
	c := &o.settings.Config
	asked := c.Manifest
	switch asked {
	case config.ManifestOff:
		return o.openLive("by configuration")
	case config.ManifestAuto, config.ManifestFollow, config.ManifestFrozen:
	default:
		return o.openFile(asked)
	}
	patience, cancel := context.WithTimeout(ctx, time.Duration(c.StartTimeout))
	defer cancel()
	newest, err := publish.Latest(patience, o.client.As(oss.Demand), o.source.Prefix)
	if asked == config.ManifestAuto {
		switch {
		case errors.Is(err, publish.ErrNone):
			return o.openLive("no manifest is published")
		case errors.Is(err, oss.ErrAccessDenied):
			return o.openLive("these credentials may not look for a manifest")
		}
	}
	switch {
	case errors.Is(err, publish.ErrNone):
		return names{}, o.settings.Refuse("manifest", fmt.Errorf("%s: none is published for %s: publish one with pailfs manifest build %s, or use --manifest off", asked, o.source, o.source))
	case err != nil:
		return names{}, fmt.Errorf("find the manifest of %s: %w", o.source, err)
	case asked == config.ManifestFrozen, asked == config.ManifestAuto && c.Immutable:
		return o.openFrozen(ctx, newest)
	}
	return o.openFollowed(ctx)
}

// followConfig says how manifests of the bucket are kept and asked for.
func (o *namesOpener) followConfig() follow.Config {
	c := &o.settings.Config
	cfg := follow.Config{
		Prefix:      o.source.Prefix,
		Bucket:      o.source.Bucket,
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
func (o *namesOpener) manifestBucket() manifestBucket {
	return manifestBucket{o.client.As(oss.Prefetch), o.client.As(oss.Demand)}
}

// openLive lists names as they are asked for.
func (o *namesOpener) openLive(reason string) (names, error) {
	c := &o.settings.Config
	tree, err := manifest.NewLive(manifest.LiveConfig{
		Prefix:      o.source.Prefix,
		TTL:         lifetime(c.MetadataTTL),
		NegativeTTL: lifetime(c.NegativeTTL),
		Ahead:       o.client.As(oss.Prefetch),
	}, o.client.As(oss.Demand), o.registry, o.log)
	if err != nil {
		return names{}, fmt.Errorf("open names of %s: %w", o.source, err)
	}
	return names{tree: tree, mode: config.ManifestOff, reason: reason, close: tree.Close}, nil
}

// openFile shows the manifest file at path.
func (o *namesOpener) openFile(path string) (names, error) {
	snapshot, err := manifest.OpenSnapshot(path, manifest.SnapshotConfig{Prefix: o.source.Prefix, Bucket: o.source.Bucket, Links: o.client.As(oss.Demand)})
	switch {
	case errors.Is(err, os.ErrNotExist):
		return names{}, o.settings.Refuse("manifest", fmt.Errorf("%q does not exist: name a manifest file, or one of auto, follow, frozen and off", path))
	case err != nil:
		return names{}, o.settings.Refuse("manifest", err)
	}
	return names{tree: snapshot, mode: config.ManifestFrozen, reason: "by configuration", file: path, snapshot: snapshot, close: snapshot.Close}, nil
}

// openFrozen shows one published generation.
func (o *namesOpener) openFrozen(ctx context.Context, g publish.Generation) (names, error) {
	o.log.Info("opening the manifest", "generation", g.Number, "objects", g.Objects, "bytes", g.Object.Size)
	snapshot, err := follow.Fetch(ctx, o.followConfig(), o.manifestBucket(), g)
	if err != nil {
		return names{}, fmt.Errorf("open the manifest of %s: %w", o.source, err)
	}
	reason := "by configuration"
	if o.settings.Manifest == config.ManifestAuto {
		reason = "one is published, and the mount is immutable"
	}
	return names{tree: snapshot, mode: config.ManifestFrozen, reason: reason, snapshot: snapshot, generation: g, close: snapshot.Close}, nil
}

// openFollowed shows the newest published generation, whichever that is.
func (o *namesOpener) openFollowed(ctx context.Context) (names, error) {
	tree, err := follow.Open(ctx, o.followConfig(), o.manifestBucket(), o.registry, o.log)
	if err != nil {
		return names{}, fmt.Errorf("open the manifest of %s: %w", o.source, err)
	}
	reason := "by configuration"
	if o.settings.Manifest == config.ManifestAuto {
		reason = "one is published"
	}
	running, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- tree.Run(running) }()
	return names{tree: tree, mode: config.ManifestFollow, reason: reason, followed: tree, close: func() error {
		stop()
		return errors.Join(<-ended, tree.Close())
	}}, nil
}

// lifetime translates a setting: zero asks again each time, but is the default in
// the configuration of a part.
func lifetime(d config.Duration) time.Duration { return max(time.Duration(d), time.Nanosecond) }

// report returns what status says of n at the time now.
func (n *names) report(asked string, now time.Time) wire.Names {
	r := wire.Names{Asked: asked, Mode: n.mode, Reason: n.reason, File: n.file}
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
