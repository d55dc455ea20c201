package mounting

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/pailfs/pailfs/cache"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/reach"
	"github.com/pailfs/pailfs/oss"
	"github.com/pailfs/pailfs/prefetch/sessionstore"
)

// openCache makes the cache directory if it is not there, and opens the tiers.
func (d *Daemon) openCache(context.Context) error {
	c := &d.Settings.Config
	if c.CacheDir != "" {
		if err := d.makeCacheDir(filepath.Clean(c.CacheDir)); err != nil {
			return d.Settings.Refuse("cache-dir", err)
		}
	}
	if c.CacheDir != "" {
		d.loader.sessions = sessionstore.NewNode(filepath.Join(filepath.Clean(c.CacheDir), sessionstore.Dir), int64(c.CacheSize))
	}
	readers := throttle(int64(c.DownloadBandwidth), d.store.client.As(oss.Demand), d.store.client.As(oss.Prefetch))
	opened, err := cache.Open(cache.Config{
		Bucket: d.Source.Bucket + "@" + reach.CanonicalEndpoint(c.Endpoint),
		Dir:    c.CacheDir,
		Size:   int64(c.CacheSize),
		Beside: d.loader.sessions.Bytes,
		Memory: int64(c.Memory),
		Track:  accessQueue,
		Never:  newPolicy(c, d.Source.Prefix).neverKeep(),
	}, readers[0], readers[1], d.registry, d.Log.Logger)
	if err != nil {
		if c.CacheDir != "" {
			return d.Settings.Refuse("cache-dir", cacheRemedy(err))
		}
		return fmt.Errorf("open cache: %w", err)
	}
	d.cache = opened
	d.opens("cache", opened.Close)
	if d.loader.sessions != nil {
		d.loader.sessions.Find(d.Log.Logger)
	}
	// Only now: the cache has just made its directory its owner's alone.
	for _, p := range reach.ExposablePaths(c) {
		d.warnings.add(reach.Exposed(p.Setting, p.Path))
	}
	return nil
}

// cacheRemedy adds what can be done about a cache directory that was refused.
func cacheRemedy(err error) error {
	switch {
	case errors.Is(err, cache.ErrDirInUse):
		return fmt.Errorf("%w: every mount needs a cache directory of its own", err)
	case errors.Is(err, cache.ErrDirForeign):
		return fmt.Errorf("%w: name an empty directory, or one that does not exist yet", err)
	case errors.Is(err, cache.ErrDirOwner):
		return fmt.Errorf("%w: name a directory of your own, or change its owner", err)
	case errors.Is(err, cache.ErrNoSpace):
		return fmt.Errorf("%w: make room, or name a directory on another disk", err)
	default:
		return err
	}
}

// makeCacheDir makes dir unless it exists. If the start fails afterwards, what
// was made is removed again.
func (d *Daemon) makeCacheDir(dir string) error {
	err := os.Mkdir(dir, 0o700)
	switch {
	case errors.Is(err, fs.ErrExist):
		return nil
	case err != nil:
		return fmt.Errorf("make cache directory: %w", err)
	}
	d.opens("cache directory", func() error {
		select {
		case <-d.opened:
			return nil // it has been used
		default:
			return os.RemoveAll(dir)
		}
	})
	return nil
}
