package fs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"

	"github.com/pailfs/pailfs/cache"
	"github.com/pailfs/pailfs/fs/internal/kernelclock"
	"github.com/pailfs/pailfs/fs/internal/mountpoint"
	"github.com/pailfs/pailfs/fs/internal/notices"
	"github.com/pailfs/pailfs/fs/internal/pagecache"
	"github.com/pailfs/pailfs/manifest"
)

// Mounted is a mounted file system.
type Mounted struct {
	cfg    Config
	fs     *filesystem
	server *fuse.Server
	log    *slog.Logger
	noOpen Feature

	readAhead       int
	readAheadReason string

	// done is closed when the kernel has let go of the mount and everything that
	// ran for it has ended.
	done chan struct{}
	mu   struct {
		sync.Mutex // serialises unmounting
	}
}

// Mount mounts tree at cfg.Mountpoint, read-only unless there is a cfg.Space, and serves it until it is
// unmounted, by [Mounted.Unmount] or from outside. The bytes of files come from c.
// Root mounts by itself, others through fusermount3. An error names what is wrong
// and the remedy, in one line, and leaves nothing mounted.
func Mount(cfg Config, tree manifest.Tree, c *cache.Cache, reg prometheus.Registerer, log *slog.Logger) (*Mounted, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("mount: %w", err)
	}
	if err := mountpoint.Check(cfg.Mountpoint, cfg.AllowNonEmpty); err != nil {
		return nil, err
	}
	noOpen := chooseNoOpen(cfg)
	f, err := newFilesystem(cfg, noOpen.On, tree, c, reg, log)
	if err != nil {
		return nil, err
	}
	m := &Mounted{cfg: cfg, fs: f, log: log, noOpen: noOpen, done: make(chan struct{})}
	if err := m.start(reg); err != nil {
		f.metrics.unregister(reg)
		f.times.clock.Close()
		return nil, err
	}
	return m, nil
}

func newFilesystem(cfg Config, noOpen bool, tree manifest.Tree, c *cache.Cache, reg prometheus.Registerer, log *slog.Logger) (*filesystem, error) {
	f := &filesystem{
		RawFileSystem: fuse.NewDefaultRawFileSystem(),
		cfg:           cfg,
		tree:          tree,
		names:         treeNames{tree},
		space:         cfg.Space,
		cache:         c,
		log:           log,
		nodes:         newNodeTable(newRoot()),
		notify:        notices.New(),
		mounted:       time.Now(),
		noOpen:        noOpen,
		logs:          rate.NewLimiter(10, 50),
		keeping:       keeping{queue: make(chan kept)},
		pages:         pagecache.Kernel,
	}
	if cfg.pages != nil {
		f.pages = *cfg.pages
	}
	f.bringing = pagecache.NewBringing(c, &f.pages, log)
	f.times.notify = &f.notify
	f.specials.clock = f.times.now
	f.keepAtOnce.Store(keepMost)
	if cfg.Immutable {
		f.numbered, _ = tree.(numbered)
	}
	if f.space != nil {
		f.names = localNames{f.space, &f.specials, log}
	}
	f.idle.unpin = f.unpin
	f.late.Age = cfg.lateAge
	var err error
	if f.times.clock, err = kernelclock.New(); err != nil {
		return nil, err
	}
	f.metrics, err = newMetrics(reg, &f.counters, func() float64 { return float64(f.nodes.count.Load()) })
	if err != nil {
		f.times.clock.Close()
		return nil, fmt.Errorf("register metrics: %w", err)
	}
	return f, nil
}

// start mounts and serves.
func (m *Mounted) start(reg prometheus.Registerer) error {
	path, direct := m.cfg.Mountpoint, os.Geteuid() == 0
	opts := mountOptions(m.cfg, direct)
	opts.Logger = slog.NewLogLogger(m.log.Handler(), slog.LevelWarn)
	opts.PanicHandler = func(v any) fuse.Status { return m.fs.panicked(v, debug.Stack()) }
	var err error
	m.server, err = fuse.NewServer(m.fs, path, opts)
	if err != nil {
		if _, statErr := os.Stat(path); errors.Is(statErr, syscall.ENOTCONN) {
			_ = mountpoint.Detach(path, direct) // the mount was made, but not understood
		}
		return mountpoint.Explain(path, direct, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var helpers sync.WaitGroup
	helpers.Go(func() { m.fs.notify.Run(ctx) })
	if m.cfg.Changes != nil {
		helpers.Go(func() { m.fs.follow(ctx, m.cfg.Changes) })
	}
	if m.fs.space != nil {
		helpers.Go(func() { m.fs.keeping.run(ctx, m.fs) })
		helpers.Go(func() { m.fs.late.Run(ctx) })
	}
	helpers.Go(func() { m.fs.bringing.Run(ctx) })
	if m.noOpen.On {
		helpers.Go(func() { m.fs.idle.run(ctx) })
	}
	go func() {
		defer close(m.done)
		m.server.Serve()
		cancel()
		helpers.Wait()
		m.fs.closeAll()
		m.fs.times.clock.Close()
		m.fs.metrics.unregister(reg)
	}()
	err = m.server.WaitMount()
	if err != nil {
		err = fmt.Errorf("mount %s: the kernel does not answer: %w", path, err)
	} else if m.cfg.Passthrough == On && !m.fs.passthrough.On {
		err = fmt.Errorf("mount %s: passthrough was asked for and cannot be had: %s", path, m.fs.passthrough.Reason)
	}
	if err != nil {
		_ = mountpoint.Detach(path, direct)
		<-m.done
		return err
	}
	m.readAhead, m.readAheadReason = mountpoint.RaiseReadAhead(path, m.cfg.ReadAheadKiB)
	m.log.Info("mounted", "mountpoint", path, "source", m.cfg.Source, "immutable", m.cfg.Immutable,
		"no_open", m.noOpen.On, "no_open_reason", m.noOpen.Reason,
		"passthrough", m.fs.passthrough.On, "passthrough_reason", m.fs.passthrough.Reason,
		"readahead_kib", m.readAhead)
	return nil
}

// chooseNoOpen decides whether the mount works without OPEN.
func chooseNoOpen(cfg Config) Feature {
	switch {
	case cfg.NoOpen == On:
		return Feature{On: true, Reason: "on by configuration"}
	case cfg.NoOpen == Off:
		return Feature{Reason: "off by configuration"}
	case !cfg.Immutable:
		return Feature{Reason: "the mount is not immutable"}
	case cfg.Passthrough == On:
		return Feature{Reason: "passthrough was asked for, which it excludes"}
	case cfg.Passthrough != Off && cfg.MeanSize >= noOpenMean:
		return Feature{Reason: fmt.Sprintf("files have %d bytes on average; large files are better passed through", cfg.MeanSize)}
	}
	return Feature{On: true, Reason: "the mount is immutable"}
}

// noOpenMean is the mean size of files from which passthrough serves them better
// than the saved OPEN does.
const noOpenMean = 8 << 20

// closeAll unpins what was open when the connection to the kernel ended.
func (f *filesystem) closeAll() {
	for _, open := range f.handles.RemoveAll() {
		open.handle.Release()
	}
	for _, n := range f.nodes.all() {
		st := n.state.Load()
		if st == nil {
			continue
		}
		if st.reader != nil {
			st.reader.Release()
			st.reader = nil
		}
		st.mu.Lock()
		st.mu.opens = 0
		st.mu.Unlock()
		f.unpin(n)
	}
}

// ErrStaleMount means that a mount whose daemon is gone covers the mount point.
var ErrStaleMount = mountpoint.ErrStale

// ErrBusy means that files or directories of the mount are in use.
var ErrBusy = errors.New("the mount is in use")

// Unmount takes the mount away and returns when the kernel has let go of it. It
// fails with [ErrBusy] while something uses the mount, and leaves it as it is.
func (m *Mounted) Unmount() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.gone() {
		return nil
	}
	err := m.server.Unmount()
	switch {
	case err == nil:
		<-m.done
		return nil
	case m.gone():
		return nil
	case errors.Is(err, syscall.EBUSY) || strings.Contains(err.Error(), "busy"):
		return fmt.Errorf("unmount %s: %w: close what uses it (fuser -vm %s lists it)", m.cfg.Mountpoint, ErrBusy, m.cfg.Mountpoint)
	}
	return fmt.Errorf("unmount %s: %w", m.cfg.Mountpoint, err)
}

// Detach takes the name of the mount away at once. What is open goes on working
// until it is closed; [Mounted.Wait] returns then.
func (m *Mounted) Detach() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.gone() {
		return nil
	}
	if err := mountpoint.Detach(m.cfg.Mountpoint, os.Geteuid() == 0); err != nil {
		return fmt.Errorf("detach %s: %w", m.cfg.Mountpoint, err)
	}
	return nil
}

// Wait returns when the mount is gone, whoever unmounted it.
func (m *Mounted) Wait() { <-m.done }

func (m *Mounted) gone() bool {
	select {
	case <-m.done:
		return true
	default:
		return false
	}
}

// Status returns the present state.
func (m *Mounted) Status() Status {
	c, kernel := &m.fs.counters, m.server.KernelSettings()
	mode := "ordinary"
	if m.cfg.Immutable {
		mode = "immutable"
	}
	return Status{
		Mountpoint:  m.cfg.Mountpoint,
		Source:      m.cfg.Source,
		Mode:        mode,
		NoOpen:      m.noOpen,
		Passthrough: Feature{On: m.fs.passthrough.On, Reason: m.fs.passthrough.Reason},

		PassthroughMin:      m.cfg.PassthroughMin,
		PassthroughFailures: m.fs.passthrough.Failures.Load(),

		Kernel:          fmt.Sprintf("%d.%d", kernel.Major, kernel.Minor),
		ReadAheadKiB:    m.readAhead,
		ReadAheadReason: m.readAheadReason,
		MaxRead:         largestRead(),
		OpenFiles:       c.openFiles.Load(),
		OpenDirs:        c.openDirs.Load(),
		Inodes:          m.fs.nodes.count.Load(),
		Opens:           Opens{Cached: c.cached.Load(), Passthrough: c.passthrough.Load()},
		Reads:           c.reads.Load(),
		ReadBytes:       c.readBytes.Load(),
		Stale:           c.stale.Load(),
		Errors:          c.errors.Load(),
		Problems:        m.fs.tree.Problems(),
	}
}
