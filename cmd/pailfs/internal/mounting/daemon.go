package mounting

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pailfs/pailfs/cache"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/access"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/audit"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/config"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/daemonlog"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/machine"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/mountpoint"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/page"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/web"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/wire"
	pailfs "github.com/pailfs/pailfs/fs"
	"github.com/pailfs/pailfs/oss"
	"github.com/pailfs/pailfs/oss/credentials"
	"github.com/pailfs/pailfs/oss/limiter"
	"github.com/pailfs/pailfs/prefetch"
	"github.com/pailfs/pailfs/prefetch/budget"
	"github.com/pailfs/pailfs/prefetch/control"
	"github.com/pailfs/pailfs/prefetch/sessionstore"
)

// Config is what a mount is of, and where it is.
type Config struct {
	// Settings are those in force, Source is what is mounted, and At the mount point, resolved.
	Settings *config.Loaded
	Source   config.Location
	At       string
	// Stale is the mount of a dead daemon at that place, which is replaced; nil if there is none.
	Stale *mountpoint.Mount
	Log   daemonlog.Log
	// Version is the program's.
	Version string
	// Notice is told what the user should know and is no error.
	Notice func(text string)
}

// Daemon is the parts of one mount, put together.
type Daemon struct {
	Config
	parts

	started  time.Time
	registry *prometheus.Registry
	warnings *warnings

	web      *web.Server
	page     *page.Page // nil where no address is set
	audit    *audit.Log // nil without one
	store    store
	cache    *cache.Cache
	names    names
	writing  *writing // nil where the mount cannot be written
	draining draining
	spot     *spotWatch // nil where nobody is asked
	loader   loader
	mux      *control.Mux
	mount    *pailfs.Mounted
	notify   *notifier
	umounts  umounts

	// opened is closed when every field above is set: control methods wait for it.
	opened chan struct{}
}

// store is the way to the bucket.
type store struct {
	credentials *credentials.Source
	limiter     *limiter.Limiter
	client      *oss.Client
	first       []oss.ListedObject // the first objects when it was checked
}

// loader is what brings objects in before they are read.
type loader struct {
	ledger   *budget.Ledger     // what users make the daemon remember
	sessions *sessionstore.Node // nil without a cache directory
	rights   *access.Rights
	prefetch *prefetch.Prefetcher
}

// Open opens the parts from the object store upward and mounts. What cannot work is found before
// anything is made: on an error nothing is left behind, neither a mount nor a lock nor a directory.
// [Daemon.Run] serves and closes the parts.
func Open(ctx context.Context, cfg Config) (*Daemon, error) {
	d := &Daemon{
		Config:   cfg,
		started:  time.Now(),
		registry: web.NewRegistry(cfg.Version),
		warnings: &warnings{log: cfg.Log.Logger},
		draining: draining{log: cfg.Log.Logger},
		loader:   loader{ledger: budget.New(budget.DefaultLimits(), uint32(os.Geteuid()))},
		umounts:  umounts{liveness: mountpoint.NewProber(cfg.At), requests: make(chan wire.UmountParams)},
		opened:   make(chan struct{}),
	}
	machine.PrepareProcess(cfg.Log.Logger)
	d.keepHeap(machine.LimitHeap(int64(cfg.Settings.Memory)))
	if err := d.open(ctx); err != nil {
		return nil, errors.Join(err, d.close())
	}
	close(d.opened)
	return d, nil
}

// keepHeap bounds what Go's runtime takes for as long as the daemon lives.
func (d *Daemon) keepHeap(heap *machine.Heap) {
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		heap.Run(ctx)
	}()
	d.opens("heap", func() error {
		stop()
		<-ended
		return nil
	})
}

// open opens every part in turn.
func (d *Daemon) open(ctx context.Context) error {
	for _, step := range []func(context.Context) error{d.openWeb, d.openAudit, d.openStore, d.openCache, d.openNames, d.openAttributes, d.openSpace, d.openPrefetch, d.openControl} {
		if err := step(ctx); err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	if d.Stale != nil {
		if err := mountpoint.Unmount(d.At, true); err != nil {
			return fmt.Errorf("clear the dead mount at %s: %w", d.At, err)
		}
		d.Notice(fmt.Sprintf("the daemon of %s at %s had died; its mount is replaced", d.Stale.Source, d.At))
	}
	if err := d.openMount(); err != nil {
		return err
	}
	if d.Settings.NoExec {
		if err := mountpoint.ForbidPrograms(d.At); err != nil {
			return errors.Join(d.Settings.Refuse("noexec", err), d.mount.Unmount())
		}
	}
	if err := d.draining.register(d.registry); err != nil {
		return errors.Join(err, d.mount.Unmount())
	}
	d.opens("draining", func() error {
		d.draining.end()
		return nil
	})
	d.watchSpot()
	d.warmAtMount(d.Settings.PolicyWarm)
	if err := d.servePage(); err != nil {
		return errors.Join(err, d.mount.Unmount())
	}
	d.notify = newNotifier(d.Log.Logger)
	d.tellOfEmptyPrefix(ctx)
	d.warnings.tell()
	d.Log.Info("ready", "source", d.Source.String(), "mountpoint", d.At, "version", d.Version, "pid", os.Getpid())
	return nil
}
