package prefetch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pailfs/pailfs/cache"
	"github.com/pailfs/pailfs/manifest"
	"github.com/pailfs/pailfs/oss"
	"github.com/pailfs/pailfs/prefetch/budget"
	"github.com/pailfs/pailfs/prefetch/guess"
	"github.com/pailfs/pailfs/prefetch/internal/scheduler"
	"github.com/pailfs/pailfs/prefetch/residency"
	"github.com/pailfs/pailfs/prefetch/rights"
	"github.com/pailfs/pailfs/prefetch/session"
	"github.com/pailfs/pailfs/prefetch/warm"
)

// Cache is what this package needs of a [cache.Cache].
type Cache interface {
	residency.Cache
	Fetch(ctx context.Context, obj oss.Object) error
	Hold(obj oss.Object)
	Unhold(obj oss.Object, released bool)
	HoldsBroken() uint64
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
	Store Store
	// Shared keeps them for other nodes as well, nil if nothing does. It needs Store.
	Shared Store
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
	// Warm are the jobs that bring paths into the cache.
	Warm *warm.Jobs
	// Paths tells what of paths is in the cache.
	Paths *residency.Paths

	cfg   Config
	cache Cache
	log   *slog.Logger

	sched   *scheduler.Scheduler
	guesses *guess.Guesser
	resolve chan struct{}
	goAway  chan struct{}
	// loading has a place for each file of a session that is being read.
	loading chan struct{}

	mu struct {
		sync.Mutex
		book *session.Book
		// fetches are the entries whose objects are held in the cache.
		fetches map[*session.Entry]*fetch
		// running are those of them with files that were not begun yet.
		running []*fetch
		// readers tells whose an object is that is read.
		readers map[oss.Object]*session.Entry
		// leaving are fetches that nobody holds any more, still held in the cache, and
		// drop objects that are to leave it and were in use.
		leaving []*fetch
		drop    []oss.Object
		// changed, if somebody waits, is closed when anything changes.
		changed chan struct{}
		broken  uint64
		// toldStreamed says that a warning was given of what is too large to be held.
		toldStreamed bool
		// keeping tells where the sessions are kept.
		keeping map[session.Key]*keeping
	}
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
	p := &Prefetcher{cfg: cfg, cache: c, log: log, resolve: make(chan struct{}, 1), goAway: make(chan struct{}, 1), loading: make(chan struct{}, loaders), Paths: residency.New(cfg.Rights, c)}
	p.mu.book = session.NewBook(session.Config{Budget: p.budget(), Ledger: cfg.Ledger, Cost: cache.Cost})
	p.mu.fetches = make(map[*session.Entry]*fetch)
	p.mu.readers = make(map[oss.Object]*session.Entry)
	p.mu.keeping = make(map[session.Key]*keeping)
	p.mu.broken = c.HoldsBroken()
	p.Warm = warm.New(warm.Config{Rights: cfg.Rights, Ledger: cfg.Ledger, NewID: cfg.NewID, Held: p.held, Wake: func() { p.sched.Wake() }}, c)
	p.guesses = guess.New(tree, c, cfg.Prefix)
	p.sched = scheduler.New(cfg.Width, p.room, p.nextAnnounced, p.guesses.NextAhead, p.Warm.Next, p.guesses.NextBehind)
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
	loops.Go(func() { p.runResolve(ctx) })
	loops.Go(func() { p.runSave(ctx) })
	loops.Go(func() { p.runLetGo(ctx) })
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
	p.mu.Lock()
	if e := p.mu.readers[o]; e != nil {
		p.mu.book.Read(time.Now(), e)
		p.mu.Unlock()
		return
	}
	p.mu.Unlock()
	if p.cfg.Guess && p.guesses.Opened(ctx, o) {
		p.sched.Wake()
	}
}

// keep does what time demands: leases, the budget, and what the cache had to give
// up.
func (p *Prefetcher) keep(now time.Time) {
	budget := p.budget()
	broken := p.cache.HoldsBroken()
	p.mu.Lock()
	p.mu.book.SetBudget(budget)
	leaked := p.mu.book.Expire(now)
	p.settleLocked()
	recheck := broken != p.mu.broken
	p.mu.broken = broken
	drop := p.mu.drop
	p.mu.drop = nil
	p.mu.Unlock()
	for _, o := range drop {
		// It may be held or open by now: then it is not ours to drop.
		_, _ = p.cache.Evict(o)
	}
	if leaked > 0 {
		p.log.Warn("released files whose lease had run out", "count", leaked)
	}
	if recheck {
		p.recheck()
	}
	p.Warm.Expire(now)
	p.sched.Wake()
	p.wakeResolve()
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

// held returns how many bytes sessions may hold, and how many they do.
func (p *Prefetcher) held() (budget, charged int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.book.Budget()
}

// room returns how many bytes may be in flight for prefetching.
func (p *Prefetcher) room() int64 { return p.cache.Stats().Memory.Limit / 2 }

// settleLocked does what must follow a change of the book: what nobody holds is
// let go, and everybody who waits looks again.
func (p *Prefetcher) settleLocked() {
	for _, e := range p.mu.book.TakeGone() {
		p.dropLocked(e)
	}
	if p.mu.changed != nil {
		close(p.mu.changed)
		p.mu.changed = nil
	}
}

// changedLocked returns a channel that is closed at the next change.
func (p *Prefetcher) changedLocked() <-chan struct{} {
	if p.mu.changed == nil {
		p.mu.changed = make(chan struct{})
	}
	return p.mu.changed
}

func (p *Prefetcher) wakeResolve() {
	select {
	case p.resolve <- struct{}{}:
	default:
	}
}

// Overview returns the state of everything, for status.
func (p *Prefetcher) Overview() Status {
	jobs := p.Warm.Len()
	p.mu.Lock()
	defer p.mu.Unlock()
	s := Status{Totals: p.mu.book.Totals(), Sessions: p.mu.book.Summaries(time.Now()), InFlight: p.sched.InFlight(), WarmJobs: jobs}
	s.Budget, s.Charged = p.mu.book.Budget()
	return s
}

// OverviewOf returns what a user may know of it who is not told all.
func (p *Prefetcher) OverviewOf(user budget.User, who session.Who) Status {
	s := p.Overview()
	p.mu.Lock()
	defer p.mu.Unlock()
	s.Sessions = p.mu.book.SummariesOf(time.Now(), user, who)
	return s
}
