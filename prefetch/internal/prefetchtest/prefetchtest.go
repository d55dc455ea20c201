package prefetchtest

import (
	"context"
	"errors"
	"fmt"
	iofs "io/fs"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pailfs/pailfs/cache"
	"github.com/pailfs/pailfs/manifest"
	"github.com/pailfs/pailfs/oss"
	"github.com/pailfs/pailfs/prefetch/rights"
	"github.com/pailfs/pailfs/prefetch/session"
)

// Cache takes a moment to fetch, keeps what it was given until it is evicted,
// and counts holds.
type Cache struct {
	limit int64

	mu       sync.Mutex
	delay    time.Duration
	there    map[oss.Object]bool
	held     map[oss.Object]int
	fetches  []string
	inFlight int
	most     int
	Fail     map[string]error
	broken   uint64
	accesses chan oss.Object
}

// NewCache returns a cache with an SSD tier of so many bytes.
func NewCache(limit int64) *Cache {
	return &Cache{
		limit: limit, delay: 10 * time.Millisecond, there: map[oss.Object]bool{}, held: map[oss.Object]int{},
		Fail: map[string]error{}, accesses: make(chan oss.Object, 1024),
	}
}

// Fetch takes a while and fails if it was told to.
func (c *Cache) Fetch(ctx context.Context, o oss.Object) error {
	c.mu.Lock()
	if c.there[o] {
		c.mu.Unlock()
		return nil
	}
	c.fetches = append(c.fetches, o.Key)
	c.inFlight++
	c.most = max(c.most, c.inFlight)
	err, delay := c.Fail[o.Key], c.delay
	c.mu.Unlock()
	if delay > 0 {
		select {
		case <-time.After(delay):
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.inFlight--
	if err == nil {
		c.there[o] = true
	}
	return err
}

// Hold counts.
func (c *Cache) Hold(o oss.Object) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.held[o]++
}

// Unhold ends what Hold began.
func (c *Cache) Unhold(o oss.Object, _ bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.held[o]--; c.held[o] == 0 {
		delete(c.held, o)
	}
}

// Lose takes an object away though it is held.
func (c *Cache) Lose(o oss.Object) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.there, o)
	c.broken++
}

// HoldsBroken tells how many objects were lost.
func (c *Cache) HoldsBroken() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.broken
}

// Evict takes an object away that is not held.
func (c *Cache) Evict(o oss.Object) (int64, error) {
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

// Residency tells whether an object is there, as a whole.
func (c *Cache) Residency(o oss.Object) cache.Residency {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.there[o] {
		return cache.Residency{SSD: o.Size, Whole: true}
	}
	return cache.Residency{}
}

// Accesses returns what [Cache.Access] was told.
func (c *Cache) Accesses() <-chan oss.Object { return c.accesses }

// Access plays an open of a file.
func (c *Cache) Access(o oss.Object) {
	c.accesses <- o
	time.Sleep(time.Millisecond)
}

// Stats tells of a large memory and of the SSD tier.
func (c *Cache) Stats() cache.Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	used := int64(0)
	for o := range c.there {
		used += cache.Cost(o)
	}
	return cache.Stats{Memory: cache.MemoryStats{Limit: 1 << 30}, SSD: &cache.SSDStats{Limit: c.limit, Used: used}}
}

// Flights returns how many were on their way at most, and are now.
func (c *Cache) Flights() (most, now int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.most, c.inFlight
}

// Slow makes the fetches that begin from now on take that long; 0 is no time at all.
func (c *Cache) Slow(delay time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.delay = delay
}

// Fetched returns the keys that were fetched, in order.
func (c *Cache) Fetched() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.fetches)
}

// Count returns how many objects were fetched, and how many are held.
func (c *Cache) Count() (fetches, held int) {
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

// Names returns n file names of a folder.
func Names(folder string, n int) []string {
	var all []string
	for i := range n {
		all = append(all, fmt.Sprintf("%s/%04d", folder, i))
	}
	return all
}

// Tree is a tree of files by path.
type Tree map[string]oss.Object

// NewTree returns a tree of files of one size.
func NewTree(size int64, paths ...string) Tree {
	tree := Tree{}
	for _, p := range paths {
		tree[p] = oss.Object{Key: "data/" + p, ETag: "E", Size: size}
	}
	return tree
}

// Lookup implements [manifest.Tree].
func (f Tree) Lookup(_ context.Context, dir, name string) (manifest.Entry, manifest.Validity, error) {
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

// ReadDir implements [manifest.Tree].
func (f Tree) ReadDir(_ context.Context, dir, after string, limit int) ([]manifest.Entry, manifest.Validity, error) {
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

// ReadLink implements [manifest.Tree].
func (f Tree) ReadLink(context.Context, manifest.Entry) (string, error) {
	return "", iofs.ErrInvalid
}

// Problems implements [manifest.Tree].
func (f Tree) Problems() manifest.Problems { return manifest.Problems{} }

// Rights are those to the names of a tree without links.
type Rights struct {
	Names manifest.Tree
	// Denied, if set, says of a path that somebody may not read it.
	Denied func(who session.Who, path string) bool
	// Barred, if set, says of a path that the bucket lets nobody look it up or list it. Of
	// root's rights nothing has to be looked up.
	Barred func(path string) bool
	// Away, if set, says whether the store does not answer at present, without which
	// nothing can be told to anybody but root.
	Away *atomic.Bool
}

// page is how many names are listed at once.
const page = 512

var errAway = errors.New("dial tcp: connection refused")

var _ rights.Rights = Rights{}

// Open implements [rights.Rights].
func (r Rights) Open(ctx context.Context, who session.Who, name string) (rights.Found, error) {
	if err := r.Refused(ctx, who, name); err != nil || name == "" {
		return rights.Found{Directory: true}, err
	}
	dir, base := path.Split(name)
	dir = strings.TrimSuffix(dir, "/")
	e, _, err := r.Names.Lookup(ctx, dir, base)
	return r.found(who, dir, e), errors.Join(r.bar(name), err)
}

// bar is what the bucket answers.
func (r Rights) bar(name string) error {
	if r.Barred != nil && r.Barred(name) {
		return fmt.Errorf("list %q: %w", name, oss.ErrAccessDenied)
	}
	return nil
}

// ReadDir implements [rights.Rights].
func (r Rights) ReadDir(ctx context.Context, who session.Who, dir, after string) ([]rights.Found, error) {
	entries, _, err := r.Names.ReadDir(ctx, dir, after, page)
	all := make([]rights.Found, len(entries))
	for i, e := range entries {
		all[i] = r.found(who, dir, e)
	}
	return all, errors.Join(r.Refused(ctx, who, dir), r.bar(dir), err)
}

// Refused implements [rights.Rights].
func (r Rights) Refused(_ context.Context, who session.Who, name string) error {
	switch {
	case r.Away != nil && r.Away.Load() && !who.IsRoot():
		return errAway
	case r.Denied != nil && r.Denied(who, name):
		return iofs.ErrPermission
	case !who.IsRoot():
		return r.bar(name)
	}
	return nil
}

// Keep implements [rights.Rights].
func (r Rights) Keep(ctx context.Context, who session.Who, name string) error {
	return r.Refused(ctx, who, name)
}

func (r Rights) found(who session.Who, dir string, e manifest.Entry) rights.Found {
	f := rights.Found{Path: join(dir, e.Name), Cursor: e.Cursor, Directory: e.Kind == manifest.Directory, Object: e.Object}
	if err := r.Refused(context.Background(), who, f.Path); err != nil {
		f.Object, f.Err = oss.Object{}, err
	}
	return f
}
