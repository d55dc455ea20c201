package prefetch

import (
	"context"
	"errors"
	"fmt"
	iofs "io/fs"
	"log/slog"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pailfs/pailfs/cache"
	"github.com/pailfs/pailfs/manifest"
	"github.com/pailfs/pailfs/oss"
	"github.com/pailfs/pailfs/prefetch/rights"
	"github.com/pailfs/pailfs/prefetch/session"
)

// fakeCache takes a moment to fetch, keeps what it was given until it is evicted,
// and counts holds.
type fakeCache struct {
	limit int64

	mu       sync.Mutex
	delay    time.Duration
	there    map[oss.Object]bool
	held     map[oss.Object]int
	fetches  []string
	inFlight int
	most     int
	fail     map[string]error
	broken   uint64
	accesses chan oss.Object
}

func newFakeCache(limit int64) *fakeCache {
	return &fakeCache{
		limit: limit, delay: 10 * time.Millisecond, there: map[oss.Object]bool{}, held: map[oss.Object]int{},
		fail: map[string]error{}, accesses: make(chan oss.Object, 1024),
	}
}

func (c *fakeCache) Fetch(ctx context.Context, o oss.Object) error {
	c.mu.Lock()
	if c.there[o] {
		c.mu.Unlock()
		return nil
	}
	c.fetches = append(c.fetches, o.Key)
	c.inFlight++
	c.most = max(c.most, c.inFlight)
	err, delay := c.fail[o.Key], c.delay
	c.mu.Unlock()
	select {
	case <-time.After(delay):
	case <-ctx.Done():
		err = ctx.Err()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.inFlight--
	if err == nil {
		c.there[o] = true
	}
	return err
}

func (c *fakeCache) Hold(o oss.Object) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.held[o]++
}

func (c *fakeCache) Unhold(o oss.Object, _ bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.held[o]--; c.held[o] == 0 {
		delete(c.held, o)
	}
}

// lose takes an object away though it is held.
func (c *fakeCache) lose(o oss.Object) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.there, o)
	c.broken++
}

func (c *fakeCache) HoldsBroken() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.broken
}

func (c *fakeCache) Evict(o oss.Object) (int64, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.held[o] > 0 {
		return 0, cache.ErrHeld
	}
	if !c.there[o] {
		return 0, nil
	}
	delete(c.there, o)
	return o.Size, nil
}

func (c *fakeCache) Residency(o oss.Object) cache.Residency {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.there[o] {
		return cache.Residency{SSD: o.Size, Whole: true}
	}
	return cache.Residency{}
}

func (c *fakeCache) Accesses() <-chan oss.Object { return c.accesses }

func (c *fakeCache) Stats() cache.Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	used := int64(0)
	for o := range c.there {
		used += cache.Cost(o)
	}
	return cache.Stats{Memory: cache.MemoryStats{Limit: 1 << 30}, SSD: &cache.SSDStats{Limit: c.limit, Used: used}}
}

// flights returns how many were on their way at most, and are now.
func (c *fakeCache) flights() (most, now int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.most, c.inFlight
}

// slow makes the fetches that begin from now on take longer.
func (c *fakeCache) slow(delay time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.delay = delay
}

func (c *fakeCache) fetched() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.fetches)
}

func (c *fakeCache) count() (fetches, held int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.fetches), len(c.held)
}

// join appends name to the path of a directory.
func join(dir, name string) string {
	if dir == "" {
		return name
	}
	return dir + "/" + name
}

// fakeTree is a tree of files by path.
type fakeTree map[string]oss.Object

func newFakeTree(size int64, paths ...string) fakeTree {
	tree := fakeTree{}
	for _, p := range paths {
		tree[p] = oss.Object{Key: "data/" + p, ETag: "E", Size: size}
	}
	return tree
}

func (f fakeTree) Lookup(_ context.Context, dir, name string) (manifest.Entry, manifest.Validity, error) {
	full := join(dir, name)
	if o, ok := f[full]; ok {
		return manifest.Entry{Name: name, Kind: manifest.File, Object: o}, manifest.Validity{}, nil
	}
	for p := range f {
		if strings.HasPrefix(p, full+"/") {
			return manifest.Entry{Name: name, Kind: manifest.Directory}, manifest.Validity{}, nil
		}
	}
	return manifest.Entry{}, manifest.Validity{}, iofs.ErrNotExist
}

func (f fakeTree) ReadDir(_ context.Context, dir, after string, limit int) ([]manifest.Entry, manifest.Validity, error) {
	found := map[string]manifest.Entry{}
	for p, o := range f {
		rest, ok := p, true
		if dir != "" {
			rest, ok = strings.CutPrefix(p, dir+"/")
		}
		if !ok {
			continue
		}
		name, _, deeper := strings.Cut(rest, "/")
		e := manifest.Entry{Name: name, Kind: manifest.File, Object: o, Cursor: name}
		if deeper {
			e.Kind, e.Object = manifest.Directory, oss.Object{}
		}
		if name > after {
			found[name] = e
		}
	}
	var entries []manifest.Entry
	for _, e := range found {
		entries = append(entries, e)
	}
	slices.SortFunc(entries, func(a, b manifest.Entry) int { return strings.Compare(a.Name, b.Name) })
	return entries[:min(len(entries), limit)], manifest.Validity{}, nil
}

func (f fakeTree) ReadLink(context.Context, manifest.Entry) (string, error) {
	return "", iofs.ErrInvalid
}

func (f fakeTree) Problems() manifest.Problems { return manifest.Problems{} }

// fakeRights are those to the names of a tree without links.
type fakeRights struct {
	manifest.Tree
	// denied, if set, says of a path that somebody may not read it.
	denied func(who session.Who, path string) bool
	// barred, if set, says of a path that the bucket lets nobody look it up or list it. Of
	// root's rights nothing has to be looked up.
	barred func(path string) bool
	// away, if set, says whether the store does not answer at present, without which
	// nothing can be told to anybody but root.
	away *atomic.Bool
}

var errAway = errors.New("dial tcp: connection refused")

var _ rights.Rights = fakeRights{}

func (r fakeRights) Open(ctx context.Context, who session.Who, name string) (rights.Found, error) {
	if err := r.Refused(ctx, who, name); err != nil || name == "" {
		return rights.Found{Directory: true}, err
	}
	dir, base := path.Split(name)
	dir = strings.TrimSuffix(dir, "/")
	e, _, err := r.Lookup(ctx, dir, base)
	return r.found(who, dir, e), errors.Join(r.bar(name), err)
}

// bar is what the bucket answers.
func (r fakeRights) bar(name string) error {
	if r.barred != nil && r.barred(name) {
		return fmt.Errorf("list %q: %w", name, oss.ErrAccessDenied)
	}
	return nil
}

func (r fakeRights) ReadDir(ctx context.Context, who session.Who, dir, after string) ([]rights.Found, error) {
	entries, _, err := r.Tree.ReadDir(ctx, dir, after, pageSize)
	page := make([]rights.Found, len(entries))
	for i, e := range entries {
		page[i] = r.found(who, dir, e)
	}
	return page, errors.Join(r.Refused(ctx, who, dir), r.bar(dir), err)
}

func (r fakeRights) Refused(_ context.Context, who session.Who, name string) error {
	switch {
	case r.away != nil && r.away.Load() && !who.IsRoot():
		return errAway
	case r.denied != nil && r.denied(who, name):
		return iofs.ErrPermission
	case !who.IsRoot():
		return r.bar(name)
	}
	return nil
}

func (r fakeRights) Keep(ctx context.Context, who session.Who, name string) error {
	return r.Refused(ctx, who, name)
}

func (r fakeRights) found(who session.Who, dir string, e manifest.Entry) rights.Found {
	f := rights.Found{Path: join(dir, e.Name), Cursor: e.Cursor, Directory: e.Kind == manifest.Directory, Object: e.Object}
	if err := r.Refused(context.Background(), who, f.Path); err != nil {
		f.Object, f.Err = oss.Object{}, err
	}
	return f
}

// running starts a prefetcher and returns what stops it.
func running(t *testing.T, cfg Config, tree manifest.Tree, c Cache) (*Prefetcher, func()) {
	t.Helper()
	return runningWith(t, cfg, tree, c, nil)
}

// runningWith is running with a log.
func runningWith(t *testing.T, cfg Config, tree manifest.Tree, c Cache, log *slog.Logger) (*Prefetcher, func()) {
	t.Helper()
	if cfg.Rights == nil {
		cfg.Rights = fakeRights{Tree: tree}
	}
	p, err := New(cfg, tree, c, nil, log)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	return p, func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}
