package prefetch

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pailfs/pailfs/cache"
	"github.com/pailfs/pailfs/manifest"
	"github.com/pailfs/pailfs/oss"
	"github.com/pailfs/pailfs/prefetch/announced"
	"github.com/pailfs/pailfs/prefetch/budget"
	"github.com/pailfs/pailfs/prefetch/guess"
	"github.com/pailfs/pailfs/prefetch/internal/scheduler"
	"github.com/pailfs/pailfs/prefetch/keep"
	"github.com/pailfs/pailfs/prefetch/residency"
	"github.com/pailfs/pailfs/prefetch/rights"
	"github.com/pailfs/pailfs/prefetch/session"
	"github.com/pailfs/pailfs/prefetch/warm"
)

// Cache is what this package needs of a [cache.Cache].
type Cache interface {
	announced.Cache
	Accesses() <-chan oss.Object
	Stats() cache.Stats
}

var _ Cache = (*cache.Cache)(nil)

// Config is the configuration of a [Prefetcher].
type Config struct {
	// Rights leads from the paths that users name to objects.
	Rights rights.Rights
	// Prefix begins the key of every object; the rest is the object's path.
	Prefix string
	// Width returns how many requests the object store bears at once at present. nil
	// means 64; while it is 0 nothing is begun.
	Width func() int
	// Store keeps the sessions on this node over the daemon's death; nil means that
	// nothing does.
	Store keep.Store
	// Shared keeps them for other nodes as well, nil if nothing does. It needs Store.
	Shared keep.Store
	// Host names this node in what is shared.
	Host string
	// Guess fetches ahead what is likely to be read next though nobody announced it.
	Guess bool
	// Ledger says how much may be remembered for whom; nil means the default.
	Ledger *budget.Ledger
	// NewID names sessions and jobs; nil means random names that nobody can guess.
	NewID func() string
}

// Prefetcher brings objects into a cache. It is safe for concurrent use.
type Prefetcher struct {
	// Sessions are what samplers announced, and Keeper opens and closes them.
	Sessions *announced.Sessions
	Keeper   *keep.Keeper
	// Warm are the jobs that bring paths into the cache.
	Warm *warm.Jobs
	// Paths tells what of paths is in the cache.
	Paths *residency.Paths

	cfg   Config
	cache Cache

	sched   *scheduler.Scheduler
	guesses *guess.Guesser
}

// New returns a Prefetcher, which does nothing until Run is called. The tree serves
// guesses alone, of which nobody is told.
func New(cfg Config, tree manifest.Tree, c Cache, reg prometheus.Registerer, log *slog.Logger) (*Prefetcher, error) {
	if tree == nil || c == nil || cfg.Rights == nil {
		return nil, errors.New("prefetch needs a tree, a cache and rights")
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	if cfg.Ledger == nil {
		cfg.Ledger = budget.Default()
	}
	if cfg.NewID == nil {
		cfg.NewID = randomID
	}
	if cfg.Width == nil {
		cfg.Width = func() int { return 64 }
	}
	p := &Prefetcher{cfg: cfg, cache: c, Paths: residency.New(cfg.Rights, c)}
	wake := func() { p.sched.Wake() }
	p.Sessions = announced.New(announced.Config{Rights: cfg.Rights, Ledger: cfg.Ledger, Budget: p.budget(), Wake: wake, Log: log}, c)
	p.Keeper = keep.New(keep.Config{Store: cfg.Store, Shared: cfg.Shared, Host: cfg.Host, Rights: cfg.Rights, NewID: cfg.NewID, Log: log}, p.Sessions)
	p.Warm = warm.New(warm.Config{Rights: cfg.Rights, Ledger: cfg.Ledger, NewID: cfg.NewID, Held: p.Sessions.Budget, Wake: wake}, c)
	p.guesses = guess.New(tree, c, cfg.Prefix)
	p.sched = scheduler.New(cfg.Width, p.room, p.Sessions.Next, p.guesses.NextAhead, p.Warm.Next, p.guesses.NextBehind)
	if err := registerMetrics(reg, p); err != nil {
		return nil, fmt.Errorf("register metrics of prefetch: %w", err)
	}
	return p, nil
}

// keepEvery is how often leases, the budget and what is held are looked at.
const keepEvery = time.Second

// Run works until ctx ends, and then writes down what the sessions hold.
func (p *Prefetcher) Run(ctx context.Context) error {
	var loops sync.WaitGroup
	loops.Go(func() { p.sched.Run(ctx) })
	loops.Go(func() { p.Sessions.Run(ctx) })
	loops.Go(func() { p.Keeper.Run(ctx) })
	loops.Go(func() { p.runAccesses(ctx) })
	tick := time.NewTicker(keepEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			loops.Wait()
			return nil
		case <-tick.C:
			p.keep(time.Now())
		}
	}
}

// runAccesses watches what is opened, until ctx ends.
func (p *Prefetcher) runAccesses(ctx context.Context) {
	accesses := p.cache.Accesses()
	for {
		select {
		case <-ctx.Done():
			return
		case o := <-accesses:
			p.accessed(ctx, o)
		}
	}
}

// accessed notes that o is read.
func (p *Prefetcher) accessed(ctx context.Context, o oss.Object) {
	if !p.Sessions.Read(o) && p.cfg.Guess && p.guesses.Opened(ctx, o) {
		p.sched.Wake()
	}
}

// keep does what time demands.
func (p *Prefetcher) keep(now time.Time) {
	p.Sessions.Keep(now, p.budget())
	p.Warm.Expire(now)
	p.sched.Wake()
}

// budget returns how many bytes sessions may hold: nine tenths of the SSD tier,
// or a quarter of the memory, which keeps them as long as it can.
func (p *Prefetcher) budget() int64 {
	stats := p.cache.Stats()
	if stats.SSD != nil {
		return stats.SSD.Limit / 10 * 9
	}
	return stats.Memory.Limit / 4
}

// room returns how many bytes may be in flight for prefetching.
func (p *Prefetcher) room() int64 { return p.cache.Stats().Memory.Limit / 2 }

// randomID returns a name that nobody can guess.
func randomID() string {
	var b [12]byte
	_, _ = rand.Read(b[:]) // it never fails: it would rather end the process
	return hex.EncodeToString(b[:])
}

// Overview returns the state of everything, for status.
func (p *Prefetcher) Overview() Status {
	o := p.Sessions.Overview()
	return Status{
		Budget: o.Budget, Charged: o.Charged, Totals: o.Totals, Sessions: o.Sessions,
		InFlight: p.sched.InFlight(), WarmJobs: p.Warm.Len(),
	}
}

// OverviewOf returns what a user may know of it who is not told all.
func (p *Prefetcher) OverviewOf(user budget.User, who session.Who) Status {
	s := p.Overview()
	s.Sessions = p.Sessions.SummariesOf(user, who)
	return s
}
