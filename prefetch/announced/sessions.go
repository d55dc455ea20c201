package announced

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/pailfs/pailfs/cache"
	"github.com/pailfs/pailfs/oss"
	"github.com/pailfs/pailfs/prefetch/budget"
	"github.com/pailfs/pailfs/prefetch/internal/news"
	"github.com/pailfs/pailfs/prefetch/rights"
	"github.com/pailfs/pailfs/prefetch/session"
)

// Cache is what this package needs of a [cache.Cache].
type Cache interface {
	Fetch(ctx context.Context, obj oss.Object) error
	Hold(obj oss.Object)
	Unhold(obj oss.Object, released bool)
	HoldsBroken() uint64
	Evict(obj oss.Object) (freed int64, err error)
	Residency(obj oss.Object) cache.Residency
}

// Config is the configuration of [Sessions]. All of it is needed.
type Config struct {
	// Rights leads from what is announced to objects.
	Rights rights.Rights
	// Ledger says how much may be remembered for whom.
	Ledger *budget.Ledger
	// Budget is how many bytes may be held.
	Budget int64
	// Wake says that [Sessions.Next] may have something.
	Wake func()
	Log  *slog.Logger
}

// bell wakes who waits at it, once for however many rings.
type bell chan struct{}

func (b bell) ring() {
	select {
	case b <- struct{}{}:
	default:
	}
}

// Sessions are those of one mount, with what they hold in the cache. They are safe for
// concurrent use.
type Sessions struct {
	cfg   Config
	cache Cache

	// resolve and goAway wake who resolves, and who lets go.
	resolve bell
	goAway  bell

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
		// news are told when anything changes.
		news   news.News
		broken uint64
		// toldStreamed says that a warning was given of what is too large to be held.
		toldStreamed bool
	}
}

// New returns no sessions yet.
func New(cfg Config, c Cache) *Sessions {
	p := &Sessions{cfg: cfg, cache: c, resolve: make(bell, 1), goAway: make(bell, 1)}
	p.mu.book = session.NewBook(session.Config{Budget: cfg.Budget, Ledger: cfg.Ledger, Cost: cache.Cost})
	p.mu.fetches = make(map[*session.Entry]*fetch)
	p.mu.readers = make(map[oss.Object]*session.Entry)
	p.mu.broken = c.HoldsBroken()
	return p
}

// Run resolves what is announced and lets go of what is released, until ctx ends.
func (p *Sessions) Run(ctx context.Context) {
	var loops sync.WaitGroup
	loops.Go(func() { p.runResolve(ctx) })
	loops.Go(func() { p.runLetGo(ctx) })
	loops.Wait()
}

// Keep does what time demands: leases, the budget, and what the cache had to give up.
func (p *Sessions) Keep(now time.Time, budget int64) {
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
		p.cfg.Log.Warn("released files whose lease had run out", "count", leaked)
	}
	if recheck {
		p.recheck()
	}
	p.resolve.ring()
}

// Read notes that an object is read, and reports whether a session holds it.
func (p *Sessions) Read(o oss.Object) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	e := p.mu.readers[o]
	if e != nil {
		p.mu.book.Read(time.Now(), e)
	}
	return e != nil
}

// settleLocked does what must follow a change of the book: what nobody holds is
// let go, and everybody who waits looks again.
func (p *Sessions) settleLocked() {
	for _, e := range p.mu.book.TakeGone() {
		p.dropLocked(e)
	}
	p.mu.news.Tell()
}

// Budget returns how many bytes may be held, and how many are.
func (p *Sessions) Budget() (budget, charged int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.book.Budget()
}

// Totals returns what happened since the daemon began.
func (p *Sessions) Totals() session.Totals {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.book.Totals()
}

// Overview is what is told of all sessions at one moment.
type Overview struct {
	Budget, Charged int64
	Totals          session.Totals
	Sessions        []session.Summary
}

// Overview returns the state of everything.
func (p *Sessions) Overview() Overview {
	p.mu.Lock()
	defer p.mu.Unlock()
	o := Overview{Totals: p.mu.book.Totals(), Sessions: p.mu.book.Summaries(time.Now())}
	o.Budget, o.Charged = p.mu.book.Budget()
	return o
}

// SummariesOf returns what a user may know of the sessions who is not told all.
func (p *Sessions) SummariesOf(user budget.User, who session.Who) []session.Summary {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.book.SummariesOf(time.Now(), user, who)
}
