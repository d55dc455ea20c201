package cache

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pailfs/pailfs/cache/internal/content"
	"github.com/pailfs/pailfs/cache/internal/disk"
	"github.com/pailfs/pailfs/oss"
)

// Cache returns bytes of object versions. It is safe for concurrent use.
type Cache struct {
	bucket           string
	demand, prefetch oss.RangeReader
	log              *slog.Logger
	metrics          *metrics
	begun            time.Time

	objects objects
	ahead   aheadObjects
	memory  *memoryTier
	ssd     *ssdTier // nil if there is none
	notes   notes
	reads   atomic.Uint64
	never   func(key string) bool
	// accesses are what was opened, for whoever wants to know.
	accesses chan oss.Object

	// ctx ends when the cache is closed. It is the life of the flights, which
	// outlive the calls that started them.
	ctx   context.Context
	stop  context.CancelFunc
	loops sync.WaitGroup

	mu struct {
		sync.Mutex
		closed  bool
		flights sync.WaitGroup
	}
}

// Open prepares the tiers that cfg describes. Reads that somebody waits for go to
// demand, others to prefetch. reg and log may be nil.
//
// Errors that say what is wrong with cfg.Dir are [ErrDirInUse], [ErrDirForeign],
// [ErrDirVersion] and [ErrNoSpace].
func Open(cfg Config, demand, prefetch oss.RangeReader, reg prometheus.Registerer, log *slog.Logger) (*Cache, error) {
	return open(cfg, demand, prefetch, reg, log, func(dir string) (disk.FileSystem, error) { return disk.OpenLocal(dir) })
}

// open is Open on a file system of the caller's.
func open(cfg Config, demand, prefetch oss.RangeReader, reg prometheus.Registerer, log *slog.Logger,
	files func(dir string) (disk.FileSystem, error),
) (*Cache, error) {
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("open cache: %w", err)
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	if cfg.Memory == 0 {
		cfg.Memory = defaultMemory("/")
	}
	c := &Cache{
		bucket: cfg.Bucket, demand: demand, prefetch: prefetch, log: log,
		metrics: new(metrics), begun: time.Now(), never: cfg.Never,
	}
	if cfg.Track > 0 {
		c.accesses = make(chan oss.Object, cfg.Track)
	}
	c.ctx, c.stop = context.WithCancel(context.Background())
	var err error
	if c.memory, err = openMemory(cfg.Memory); err != nil {
		return nil, err
	}
	if cfg.Dir != "" {
		if err := c.openSSD(cfg, files); err != nil {
			c.stop()
			c.memory.close()
			return nil, err
		}
	}
	c.loops.Go(c.runMemory)
	if err := c.metrics.register(reg, c); err != nil {
		return nil, errors.Join(fmt.Errorf("register metrics: %w", err), c.Close())
	}
	return c, nil
}

func (c *Cache) openSSD(cfg Config, files func(dir string) (disk.FileSystem, error)) error {
	fsys, err := files(cfg.Dir)
	if err != nil {
		return fmt.Errorf("open cache directory: %w", err)
	}
	c.ssd, err = openSSD(cfg, queueLimit(c.memory.limit), fsys, c)
	return err
}

// queueLimit is how many bytes may wait to be written to SSD: half of the memory.
// A burst that is shorter than that reaches SSD whole however slow the disk is, and
// readers who need the memory take it back.
func queueLimit(memory int64) int64 { return memory / 2 }

// Open pins the version obj in the cache until the handle is closed. It makes no
// request and does no I/O.
func (c *Cache) Open(obj oss.Object) (*Handle, error) {
	o, err := c.object(obj)
	if err != nil {
		return nil, err
	}
	o.openHandle()
	if c.ssd != nil {
		c.ssd.residents.Opened(o.id)
	}
	if c.accesses != nil {
		select {
		case c.accesses <- obj:
		default: // whoever reads them has enough to do
		}
	}
	return &Handle{object: o, version: obj, lives: o.lives.Load()}, nil
}

// Accesses returns a queue of the objects that are opened, in order. It belongs to
// one reader. When that is slow, accesses are left out. Nil without Config.Track.
func (c *Cache) Accesses() <-chan oss.Object { return c.accesses }

// object returns the record of obj with a reference.
func (c *Cache) object(obj oss.Object) (*object, error) {
	if obj.Size < 0 {
		return nil, fmt.Errorf("open %q: size %d: %w", obj.Key, obj.Size, oss.ErrInvalid)
	}
	if err := c.closed(); err != nil {
		return nil, err
	}
	return c.objects.get(c, content.Identify(c.bucket, obj), obj), nil
}

// Fetch brings the whole of obj onto SSD in the prefetch class, protects it from
// eviction until it was opened or released, and returns when it is there. It
// blocks while the room is taken by what is open or was fetched and not yet used;
// that is the backpressure. Without an SSD tier it goes through memory, which may
// keep it.
//
// Errors are those of [oss.RangeReader], [ErrNoSpace] for an object that is too
// large, [ErrNever] for one that is not to be kept, and [ErrUnavailable] while the
// disk takes nothing.
func (c *Cache) Fetch(ctx context.Context, obj oss.Object) error {
	o, err := c.object(obj)
	if err != nil {
		return err
	}
	defer o.release()
	if o.never {
		return fmt.Errorf("fetch %q: %w", obj.Key, ErrNever)
	}
	return o.fetch(ctx)
}

// Release says that nobody will read obj soon: it is the next to be evicted.
func (c *Cache) Release(obj oss.Object) {
	id := content.Identify(c.bucket, obj)
	if c.ssd != nil {
		c.ssd.residents.Release(id)
	}
	if o := c.objects.find(id); o != nil {
		c.dropKept(o)
		o.release()
	}
}

// dropKept removes from memory what is kept of an object that nobody has open.
func (c *Cache) dropKept(o *object) {
	o.mu.Lock()
	var kept []*extent
	for _, seg := range o.mu.segments {
		if seg == nil || o.mu.handles > 0 {
			continue
		}
		for _, e := range seg.extents {
			if e.holds&heldKept != 0 {
				e.acquire()
				kept = append(kept, e)
			}
		}
	}
	o.mu.Unlock()
	for _, e := range kept {
		c.memory.drop(e)
		e.release()
	}
}

// Residency says how much of obj the tiers hold.
func (c *Cache) Residency(obj oss.Object) Residency {
	o, err := c.object(obj)
	if err != nil {
		return Residency{}
	}
	defer o.release()
	c.ssd.load(o)
	o.mu.Lock()
	defer o.mu.Unlock()
	var r Residency
	for i, seg := range o.mu.segments {
		if seg == nil {
			continue
		}
		for _, e := range seg.extents {
			if e.flight == nil {
				r.Memory += o.geometry.Length(e.span)
			}
		}
		for block, n := 0, o.geometry.Blocks(i); block < n; {
			stop := seg.disk.Run(block, n)
			if seg.disk.Has(block) {
				r.SSD += o.geometry.Length(content.Span{Segment: i, First: block, End: stop})
			}
			block = stop
		}
	}
	r.Whole = c.ssd != nil && r.SSD == obj.Size
	return r
}

// MakeRoom evicts from SSD until bytes have been freed or nothing more can be,
// whatever was fetched and not used yet, and returns how many were. For half a
// minute the cache does not take that room again.
func (c *Cache) MakeRoom(bytes int64) (freed int64) {
	return c.ssd.makeRoom(c.ctx, bytes)
}

// Close stops everything that the cache runs: what is in flight is abandoned, what
// waits to be written to SSD is, and the index is brought up to date. Handles must
// have been closed and views released.
func (c *Cache) Close() error {
	c.mu.Lock()
	closed := c.mu.closed
	c.mu.closed = true
	c.mu.Unlock()
	if closed {
		return errClosed
	}
	c.stop()
	c.mu.flights.Wait()
	c.loops.Wait()
	c.settleIdle(0, c.memory.limit)
	err := c.ssd.drain()
	if leaked := c.memory.close(); leaked > 0 {
		c.log.Warn("closed the cache while its bytes were in use", "bytes", leaked)
	}
	return err
}

// closed returns errClosed once Close was called.
func (c *Cache) closed() error {
	if c.ctx.Err() != nil {
		return errClosed
	}
	return nil
}

// now is the time since the cache was opened.
func (c *Cache) now() time.Duration { return time.Since(c.begun) }

// launch starts flights.
func (c *Cache) launch(flights []*flight) {
	if len(flights) == 0 {
		return
	}
	for _, f := range flights {
		if !c.beginFlight() {
			f.settle(c.ctx, oss.RangeResult{}, errClosed)
			continue
		}
		go func() {
			defer c.mu.flights.Done()
			f.run(c.ctx)
		}()
	}
}

// beginFlight counts a flight, for which Close waits, unless the cache was closed.
func (c *Cache) beginFlight() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.mu.closed {
		c.mu.flights.Add(1)
	}
	return !c.mu.closed
}

// discard throws away an object whose content is wrong.
func (c *Cache) discard(o *object, waste leftovers, why error) {
	c.metrics.corrupted.Add(1)
	c.log.Error("object is corrupted, nothing of it is kept", "key", o.oss.Key, "etag", o.oss.ETag, "error", why)
	for _, e := range waste.extents {
		c.memory.drop(e)
		e.release()
	}
	if waste.file != nil {
		waste.file.Release()
	}
	c.ssd.discard(o)
}

const (
	// settleEvery is how often the cache looks for memory that is held in vain.
	settleEvery = time.Second
	// coolEvery is for how long nobody must have needed a free buffer until its memory is given
	// back, and at most twice that.
	coolEvery = 10 * time.Second
	// settleAfter is how long a reader may pause before what was fetched ahead of it
	// is let go because others would like to fetch, and settleSoon before it is
	// because a reader waits.
	settleAfter = 2 * time.Second
	settleSoon  = 20 * time.Millisecond
)

// runMemory gives memory back that is held in vain, when somebody wants it.
func (c *Cache) runMemory() {
	tick := time.NewTicker(settleEvery)
	defer tick.Stop()
	cool := time.NewTicker(coolEvery)
	defer cool.Stop()
	var soon <-chan time.Time
	for {
		pressed := false
		select {
		case <-c.ctx.Done():
			return
		case <-tick.C:
		case <-cool.C:
			c.memory.pool.coolIdle()
		case <-soon:
		case <-c.memory.wakeup:
			pressed = true
		}
		urgentBytes, patientBytes := c.memory.budget.wanted()
		wanted := urgentBytes + patientBytes
		if pressed {
			wanted = max(wanted, maxRanges*content.SegmentSize) // readahead does not wait
		}
		c.memory.shrink(urgentBytes)
		c.ssd.shed(urgentBytes, pressed)
		after := settleAfter
		soon = nil
		if urgentBytes > 0 {
			// Those who hold the rest may just have been active: look again soon.
			after, soon = settleSoon, time.After(settleSoon)
		}
		c.settleIdle(after, wanted)
	}
}

// settleIdle lets go of what was fetched for readers who have been idle for that
// long, the longest first, until that many bytes are free.
func (c *Cache) settleIdle(after time.Duration, bytes int64) {
	idle := c.ahead.idle(after)
	slices.SortFunc(idle, func(a, b *object) int { return cmp.Compare(a.lastRead.Load(), b.lastRead.Load()) })
	for _, o := range idle {
		if bytes > 0 {
			bytes -= o.settle()
		}
		o.release()
	}
}
