package mounting

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/pailfs/pailfs/cmd/internal/command"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/wire"
	"github.com/pailfs/pailfs/fs/writeback"
	"github.com/pailfs/pailfs/manifest/attributes"
	"github.com/pailfs/pailfs/oss"
)

// writing is the part of a daemon that keeps what is written.
type writing struct {
	space *writeback.Space
	dir   string // cache-dir
	stop  context.CancelFunc
	loops sync.WaitGroup
	err   error // of Run
}

// openSpace opens the staging directory, where the mount can be written. What the
// last mount left there is published from now on.
func (d *Daemon) openSpace(context.Context) error {
	c := &d.Settings.Config
	if !c.Writable() || d.names.frozen() {
		return nil
	}
	dir := filepath.Join(c.CacheDir, wire.StagingName)
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return d.Settings.Refuse("cache-dir", fmt.Errorf("make staging directory: %w", err))
	}
	// What the mount before left word of is no answer of this one's.
	if err := os.Remove(filepath.Join(c.CacheDir, wire.EndName)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return d.Settings.Refuse("cache-dir", err)
	}
	host, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("ask for this machine's name: %w", err)
	}
	cfg := writeback.Config{
		Dir:         dir,
		Endpoint:    c.Endpoint,
		Bucket:      d.Source.Bucket,
		Prefix:      d.Source.Prefix,
		Host:        host,
		User:        fmt.Sprintf("the mount at %s (process %d)", d.At, os.Getpid()),
		StagingSize: int64(c.StagingSize),
		Bandwidth:   int64(c.UploadBandwidth),
		Unpaced:     c.UploadPace == "none",
		Attrs:       d.names.attrs,
		Busy:        func() bool { return d.store.limiter.Stats().InFlight[oss.Demand] > 0 },
		Changed:     d.nameChanged,
	}
	cfg.Through = writeThrough(c)
	if tree, asks := d.names.shown.(*attributes.Tree); asks {
		cfg.Noted = tree.Noted
	}
	space, err := writeback.Open(cfg, d.names.shown, d.store.client.As(oss.Upload), d.cache, d.registry, d.Log.Logger)
	switch {
	case errors.Is(err, writeback.ErrForeign):
		return d.Settings.Refuse("cache-dir", fmt.Errorf("%w: mount what it belongs to, and unmount, to publish what waits there; or use another directory", err))
	case err != nil:
		return d.Settings.Refuse("cache-dir", err)
	}
	ctx, stop := context.WithCancel(context.Background())
	d.writing = &writing{space: space, dir: c.CacheDir, stop: stop}
	d.writing.loops.Go(func() { d.writing.err = space.Run(ctx) })
	d.draining.space = space
	d.opens("write-back", d.writing.close)
	if left := space.Status().Pending; left > 0 {
		d.Log.Info("publishing what an earlier mount had left", "changes", left)
	}
	return nil
}

// nameChanged tells the kernel that a name changed without it.
func (d *Daemon) nameChanged(dir, name string) {
	select {
	case <-d.opened:
		d.mount.Changed(dir, name)
	default: // nothing is mounted yet
	}
}

// close stops publishing. What was not published stays for the next mount.
func (w *writing) close() error {
	w.stop()
	w.loops.Wait()
	return errors.Join(w.err, w.space.Close())
}

// drain publishes what is left when the mount has ended, as long as drain-timeout
// allows, and leaves word of what could not be.
func (d *Daemon) drain() error {
	w := d.writing
	if w == nil {
		return nil
	}
	var failed error
	if !d.umounts.leave {
		ctx, cancel := context.WithTimeout(context.Background(), time.Duration(d.Settings.DrainTimeout))
		defer cancel()
		if n := w.space.Status().Pending; n > 0 {
			d.Log.Info("uploading what is left", "changes", n, "at_most", d.Settings.DrainTimeout.String())
		}
		failed = w.space.Drain(ctx)
	}
	end := wire.Ending{PID: os.Getpid(), Left: w.space.Status().Pending, Paths: w.space.Pending("", wire.ListedAtEnd)}
	if err := end.Write(w.dir); err != nil {
		d.Log.Warn("cannot leave word of how the mount ended", "error", err)
	}
	if end.Left == 0 && failed == nil {
		return nil
	}
	err := end.Err()
	if err == nil {
		err = failed
	}
	d.Log.Warn("ended with changes that are not in the object store; the next mount with this cache-dir publishes them", "changes", end.Left, "error", command.OneLine(err))
	if d.umounts.leave {
		return nil
	}
	return err
}
