package manifest

import (
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pailfs/pailfs/oss"
)

// Source is what [Live] asks for names.
type Source interface {
	oss.Lister
	oss.Stater
}

// LiveConfig says what part of a bucket is shown and how long answers are
// believed. The zero value shows a whole bucket.
type LiveConfig struct {
	// Prefix is the mounted part of the bucket: "" or a key ending with a slash.
	Prefix string
	// TTL is how long a listed name is believed after the request that told it was
	// sent. Zero means 60 seconds.
	TTL time.Duration
	// NegativeTTL is how long a name is believed not to exist, unless the whole
	// directory is known, which then says so for TTL. Nothing is believed for
	// longer than TTL. Zero means 5 seconds.
	NegativeTTL time.Duration
	// MaxBytes bounds the memory of remembered names; what was not used for longest
	// goes first. Zero means 128 MiB, which is room for two to three million names.
	MaxBytes int64
	// Ahead is asked for the pages of a directory that its reader has not come to, nil
	// for the source of all others. A request that a reader comes to wait for is promoted:
	// see [oss.WithPromotion].
	Ahead oss.Lister
}

// withDefaults returns cfg with its zero fields set, or says what is wrong.
func (cfg LiveConfig) withDefaults() (LiveConfig, error) {
	switch {
	case cfg.Prefix != "" && !strings.HasSuffix(cfg.Prefix, "/"):
		return cfg, fmt.Errorf("prefix %q does not end with a slash", cfg.Prefix)
	case strings.HasPrefix(cfg.Prefix, ownPrefix):
		return cfg, fmt.Errorf("prefix %q: what is under %q is pailfs's own", cfg.Prefix, ownPrefix)
	case len(cfg.Prefix) > maxKey:
		return cfg, fmt.Errorf("prefix %.40q... has %d bytes, more than %d", cfg.Prefix, len(cfg.Prefix), maxKey)
	case cfg.TTL < 0:
		return cfg, fmt.Errorf("TTL %v is negative", cfg.TTL)
	case cfg.NegativeTTL < 0:
		return cfg, fmt.Errorf("negative TTL %v is negative", cfg.NegativeTTL)
	case cfg.MaxBytes < 0:
		return cfg, fmt.Errorf("memory for names of %d bytes is negative", cfg.MaxBytes)
	}
	if cfg.TTL == 0 {
		cfg.TTL = 60 * time.Second
	}
	if cfg.NegativeTTL == 0 {
		cfg.NegativeTTL = 5 * time.Second
	}
	cfg.NegativeTTL = min(cfg.NegativeTTL, cfg.TTL)
	if cfg.MaxBytes == 0 {
		cfg.MaxBytes = 128 << 20
	}
	return cfg, nil
}

// Live is the [Tree] over listings.
//
// What a page of a listing tells is kept as a run: a stretch of one directory in
// the order of keys, in which everything is known, also what is not there. A
// question that no run answers costs one request for a page, whose other names
// answer the questions that follow. Names that cannot be a path are shown as
// NAMES.md says.
type Live struct {
	cfg      LiveConfig
	source   Source
	log      *slog.Logger
	metrics  *metrics
	problems *problems

	// root ends when l is closed; every request's context derives from it.
	root    context.Context
	stop    context.CancelFunc
	running sync.WaitGroup

	// mu guards everything that is known, down to each directory and flight. It is
	// never held during a request.
	mu struct {
		sync.RWMutex
		closed bool
		// directories are by their prefix.
		directories map[string]*directory
		// bytes and entries are what they hold.
		bytes, entries int64
		// expiredAt is when what had expired was dropped last.
		expiredAt time.Time
	}
}

var _ Tree = (*Live)(nil)

// NewLive returns a tree over the keys of b that begin with cfg.Prefix. It must be
// closed.
func NewLive(cfg LiveConfig, b Source, reg prometheus.Registerer, log *slog.Logger) (*Live, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("configure names: %w", err)
	}
	if cfg.Ahead == nil {
		cfg.Ahead = b
	}
	l := &Live{cfg: cfg, source: b, log: log, problems: newProblems()}
	l.metrics, err = newMetrics(reg, func() float64 { return float64(l.problems.count()) })
	if err != nil {
		return nil, fmt.Errorf("register metrics of names: %w", err)
	}
	l.root, l.stop = context.WithCancel(context.Background())
	l.mu.directories = make(map[string]*directory)
	l.mu.expiredAt = time.Now()
	return l, nil
}

// Close stops the requests that run in the background and waits for them. Calls
// that wait for one, or would have to, fail with [fs.ErrClosed].
func (l *Live) Close() error {
	l.mu.Lock()
	l.mu.closed = true
	l.mu.Unlock()
	l.stop()
	l.running.Wait()
	return nil
}

// Lookup implements [Tree].
//
// It makes no request if the name, or its absence, is known. Else it makes one,
// or waits for one that is under way and will probably tell: for the first page
// of a directory of which nothing is known, or for the page that begins at the
// name. It makes a second one if that page does not reach the name, or does not
// reach from an object to where a directory of the same name would be.
func (l *Live) Lookup(ctx context.Context, dir, name string) (Entry, Validity, error) {
	component, beside, named := componentOf(name)
	prefix, shown := prefixOf(l.cfg.Prefix, dir)
	if !named || !shown || len(prefix)+len(component) > maxKey {
		// No key could ever be shown there.
		return Entry{}, Validity{}, fs.ErrNotExist
	}
	v := view{live: l, prefix: prefix, now: time.Now()}
	l.mu.RLock()
	v.d = l.mu.directories[prefix]
	a := v.lookup(name, component, beside)
	l.mu.RUnlock()
	if a.ok {
		l.metrics.known.Inc()
	} else {
		var err error
		if a, err = l.ask(ctx, &v, name, component, beside); err != nil {
			return Entry{}, Validity{}, err
		}
		l.metrics.asked.Inc()
	}
	if !a.found {
		return Entry{}, Validity(a.until), fs.ErrNotExist
	}
	return a.entry, Validity(a.until), nil
}

// ask answers a lookup with requests.
func (l *Live) ask(ctx context.Context, v *view, name, component string, beside bool) (answer, error) {
	for attempt := 0; ; attempt++ {
		l.mu.Lock()
		v.d = l.directory(v.prefix)
		a := v.lookup(name, component, beside)
		if a.ok {
			l.sweep(v.d)
			l.mu.Unlock()
			return a, nil
		}
		start := a.want
		if attempt == 0 && !v.d.large {
			start = ""
		}
		// Twice at most a page is tried that only probably tells: the directory's
		// first one, and one that others asked for. After that it is our own.
		var instead *flight
		if attempt < 2 {
			instead = v.d.nearest(a.want)
		}
		f, err := l.join(v.d, start, v.now, instead)
		l.mu.Unlock()
		if err != nil {
			return answer{}, err
		}
		if err := l.take(ctx, v, f); err != nil {
			return answer{}, err
		}
	}
}

// take waits for f and lets v use what it told.
func (l *Live) take(ctx context.Context, v *view, f *flight) error {
	r, err := l.wait(ctx, v.d, f)
	if err != nil {
		return err
	}
	v.own = append(v.own, r)
	return nil
}

// ReadDir implements [Tree]. The order is that of the keys.
//
// Entries come page by page; pages that follow are asked for ahead, see scout. What
// appears, disappears or changes its kind meanwhile may or may not be seen, but
// no name comes twice and none that stays is left out. limit must be positive.
func (l *Live) ReadDir(ctx context.Context, dir, after string, limit int) ([]Entry, Validity, error) {
	prefix, shown := prefixOf(l.cfg.Prefix, dir)
	if !shown {
		return nil, Validity{}, fs.ErrNotExist
	}
	p, ok := parseCursor(after)
	if !ok || limit <= 0 {
		return nil, Validity{}, fmt.Errorf("read directory %q after %q, %d entries: %w", dir, after, limit, fs.ErrInvalid)
	}
	v := view{live: l, prefix: prefix, now: time.Now()}
	l.mu.RLock()
	v.d = l.mu.directories[prefix]
	found := v.read(p.clone(), limit)
	l.mu.RUnlock()
	if !v.enough(&found) || found.isAhead {
		var err error
		if found, err = l.askMore(ctx, &v, p, limit); err != nil {
			return nil, Validity{}, err
		}
	}
	if len(v.own) > 0 {
		l.metrics.asked.Inc()
	} else {
		l.metrics.known.Inc()
	}
	if v.uninhabited(&found) && prefix != l.cfg.Prefix {
		return nil, Validity(v.uninhabitedUntil(&found)), fs.ErrNotExist
	}
	return found.entries, Validity(found.until), nil
}

// askMore answers a ReadDir with requests, and asks for the page after it.
func (l *Live) askMore(ctx context.Context, v *view, p position, limit int) (listing, error) {
	edges := 0
	for first := true; ; first = false {
		l.mu.Lock()
		v.d = l.directory(v.prefix)
		found := v.read(p.clone(), limit)
		if v.enough(&found) {
			if found.isAhead {
				l.lookAhead(v.d, found.ahead)
			}
			l.sweep(v.d)
			l.mu.Unlock()
			return found, nil
		}
		start := found.want
		switch {
		case first && !v.d.large:
			start = ""
		case found.probe != "" && edges > 0:
			// The page after did not tell whether the object is beside a directory.
			start = found.probe
		default:
			edges++
		}
		f, err := l.join(v.d, start, v.now, v.d.expected(start))
		if err != nil {
			l.mu.Unlock()
			return listing{}, err
		}
		d := v.d
		d.readers++
		if d.scout != nil && !f.ahead && f.waiters == 1 {
			d.scout.asked++ // it is new, and this reader's
		}
		if start != "" {
			l.scout(d, start)
		}
		l.mu.Unlock()
		err = l.take(ctx, v, f)
		l.mu.Lock()
		d.readers--
		l.mu.Unlock()
		if err != nil {
			return listing{}, err
		}
	}
}

// lookAhead asks for what a reader will want next, from the item start on. l.mu must be
// held.
func (l *Live) lookAhead(d *directory, start string) {
	if d.scout != nil {
		d.scout.from = start
		l.nextRound(d)
		if d.scout.out > 0 {
			return
		}
	}
	// It can only fail to begin because l is closed, which the reader will see.
	_, _ = l.launch(d, start, true)
}

// ReadLink implements [Tree]. The target of a symlink object is a key; the path is
// relative, so that it holds wherever the tree is mounted. A target outside the
// mounted prefix is [fs.ErrPermission].
func (l *Live) ReadLink(ctx context.Context, e Entry) (string, error) {
	if e.Kind != Symlink {
		return "", fmt.Errorf("read link %q: %w", e.Object.Key, fs.ErrInvalid)
	}
	target, err := l.source.SymlinkTarget(ctx, e.Object.Key)
	if err != nil {
		return "", fmt.Errorf("read link %q: %w", e.Object.Key, err)
	}
	path, err := linker{l.cfg.Prefix, l}.linkPath(ctx, e.Object.Key, target)
	if err != nil {
		return "", fmt.Errorf("read link %q to %q: %w", e.Object.Key, target, err)
	}
	return path, nil
}

// Problems implements [Tree]. A directory that cannot be shown counts once, for
// everything under it. Up to 65,536 keys are counted.
func (l *Live) Problems() Problems { return l.problems.report() }

// Forget drops what is known of name in dir, so that the next Lookup asks
// again. It is for callers that met [oss.ErrChanged] or [oss.ErrNotFound], and
// for those who changed the bucket themselves.
func (l *Live) Forget(dir, name string) {
	component, _, named := componentOf(name)
	prefix, shown := prefixOf(l.cfg.Prefix, dir)
	if !named || !shown {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.forget(l.mu.directories[prefix], component, component+"/")
	// A directory's own listing tells whether it exists by what is in it, its marker
	// among that.
	l.forget(l.mu.directories[prefix+component+"/"], "")
}

// forget drops items of d, which may be nil. l.mu must be held.
func (l *Live) forget(d *directory, items ...string) {
	if d == nil {
		return
	}
	for start, f := range d.flights {
		f.forgotten = true
		delete(d.flights, start)
	}
	l.change(d, func() {
		for _, item := range items {
			d.cut(item, afterItem(item), false)
		}
		d.settle(l.cfg.TTL)
	})
	l.sweep(d)
}
