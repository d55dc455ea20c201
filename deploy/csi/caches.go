package csi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/pailfs/pailfs/cache/durable"
)

// The caches of volumes outlive what else a node knows of them: data that was not uploaded lies there when the node is
// started again. So each has a note beside it, on the same disk:
//
//	DIGEST        the cache
//	DIGEST.json   whose it is ([cacheNote]); its time is when the volume was used last, within an hour
//	DIGEST.gone   a cache that is being removed

const (
	noteSuffix = ".json"
	goneSuffix = ".gone"
	// unusedFor is how long a cache stays that no volume uses.
	unusedFor = 7 * 24 * time.Hour
	// sweepEvery is how often caches are looked at.
	sweepEvery = time.Hour
)

// cacheNote says whose a cache is. It has no secret.
type cacheNote struct {
	Volume string `json:"volume"`
	// Daemon is how the daemon was started that used it last.
	Daemon daemon `json:"daemon"`
	// used is when that was.
	used time.Time
}

func notePath(cache string) string { return cache + noteSuffix }

// noteCache writes, for the time after a loss of power too, whose the cache of a daemon is that is to be started.
func noteCache(id string, d daemon) error {
	if d.CacheDir == "" {
		return nil
	}
	text, err := json.Marshal(cacheNote{Volume: id, Daemon: d})
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(d.CacheDir), 0o700); err != nil {
		return fmt.Errorf("make the directory of the caches: %w", err)
	}
	next := notePath(d.CacheDir) + ".next"
	if err := durable.ReplaceFile(notePath(d.CacheDir), next, text); err != nil {
		return fmt.Errorf("note whose a cache is: %w", err)
	}
	return nil
}

// used notes that a cache is, or was until now, in use.
func used(cache string) error {
	now := time.Now()
	if err := os.Chtimes(notePath(cache), now, now); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// notes returns what is known of the caches of this node: of those of the volume id, or of all if it is "".
func (n *node) notes(id string) (all []cacheNote, err error) {
	names, err := filepath.Glob(filepath.Join(n.cfg.CacheDir, "*"+noteSuffix))
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue // it has just gone
		}
		if err != nil {
			return nil, err
		}
		info, err := os.Stat(name)
		if err != nil {
			return nil, err
		}
		c := cacheNote{used: info.ModTime()}
		if err := json.Unmarshal(text, &c); err != nil {
			return nil, fmt.Errorf("read %s: %w", name, err)
		}
		if c.Daemon.CacheDir = strings.TrimSuffix(name, noteSuffix); id == "" || c.Volume == id {
			all = append(all, c)
		}
	}
	return all, nil
}

// elsewhere returns an error while data of a volume that is to be started as d lies in a cache that d does not use,
// and is not in the object store: that of the daemon before, if one is known, or one from before the node was started.
func (n *node) elsewhere(ctx context.Context, id string, d daemon, before *daemon) error {
	notes, err := n.notes(id)
	if err != nil {
		return err
	}
	if before != nil {
		notes = append(notes, cacheNote{Volume: id, Daemon: *before})
	}
	for _, c := range notes {
		if c.Daemon.CacheDir == d.CacheDir {
			continue
		}
		left, err := n.left(ctx, c.Daemon)
		if err != nil {
			return err
		}
		if left {
			return refuse(codes.FailedPrecondition, "the volume was staged with %s before, and what was written to it is not all in the object store: it stays in %s on node %s; unstage the volume first, or stage it as before",
				c.Daemon.Source, c.Daemon.CacheDir, n.cfg.ID)
		}
	}
	return nil
}

// recover brings to the object store what is left in the caches of a volume that this node does not know: it was started
// again while the volume was staged. v is the volume's directory, which has been made for that.
func (n *node) recover(ctx context.Context, v *volume, id, at string) error {
	notes, err := n.notes(id)
	if err != nil {
		return err
	}
	for _, c := range notes {
		d := c.Daemon
		left, err := n.left(ctx, d)
		switch {
		case err != nil:
			return err
		case left && slices.ContainsFunc(d.Flags, func(f string) bool { return strings.HasPrefix(f, "--credentials-file") }):
			return withForgotten(refuse(codes.FailedPrecondition, "node %s was started again, and what was written to the volume is not all in the object store: it stays in %s; the keys are gone, so stage the volume there once more, which uploads it, or take it by pailfs staged",
				n.cfg.ID, d.CacheDir), v)
		case left:
			d.At = at
			if err := v.note(d, nil); err != nil {
				return err
			}
			if err := n.drain(ctx, v, d); err != nil {
				return err
			}
		}
		if err := n.settle(ctx, id, d); err != nil {
			return err
		}
	}
	return nil
}

// settle follows the end of a volume on this node: the cache of one that ends with its pod goes, unless something remains
// there for people; another stays for a while.
func (n *node) settle(ctx context.Context, id string, d daemon) error {
	if !d.Inline {
		return used(d.CacheDir)
	}
	due, remains, err := n.inspect(ctx, d)
	if err != nil {
		return err
	}
	if due || remains {
		n.keeps(id, d)
		return used(d.CacheDir)
	}
	return removeCache(d.CacheDir)
}

// keeps says that a cache stays, and why.
func (n *node) keeps(id string, d daemon) {
	n.log.Warn("what was written to a volume is not all in the object store, and no pod of this node uses the volume: stage it here once more, or take it by pailfs staged",
		"volume", id, "source", d.Source, "cache_dir", d.CacheDir)
}

// removeCache removes a cache, and its note before what a kill may leave of it.
func removeCache(cache string) error {
	gone := cache + goneSuffix
	if err := os.Rename(cache, gone); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the cache of the volume: %w", err)
	}
	if err := os.Remove(notePath(cache)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the cache of the volume: %w", err)
	}
	if err := os.RemoveAll(gone); err != nil {
		return fmt.Errorf("remove the cache of the volume: %w", err)
	}
	return nil
}

// run sweeps until ctx ends.
func (n *node) run(ctx context.Context) {
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for {
		n.sweep(ctx, time.Now())
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// sweep removes the caches that no volume uses and none has used for a week, but for those with data that is not in the
// object store.
func (n *node) sweep(ctx context.Context, now time.Time) {
	notes, err := n.notes("")
	if err != nil {
		n.log.Warn("caches of volumes cannot be looked at", "error", err)
	}
	for _, c := range notes {
		if ctx.Err() != nil {
			return
		}
		unused := now.Sub(c.used) >= unusedFor
		err := n.with(ctx, c.Volume, unused, func(ctx context.Context, v *volume) error { return n.sweepCache(ctx, v, c, unused) })
		if err != nil && !errors.Is(err, errPending) && !errors.Is(err, errNoVolume) { // the former is in use
			n.log.Warn("the cache of a volume cannot be looked at", "volume", c.Volume, "cache_dir", c.Daemon.CacheDir, "error", err)
		}
	}
	gone, err := filepath.Glob(filepath.Join(n.cfg.CacheDir, "*"+goneSuffix))
	if err != nil {
		return
	}
	for _, path := range gone { // a driver was killed
		if err := os.RemoveAll(path); err != nil {
			n.log.Warn("the cache of a volume cannot be removed", "error", err)
		}
	}
}

// sweepCache is sweep of one cache, of which unused says that its time is over unless it is in use now.
func (n *node) sweepCache(ctx context.Context, v *volume, c cacheNote, unused bool) error {
	d, err := v.daemon()
	switch {
	case err == nil && d.CacheDir == c.Daemon.CacheDir:
		return used(d.CacheDir)
	case errors.Is(err, errNoVolume):
		defer func() { _ = v.forget() }() // it was made to be held; an empty one is taken up by the next call
	case err != nil:
		return err
	}
	if !unused {
		return nil
	}
	due, remains, err := n.inspect(ctx, c.Daemon)
	if err != nil {
		return err
	}
	if due || remains {
		n.keeps(c.Volume, c.Daemon)
		return nil
	}
	n.log.Info("the cache of a volume is removed that was not used for a week", "volume", c.Volume, "cache_dir", c.Daemon.CacheDir)
	return removeCache(c.Daemon.CacheDir)
}
