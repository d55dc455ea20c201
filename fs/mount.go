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
	"github.com/pailfs/pailfs/fs/internal/listing"
	"github.com/pailfs/pailfs/fs/internal/measures"
	"github.com/pailfs/pailfs/fs/internal/mountpoint"
	"github.com/pailfs/pailfs/fs/internal/names"
	"github.com/pailfs/pailfs/fs/internal/notices"
	"github.com/pailfs/pailfs/fs/internal/pagecache"
	"github.com/pailfs/pailfs/manifest"
)

// Mounted is a mounted file system.
type Mounted struct {
	cfg Config
	fs  *filesystem
	// audited is what stands before fs where somebody is told what programs do, else nil.
	audited *audited
	server  *fuse.Server
	log     *slog.Logger
	noOpen  Feature

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
	if cfg.Audit != nil {
		m.audited = &audited{filesystem: f, to: cfg.Audit}
	}
	if err := m.start(reg); err != nil {
		f.reports.metrics.Unregister(reg)
		f.inodes.times.clock.Close()
		return nil, err
	}
	return m, nil
}

func newFilesystem(cfg Config, noOpen bool, tree manifest.Tree, c *cache.Cache, reg prometheus.Registerer, log *slog.Logger) (*filesystem, error) {
	f := &filesystem{RawFileSystem: fuse.NewDefaultRawFileSystem(), cfg: &cfg}
	f.reports.log, f.reports.logs = log, rate.NewLimiter(10, 50)
	f.inodes = inodes{
		cfg: &cfg, reports: &f.reports, tree: tree, names: names.Tree{Tree: tree}, space: cfg.Space,
		nodes: newNodeTable(newRoot()), notify: notices.New(), mounted: time.Now(),
		forgotten: f.forgot,
	}
	f.inodes.times.notify = &f.inodes.notify
	f.inodes.specials.Clock = f.inodes.times.now
	if cfg.Immutable {
		f.inodes.numbered, _ = tree.(listing.Numbered)
	}
	if cfg.Space != nil {
		f.inodes.names = names.NewLocal(cfg.Space, &f.inodes.specials, log)
	}
	f.reads = readPath{
		reports: &f.reports, inodes: &f.inodes, space: cfg.Space, cache: c,
		pages: pagecache.Kernel, noOpen: noOpen,
	}
	if cfg.pages != nil {
		f.reads.pages = *cfg.pages
	}
	f.reads.bringing = pagecache.NewBringing(c, &f.reads.pages, log)
	f.keeps = keeps{
		reports: &f.reports, inodes: &f.inodes, reads: &f.reads, space: cfg.Space, cache: c,
		keeping: keeping{queue: make(chan kept)},
	}
	f.keeps.keepAtOnce.Store(keepMost)
	f.keeps.late.Age = cfg.lateAge
	f.writes = writePath{
		cfg: &cfg, reports: &f.reports, inodes: &f.inodes, reads: &f.reads, keeps: &f.keeps,
		space: cfg.Space, passthrough: &f.reads.passthrough,
	}
	f.directories = directories{control: cfg.Control, reports: &f.reports, inodes: &f.inodes}
	f.attributes = attrs{
		cfg: &cfg, reports: &f.reports, inodes: &f.inodes, writes: &f.writes, space: cfg.Space, cache: c,
	}
	f.naming = naming{
		cfg: &cfg, reports: &f.reports, inodes: &f.inodes, moves: &f.inodes.moves,
		writes: &f.writes, keeps: &f.keeps, space: cfg.Space,
	}
	f.follower = follower{reports: &f.reports, inodes: &f.inodes}
	f.reads.idle.unpin = f.reads.unpin
	var err error
	if f.inodes.times.clock, err = kernelclock.New(); err != nil {
		return nil, err
	}
	f.reports.metrics, err = measures.New(reg, &f.reports.counters, func() float64 { return float64(f.inodes.nodes.count.Load()) })
	if err != nil {
		f.inodes.times.clock.Close()
		return nil, fmt.Errorf("register metrics: %w", err)
	}
	return f, nil
}

// answers returns what answers the kernel.
func (m *Mounted) answers() fuse.RawFileSystem {
	if m.audited != nil {
		return m.audited
	}
	return m.fs
}

// start mounts and serves.
func (m *Mounted) start(reg prometheus.Registerer) error {
	path, direct := m.cfg.Mountpoint, os.Geteuid() == 0
	opts := mountOptions(m.cfg, direct)
	opts.Logger = slog.NewLogLogger(m.log.Handler(), slog.LevelWarn)
	opts.PanicHandler = func(v any) fuse.Status { return m.fs.reports.panicked(v, debug.Stack()) }
	var err error
	m.server, err = fuse.NewServer(m.answers(), path, opts)
	if err != nil {
		if _, statErr := os.Stat(path); errors.Is(statErr, syscall.ENOTCONN) {
			_ = mountpoint.Detach(path, direct) // the mount was made, but not understood
		}
		return mountpoint.Explain(path, direct, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var helpers sync.WaitGroup
	helpers.Go(func() { m.fs.inodes.notify.Run(ctx) })
	if m.cfg.Changes != nil {
		helpers.Go(func() { m.fs.follower.follow(ctx, m.cfg.Changes) })
	}
	if m.fs.inodes.space != nil {
		helpers.Go(func() { m.fs.keeps.keeping.run(ctx, &m.fs.keeps) })
		helpers.Go(func() { m.fs.keeps.late.Run(ctx) })
	}
	helpers.Go(func() { m.fs.reads.bringing.Run(ctx) })
	if m.noOpen.On {
		helpers.Go(func() { m.fs.reads.idle.run(ctx) })
	}
	go func() {
		defer close(m.done)
		m.server.Serve()
		cancel()
		helpers.Wait()
		if m.audited != nil {
			m.audited.closeOpens()
		}
		m.fs.closeAll()
		m.fs.inodes.times.clock.Close()
		m.fs.reports.metrics.Unregister(reg)
	}()
	err = m.server.WaitMount()
	if err != nil {
		err = fmt.Errorf("mount %s: the kernel does not answer: %w", path, err)
	} else if m.cfg.Passthrough == On && !m.fs.reads.passthrough.On {
		err = fmt.Errorf("mount %s: passthrough was asked for and cannot be had: %s", path, m.fs.reads.passthrough.Reason)
	}
	if err != nil {
		_ = mountpoint.Detach(path, direct)
		<-m.done
		return err
	}
	m.readAhead, m.readAheadReason = mountpoint.RaiseReadAhead(path, m.cfg.ReadAheadKiB)
	m.log.Info("mounted", "mountpoint", path, "source", m.cfg.Source, "immutable", m.cfg.Immutable,
		"no_open", m.noOpen.On, "no_open_reason", m.noOpen.Reason,
		"passthrough", m.fs.reads.passthrough.On, "passthrough_reason", m.fs.reads.passthrough.Reason,
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
	case cfg.Audit != nil:
		return Feature{Reason: "an audit has to see files being opened"}
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
	for _, open := range f.writes.handles.RemoveAll() {
		open.handle.Release()
	}
	for _, n := range f.inodes.nodes.all() {
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
		f.reads.unpin(n)
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
	c, kernel := &m.fs.reports.counters, m.server.KernelSettings()
	mode := "ordinary"
	if m.cfg.Immutable {
		mode = "immutable"
	}
	return Status{
		Mountpoint:  m.cfg.Mountpoint,
		Source:      m.cfg.Source,
		Mode:        mode,
		NoOpen:      m.noOpen,
		Passthrough: Feature{On: m.fs.reads.passthrough.On, Reason: m.fs.reads.passthrough.Reason},

		PassthroughMin:      m.cfg.PassthroughMin,
		PassthroughFailures: m.fs.reads.passthrough.Failures.Load(),

		Kernel:          fmt.Sprintf("%d.%d", kernel.Major, kernel.Minor),
		ReadAheadKiB:    m.readAhead,
		ReadAheadReason: m.readAheadReason,
		MaxRead:         largestRead(),
		OpenFiles:       c.OpenFiles.Load(),
		OpenDirs:        c.OpenDirs.Load(),
		Inodes:          m.fs.inodes.nodes.count.Load(),
		Opens:           Opens{Cached: c.Cached.Load(), Passthrough: c.Passthrough.Load()},
		Reads:           c.Reads.Load(),
		ReadBytes:       c.ReadBytes.Load(),
		Stale:           c.Stale.Load(),
		Errors:          c.Errors.Load(),
		Problems:        m.fs.inodes.tree.Problems(),
	}
}
