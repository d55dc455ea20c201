package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pailfs/pailfs/cache"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/access"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/config"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/mountpoint"
	pailfs "github.com/pailfs/pailfs/fs"
	"github.com/pailfs/pailfs/fs/writeback"
	"github.com/pailfs/pailfs/manifest"
	"github.com/pailfs/pailfs/oss"
	"github.com/pailfs/pailfs/prefetch"
	"github.com/pailfs/pailfs/prefetch/budget"
	"github.com/pailfs/pailfs/prefetch/control"
)

// daemon is the parts of one mount, put together.
type daemon struct {
	settings *config.Loaded
	source   config.Location
	at       string
	log      daemonLog
	started  time.Time
	registry *prometheus.Registry

	credentials *oss.CredentialSource
	limiter     *oss.Limiter
	client      *oss.Client
	first       []oss.ListedObject // the first objects when it was checked
	cache       *cache.Cache
	rights      *access.Rights
	prefetch    *prefetch.Prefetcher
	names       names
	shown       manifest.Tree // the names as the mount shows them
	attrs       bool          // modes, owners and times are kept
	writing     *writing      // nil where the mount cannot be written
	draining    draining
	leave       bool           // what is not published is to stay for the next mount
	ledger      *budget.Ledger // what users make the daemon remember
	sessions    *nodeStore     // nil without a cache directory
	mux         *control.Mux
	mount       *pailfs.Mounted
	web         *webServer
	warnings    *warnings
	notify      *notifier

	// liveness asks the mount, through the kernel, whether it answers.
	liveness *mountpoint.Prober
	// opened is closed when every field above is set: control methods wait for it.
	opened chan struct{}
	// requests carries what umount asks from the control channel to run.
	requests chan umountParams
	// lastUmount is how the last attempt to unmount ended.
	lastUmount atomic.Pointer[umountState]
	// parts are closed in the reverse order of their opening.
	parts []part
}

// part is something that was opened and must be closed.
type part struct {
	name  string
	close func() error
}

// openDaemon opens the parts from the object store upward and mounts. What
// cannot work is found before anything is made: on an error nothing is left
// behind, neither a mount nor a lock nor a directory.
func openDaemon(ctx context.Context, l *config.Loaded, source config.Location, at string, stale *mountpoint.Mount, log daemonLog, notice func(string)) (*daemon, error) {
	d := &daemon{
		settings: l,
		source:   source,
		at:       at,
		log:      log,
		started:  time.Now(),
		registry: newRegistry(),
		ledger:   budget.New(budget.DefaultLimits(), uint32(os.Geteuid())),
		warnings: &warnings{log: log.Logger},
		liveness: mountpoint.NewProber(at),
		opened:   make(chan struct{}),
		requests: make(chan umountParams),
	}
	prepareProcess(l.Memory, log.Logger)
	if err := d.open(ctx, stale, notice); err != nil {
		return nil, errors.Join(err, d.close())
	}
	close(d.opened)
	return d, nil
}

// open opens every part in turn.
func (d *daemon) open(ctx context.Context, stale *mountpoint.Mount, notice func(string)) error {
	for _, step := range []func(context.Context) error{d.openWeb, d.openStore, d.openCache, d.openTree, d.openAttributes, d.openSpace, d.openPrefetch, d.openControl} {
		if err := step(ctx); err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	if stale != nil {
		if err := mountpoint.Unmount(d.at, true); err != nil {
			return fmt.Errorf("clear the dead mount at %s: %w", d.at, err)
		}
		notice(fmt.Sprintf("the daemon of %s at %s had died; its mount is replaced", stale.Source, d.at))
	}
	if err := d.openMount(); err != nil {
		return err
	}
	if d.settings.NoExec {
		if err := mountpoint.ForbidPrograms(d.at); err != nil {
			return errors.Join(d.settings.Refuse("noexec", err), d.mount.Unmount())
		}
	}
	if err := d.watchDraining(); err != nil {
		return errors.Join(err, d.mount.Unmount())
	}
	d.watchSpot()
	d.warmAtMount(d.settings.PolicyWarm)
	d.web.serve(d)
	d.notify = newNotifier(d.log.Logger)
	if len(d.first) == 0 {
		d.log.Warn("there is no object yet: the mount is empty. Check the prefix if that is not so", "source", d.source.String())
	}
	d.warnings.tell()
	d.log.Info("ready", "source", d.source.String(), "mountpoint", d.at, "version", versionText(), "pid", os.Getpid())
	return nil
}

// opens remembers that a part must be closed.
func (d *daemon) opens(name string, closer func() error) {
	d.parts = append(d.parts, part{name: name, close: closer})
}

// close closes what is open, last opened first, and returns every failure.
func (d *daemon) close() error {
	var failures []error
	for _, p := range slices.Backward(d.parts) {
		if err := p.close(); err != nil {
			failures = append(failures, fmt.Errorf("close %s: %w", p.name, err))
		}
	}
	d.parts = nil
	return errors.Join(failures...)
}

// openWeb takes the address for metrics: where it is required, a taken one must stop
// the mount before anything else happened.
func (d *daemon) openWeb(context.Context) error {
	w, err := listenWeb(&d.settings.Config, d.log.Logger)
	if err != nil {
		return d.settings.Refuse("http", err)
	}
	d.web = w
	d.opens("http server", w.close)
	return nil
}

// openStore reads the credentials, connects to the bucket and proves with one
// request that it can be read.
func (d *daemon) openStore(ctx context.Context) error {
	c := &d.settings.Config
	if c.Credentials == "sts" && os.Getenv("OSS_SESSION_TOKEN") == "" {
		return errors.New("credentials sts: the environment variable OSS_SESSION_TOKEN is not set: set it, or use --credentials env")
	}
	credentials, err := oss.OpenCredentials(credentialsConfig(c), d.log.Logger)
	if err != nil {
		return credentialsRemedy(c, err)
	}
	d.credentials = credentials
	d.opens("credentials", credentials.Close)
	forgetSecrets(c.Credentials)
	warning, err := checkPlainHTTP(c, credentials)
	if err != nil {
		return d.settings.Refuse("endpoint", err)
	}
	d.warnings.add(warning)
	if c.Credentials != "anonymous" {
		if err := hideMemory(); err != nil {
			d.log.Warn("the keys in memory can be read by this user's other programs", "error", err)
		}
	}
	if d.limiter, err = oss.NewLimiter(oss.LimiterConfig{}, d.registry); err != nil {
		return fmt.Errorf("limit requests: %w", err)
	}
	d.client, err = oss.Open(oss.Config{
		Endpoint:    c.Endpoint,
		Bucket:      d.source.Bucket,
		Region:      c.Region,
		Credentials: credentials,
	}, d.limiter, d.registry, d.log.Logger)
	if err != nil {
		return fmt.Errorf("open %s: %w", d.source, err)
	}
	d.opens("object store", d.client.Close)
	patience := time.Duration(c.StartTimeout)
	checkCtx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	first, err := d.client.Check(checkCtx, d.source.Prefix)
	if err != nil {
		if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
			return fmt.Errorf("%s at %s did not answer within %s: check the endpoint and the network, or raise --start-timeout",
				d.source, c.Endpoint, c.StartTimeout)
		}
		return err // it names the bucket, the endpoint and the remedy
	}
	d.first = first
	return nil
}

// credentialsRemedy adds what can be done about credentials that cannot be read.
func credentialsRemedy(c *config.Config, err error) error {
	switch {
	case c.Credentials == "env" || c.Credentials == "sts":
		return fmt.Errorf("%w: export the key's variables, or name another source with --credentials", err)
	case c.Credentials == "file" && errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w: name the file with --credentials-file", err)
	case c.Credentials == "file":
		return err // it says what to do
	default:
		return fmt.Errorf("%w: check --credentials %s, or name another source with it", err, c.Credentials)
	}
}

// credentialsConfig translates the settings.
func credentialsConfig(c *config.Config) oss.CredentialsConfig {
	kinds := map[string]oss.CredentialKind{
		"env":          oss.CredentialsEnvironment,
		"sts":          oss.CredentialsEnvironment,
		"file":         oss.CredentialsFile,
		"ecs-ram-role": oss.CredentialsECSRole,
		"oidc":         oss.CredentialsOIDC,
		"default":      oss.CredentialsChain,
		"anonymous":    oss.CredentialsAnonymous,
	}
	return oss.CredentialsConfig{Kind: kinds[c.Credentials], File: c.CredentialsFile, RoleName: c.RoleName}
}

// openCache makes the cache directory if it is not there, and opens the tiers.
func (d *daemon) openCache(context.Context) error {
	c := &d.settings.Config
	if c.CacheDir != "" {
		if err := d.makeCacheDir(filepath.Clean(c.CacheDir)); err != nil {
			return d.settings.Refuse("cache-dir", err)
		}
	}
	if c.CacheDir != "" {
		d.sessions = newNodeStore(filepath.Join(filepath.Clean(c.CacheDir), sessionsDir), int64(c.CacheSize))
	}
	readers := throttle(int64(c.DownloadBandwidth), d.client.As(oss.Demand), d.client.As(oss.Prefetch))
	opened, err := cache.Open(cache.Config{
		Bucket: d.source.Bucket + "@" + canonicalEndpoint(c.Endpoint),
		Dir:    c.CacheDir,
		Size:   int64(c.CacheSize),
		Beside: d.sessions.Bytes,
		Memory: int64(c.Memory),
		Track:  accessQueue,
		Never:  newPolicy(c, d.source.Prefix).neverKeep(),
	}, readers[0], readers[1], d.registry, d.log.Logger)
	if err != nil {
		if c.CacheDir != "" {
			return d.settings.Refuse("cache-dir", cacheRemedy(err))
		}
		return fmt.Errorf("open cache: %w", err)
	}
	d.cache = opened
	d.opens("cache", opened.Close)
	if d.sessions != nil {
		d.sessions.find(d.log.Logger)
	}
	// Only now: the cache has just made its directory its owner's alone.
	for _, p := range exposablePaths(c) {
		d.warnOfPath(p.setting, p.path)
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
func (d *daemon) makeCacheDir(dir string) error {
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

// openControl makes the control channel and registers what this program answers.
func (d *daemon) openControl(context.Context) error {
	d.mux = control.NewMux(control.MuxConfig{
		OwnerUID:  uint32(os.Geteuid()),
		Trusted:   sameProcessNamespace,
		ProcessOf: pailfs.ProcessOf,
		Version:   versionText(),
		Ledger:    d.ledger,
	}, d.registry, d.log.Logger)
	control.Handle(d.mux, methodStatus, control.Anyone, d.answerStatus)
	control.Handle(d.mux, methodFlush, control.Anyone, d.answerFlush)
	control.Handle(d.mux, methodDrain, control.Owner, d.answerDrain)
	control.Handle(d.mux, methodAccept, control.Owner, d.answerAccept)
	control.Handle(d.mux, methodUmount, control.Owner, d.answerUmount)
	control.HandleLoader(d.mux, d.prefetch)
	return nil
}

// openMount mounts. The mount is not among the parts: it is taken away by run, or
// by anybody else, before the parts are closed.
func (d *daemon) openMount() error {
	c := &d.settings.Config
	var space *writeback.Space
	if d.writing != nil {
		space = d.writing.space
	}
	mount, err := pailfs.Mount(pailfs.Config{
		Space:       space,
		Attrs:       d.attrs,
		Mountpoint:  d.at,
		Source:      d.source.String(),
		Immutable:   c.Immutable || d.names.frozen(),
		Changes:     d.names.changes(),
		NoOpen:      choice(c.NoOpen),
		MeanSize:    d.meanSize(),
		Passthrough: choice(c.Passthrough),
		AllowOther:  c.AllowOther,
		UID:         c.UID.Or(os.Geteuid()),
		GID:         c.GID.Or(os.Getegid()),
		FileMode:    0o666 &^ uint32(c.Umask),
		DirMode:     0o777 &^ uint32(c.Umask),
		Control:     controlAdapter{d.mux},
	}, d.shown, d.cache, d.registry, d.log.Logger)
	if err != nil {
		return fmt.Errorf("mount %s at %s: %w", d.source, d.at, err)
	}
	d.mount = mount
	d.opens("control channel", d.mux.Close)
	return nil
}

// choice translates a setting that was validated.
func choice(s string) pailfs.Choice {
	switch s {
	case "on":
		return pailfs.On
	case "off":
		return pailfs.Off
	default:
		return pailfs.Auto
	}
}

// reopenLog opens the log file again after it was rotated.
func (d *daemon) reopenLog() {
	if d.log.file == nil {
		return
	}
	if err := d.log.file.Reopen(); err != nil {
		d.log.Error("cannot open the log file again; logging to the one before", "error", err)
	}
}
