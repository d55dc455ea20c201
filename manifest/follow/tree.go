package follow

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pailfs/pailfs/manifest"
	"github.com/pailfs/pailfs/manifest/publish"
	"github.com/pailfs/pailfs/oss"
)

// Bucket is what the tree asks of the object store.
type Bucket interface {
	oss.RangeReader
	oss.Stater
}

// Config says which manifest is followed. The zero value follows that of a whole
// bucket.
type Config struct {
	// Prefix is the mounted part of the bucket: "" or a key ending with a slash. Its
	// own manifest is followed.
	Prefix string
	// Bucket is its name: a manifest that was made of another one is refused. Empty
	// takes all.
	Bucket string
	// Dir keeps downloaded manifests, so that a restart need not download again. It is
	// made if missing, and belongs to this tree alone. "" keeps none: a downloaded
	// file loses its name as soon as it is open.
	Dir string
	// Poll is how often the bucket is asked for a newer generation; 0 means 30 s.
	Poll time.Duration
	// TTL is how long an answer of the bucket about one name is believed, NegativeTTL
	// that there is none; 0 means 60 s and 5 s.
	TTL, NegativeTTL time.Duration
	// CacheBytes bounds the memory of decoded blocks of a generation; 0 means the
	// manifest's default.
	CacheBytes int64
}

// withDefaults returns cfg with its zero fields set, or says what is wrong.
func (cfg Config) withDefaults() (Config, error) {
	switch {
	case cfg.Prefix != "" && !strings.HasSuffix(cfg.Prefix, "/"):
		return cfg, fmt.Errorf("prefix %q does not end with a slash", cfg.Prefix)
	case cfg.Poll < 0, cfg.TTL < 0, cfg.NegativeTTL < 0:
		return cfg, fmt.Errorf("negative time: poll %v, TTL %v, negative TTL %v", cfg.Poll, cfg.TTL, cfg.NegativeTTL)
	}
	if cfg.Poll == 0 {
		cfg.Poll = 30 * time.Second
	}
	if cfg.TTL == 0 {
		cfg.TTL = time.Minute
	}
	if cfg.NegativeTTL == 0 {
		cfg.NegativeTTL = 5 * time.Second
	}
	return cfg, nil
}

// Tree is the [manifest.Tree] over the newest published generation. What it says
// holds until the next step, of which [Tree.Next] tells.
type Tree struct {
	cfg     Config
	bucket  Bucket
	log     *slog.Logger
	metrics *metrics
	suspect suspects

	// now is the generation that answers; the tree holds it.
	now atomic.Pointer[generation]
	// stepped has something when now has changed.
	stepped chan struct{}

	mu struct {
		sync.Mutex
		// told is the generation that Next spoke of last; the tree holds it too.
		told *generation
		// refused is a generation that was found damaged, and is not tried until
		// refusedUntil.
		refused      publish.Generation
		refusedUntil time.Time
		status       Status
	}
}

var _ manifest.Tree = (*Tree)(nil)

// Open downloads the newest generation, if it is not in cfg.Dir, and opens it. It
// fails with [publish.ErrNone] if none is published. The tree must be closed, and
// learns of later generations only while [Tree.Run] runs.
func Open(ctx context.Context, cfg Config, b Bucket, reg prometheus.Registerer, log *slog.Logger) (*Tree, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("configure the followed manifest: %w", err)
	}
	t := &Tree{cfg: cfg, bucket: b, log: log, stepped: make(chan struct{}, 1)}
	newest, err := publish.Latest(ctx, b, cfg.Prefix)
	if err != nil {
		return nil, err
	}
	log.Info("opening the manifest", "generation", newest.Number, "objects", newest.Objects, "bytes", newest.Object.Size)
	first, err := t.fetch(ctx, newest)
	if err != nil {
		return nil, err
	}
	if t.metrics, err = newMetrics(reg, t); err != nil {
		first.release()
		return nil, fmt.Errorf("register metrics of the followed manifest: %w", err)
	}
	first.hold()
	t.now.Store(first)
	t.mu.told = first
	t.mu.status.Taken = time.Now()
	return t, nil
}

// fetch makes g ready to answer. The caller holds it.
func (t *Tree) fetch(ctx context.Context, g publish.Generation) (*generation, error) {
	snapshot, err := Fetch(ctx, t.cfg, t.bucket, g)
	if err != nil {
		return nil, err
	}
	return newGeneration(g, snapshot, func(err error) {
		t.log.Warn("closing a manifest failed", "generation", g.Number, "err", err)
	}), nil
}

// Fetch downloads g, if it is not in cfg.Dir, and opens it. The snapshot must be
// closed. Of other generations it leaves none in cfg.Dir.
func Fetch(ctx context.Context, cfg Config, b Bucket, g publish.Generation) (*manifest.Snapshot, error) {
	path, forget, err := download(ctx, b, g, cfg.Dir)
	if err != nil {
		return nil, err
	}
	defer forget()
	open := func() (*manifest.Snapshot, error) {
		return manifest.OpenSnapshot(path, manifest.SnapshotConfig{Prefix: cfg.Prefix, Bucket: cfg.Bucket, CacheBytes: cfg.CacheBytes, Links: b})
	}
	snapshot, err := open()
	if errors.Is(err, manifest.ErrDamaged) && cfg.Dir != "" {
		// It may have been damaged here, since it was downloaded and checked.
		if err := os.Remove(path); err != nil {
			return nil, fmt.Errorf("remove a damaged manifest: %w", err)
		}
		if _, err := publish.Fetch(ctx, b, g, cfg.Dir, nil); err != nil {
			return nil, err
		}
		snapshot, err = open()
	}
	if err != nil {
		return nil, fmt.Errorf("open generation %d: %w", g.Number, err)
	}
	if cfg.Dir != "" {
		if err := publish.Prune(cfg.Dir, g); err != nil {
			return nil, errors.Join(err, snapshot.Close())
		}
	}
	return snapshot, nil
}

// download returns the path of g's file. forget must be called when it is open: it
// removes the file where none are kept.
func download(ctx context.Context, b oss.RangeReader, g publish.Generation, dir string) (path string, forget func(), err error) {
	forget = func() {}
	if dir == "" {
		if dir, err = os.MkdirTemp("", "pailfs-manifest-"); err != nil {
			return "", nil, fmt.Errorf("download generation %d: %w", g.Number, err)
		}
		forget = func() { _ = os.RemoveAll(dir) } // it is in the directory for what is not needed
	}
	path, err = publish.Fetch(ctx, b, g, dir, nil)
	if err != nil {
		forget()
		return "", nil, err
	}
	return path, forget, nil
}

// Close lets go of the manifests. Run must have returned, and no call may follow.
func (t *Tree) Close() error {
	t.now.Load().release()
	t.mu.Lock()
	t.mu.told.release()
	t.mu.Unlock()
	t.metrics.unregister()
	return nil
}

// current returns the generation that answers now. It must be released.
func (t *Tree) current() *generation {
	for {
		if g := t.now.Load(); g.hold() {
			return g
		}
	}
}

// Lookup implements [manifest.Tree]. It makes no request unless name was
// forgotten.
func (t *Tree) Lookup(ctx context.Context, dir, name string) (manifest.Entry, manifest.Validity, error) {
	g := t.current()
	defer g.release()
	e, valid, err := g.snapshot.Lookup(ctx, dir, name)
	if (err == nil || errors.Is(err, fs.ErrNotExist)) && t.suspect.any() {
		if s := t.suspect.find(dir, name); s != nil {
			return t.ask(ctx, s, e)
		}
	}
	return e, valid, err
}

// ReadDir implements [manifest.Tree].
func (t *Tree) ReadDir(ctx context.Context, dir, after string, limit int) ([]manifest.Entry, manifest.Validity, error) {
	g := t.current()
	defer g.release()
	for {
		entries, valid, err := g.snapshot.ReadDir(ctx, dir, after, limit)
		if err != nil || len(entries) == 0 || !t.suspect.any() {
			return entries, valid, err
		}
		after = entries[len(entries)-1].Cursor
		if entries, valid = t.suspect.correct(dir, entries, valid); len(entries) > 0 {
			return entries, valid, nil
		}
	}
}

// ReadLink implements [manifest.Tree].
func (t *Tree) ReadLink(ctx context.Context, e manifest.Entry) (string, error) {
	g := t.current()
	defer g.release()
	return g.snapshot.ReadLink(ctx, e)
}

// Problems implements [manifest.Tree].
func (t *Tree) Problems() manifest.Problems {
	g := t.current()
	defer g.release()
	return g.snapshot.Problems()
}

// Next waits until the tree answers from a later generation than that of which the
// last call told, and returns the step. It fails only with the error of ctx. It is
// for one caller, who is done with one step before it asks for the next.
func (t *Tree) Next(ctx context.Context) (*manifest.Swap, error) {
	for {
		if s := t.step(); s != nil {
			return s, nil
		}
		select {
		case <-t.stepped:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// step returns the step from what was told last to now, nil if there is none.
func (t *Tree) step() *manifest.Swap {
	t.mu.Lock()
	defer t.mu.Unlock()
	before, after := t.mu.told, t.current()
	if before == after {
		after.release()
		return nil
	}
	after.hold()
	t.mu.told = after
	return &manifest.Swap{Before: before.snapshot, After: after.snapshot, Done: func() {
		before.release()
		after.release()
	}}
}
