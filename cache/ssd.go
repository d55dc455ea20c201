package cache

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/pailfs/pailfs/cache/internal/content"
	"github.com/pailfs/pailfs/cache/internal/disk"
	"github.com/pailfs/pailfs/cache/internal/eviction"
	"github.com/pailfs/pailfs/cache/internal/index"
)

// ssdTier keeps object versions in sparse files, one each, and remembers in an
// index which blocks they hold. Its methods may be called on nil, which is a tier
// that holds nothing.
//
// What is written, what was synced and what the index says differ:
//
//	indexed ⊆ synced ⊆ written
//
// holds at every moment, so that whatever the index says after a crash is there.
// What was written and not indexed is lost with the process, no more. And nothing
// that an earlier process wrote is returned before its checksum was compared.
//
// The work is that of its parts: writer fills the files, files opens, reads and checks them,
// verifier checks whole ones ahead of need, indexer makes durable and remembers, evictor makes
// room. What SSD has of one version is in that object's diskState, under object.mu. Of the
// locks of the parts indexer.storing is taken before that one; indexer.dirty, and those
// within residents, health and the writer's queue, after it.
type ssdTier struct {
	dir       string
	directory *disk.Directory
	fs        disk.FileSystem
	residents *eviction.Residents
	health    *disk.Health
	log       *slog.Logger
	metrics   *metrics

	files    *objectFiles
	writer   *writeBehind
	indexer  *indexer
	evictor  *evictor
	verifier *verifier

	stop  context.CancelFunc
	loops sync.WaitGroup
}

// openSSD opens the tier of c in cfg.Dir.
func openSSD(cfg Config, queueBytes int64, files disk.FileSystem, c *Cache) (*ssdTier, error) {
	dir, err := disk.OpenDirectory(cfg.Dir)
	if err != nil {
		return nil, errors.Join(err, files.Close())
	}
	t := &ssdTier{
		dir:       cfg.Dir,
		directory: dir,
		fs:        files,
		health:    disk.NewHealth(c.log, c.now),
		log:       c.log,
		metrics:   c.metrics,
	}
	t.evictor = newEvictor(cfg, t, &c.objects)
	t.residents = eviction.New(t.evictor.crowded)
	t.indexer = newIndexer(t, &c.notes)
	t.files = &objectFiles{fs: t.fs, health: t.health, log: t.log, metrics: t.metrics, discard: t.evictor.discard}
	t.writer = newWriteBehind(t, queueBytes)
	t.verifier = newVerifier(t.files)
	t.evictor.residents, t.evictor.indexer, t.evictor.files = t.residents, t.indexer, t.files
	t.indexer.files = t.files
	if err := t.start(); err != nil {
		return nil, errors.Join(err, files.Close(), dir.Close())
	}
	return t, nil
}

// start reads the index and starts the goroutines.
func (t *ssdTier) start() error {
	if err := t.evictor.openSpace(); err != nil {
		return err
	}
	clean, err := t.openIndex()
	if err != nil {
		return fmt.Errorf("open cache directory %q: %w", t.dir, err)
	}
	err = t.evictor.checkRoom()
	if errors.Is(err, ErrNoSpace) && !clean {
		// What takes the room may be files of which the index has lost track.
		t.evictor.sweep(context.Background())
		err = t.evictor.checkRoom()
	}
	if err != nil {
		return errors.Join(fmt.Errorf("open cache directory %q: %w", t.dir, err), t.indexer.index.Close())
	}
	ctx, stop := context.WithCancel(context.Background())
	t.stop = stop
	t.writer.start()
	t.loops.Go(func() { t.indexer.run(ctx) })
	t.loops.Go(func() { t.evictor.run(ctx) })
	t.loops.Go(func() { t.verifier.run(ctx) })
	t.loops.Go(func() { t.runProbe(ctx) })
	if !clean {
		t.loops.Go(func() { t.evictor.sweep(ctx) })
	}
	return nil
}

// openIndex opens the index, or a new one if it is damaged, and learns from it
// what there is. clean says that the files are just those.
func (t *ssdTier) openIndex() (clean bool, err error) {
	clean, err = t.loadIndex()
	if err == nil || !index.Damaged(err) {
		return clean, err
	}
	t.log.Warn("cache index is damaged, the cache begins empty", "dir", t.dir, "error", err)
	t.metrics.damaged.Add(1)
	if err := os.Remove(filepath.Join(t.dir, index.Name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	return t.loadIndex()
}

func (t *ssdTier) loadIndex() (clean bool, err error) {
	ix, clean, err := index.Open(t.dir)
	if err != nil {
		return false, err
	}
	var found []*eviction.Resident
	var bad []content.Identity
	released := make(map[content.Identity]bool)
	err = ix.Visit(func(id content.Identity, r index.Object, use content.Use, err error) {
		if err != nil {
			bad = append(bad, id)
			return
		}
		found = append(found, &eviction.Resident{ID: id, Size: r.Stored + eviction.Overhead, Used: use.Last})
		if use.Released {
			released[id] = true
		}
	})
	if err == nil && len(bad) > 0 {
		t.log.Warn("cache index has damaged records", "dir", t.dir, "count", len(bad))
		t.metrics.damaged.Add(int64(len(bad)))
		clean = false
		err = ix.Remove(bad)
	}
	if err != nil {
		_ = ix.Close()
		return false, err
	}
	t.residents.Restore(found, released)
	t.indexer.index = ix
	return clean, nil
}

// drain writes what waits to be written, tells the index, and stops. Nothing may
// be submitted any more.
func (t *ssdTier) drain() error {
	if t == nil {
		return nil
	}
	t.writer.drain()
	t.stop()
	t.loops.Wait()
	t.verifier.drop()
	err := t.indexer.commit()
	t.indexer.storeNotes()
	if err == nil {
		err = t.indexer.index.StoreUses(t.residents.TakeUses())
	}
	if err == nil && t.indexer.unindexed() == 0 {
		err = t.indexer.index.SetClean()
	}
	t.indexer.release()
	if err != nil {
		err = fmt.Errorf("store cache index in %q: %w", t.dir, err)
	}
	return errors.Join(err, t.indexer.index.Close(), t.fs.Close(), t.directory.Close())
}

// load asks the index what SSD holds of o, once.
func (t *ssdTier) load(o *object) {
	if t == nil || o.diskLoaded.Load() {
		return
	}
	state := t.residents.State(o.id)
	if state == eviction.Leaving || !t.health.Readable() {
		return
	}
	o.mu.Lock()
	epoch := o.mu.disk.epoch
	o.mu.Unlock()
	var record *index.Object
	var segments map[int]*index.Segment
	if state == eviction.Present {
		var err error
		record, segments, err = t.indexer.index.Load(o.id)
		if err == nil && record != nil && !record.Describes(o.oss) {
			err = index.ErrRecord
		}
		if errors.Is(err, index.ErrRecord) {
			t.metrics.damaged.Add(1)
			t.discard(o)
			return
		}
		if err != nil {
			t.indexer.failed(err)
			return
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if d := &o.mu.disk; d.epoch == epoch && !d.loaded && !d.blocked {
		d.loaded = true
		o.diskLoaded.Store(true)
		if record != nil {
			o.mu.disk.restore(*record, segments)
		}
	}
}

// restore takes over what the index says. o.mu must be held.
func (d *diskState) restore(r index.Object, segments map[int]*index.Segment) {
	o := d.object
	d.exists, d.indexed = true, r
	if !o.mu.hasCRC64 {
		o.mu.hasCRC64, o.mu.crc64 = r.HasCRC64, r.CRC64
	}
	o.mu.checked = r.Checked && r.CRC64 == o.mu.crc64
	for i, s := range segments {
		if i >= o.geometry.Segments() {
			continue
		}
		seg, n := o.segment(i), o.geometry.Blocks(i)
		if seg.crc32 == nil {
			seg.crc32 = make([]uint32, n)
		}
		seg.indexed = s.Blocks
		for b := range n {
			switch {
			case !s.Blocks.Has(b):
			case !seg.summed.Has(b):
				seg.crc32[b] = s.CRC32[b]
				seg.summed.Add(b, b+1)
				seg.disk.Add(b, b+1)
			case seg.crc32[b] == s.CRC32[b]:
				seg.disk.Add(b, b+1)
			}
		}
		d.blocks += int64(seg.disk.Count())
	}
	d.recallChecked()
}

// wholeFile returns the file of o, with a reference, if every block of it is there
// and was checked.
func (t *ssdTier) wholeFile(o *object) *disk.File {
	if t == nil || o.geometry.Size == 0 {
		return nil
	}
	t.load(o)
	o.mu.Lock()
	whole := o.mu.disk.whole() && t.health.Readable()
	trusted := o.mu.disk.wholeChecked()
	if whole && !trusted {
		t.verifier.start(o)
	}
	o.mu.Unlock()
	if !whole || !trusted {
		return nil
	}
	f, err := t.files.open(o, false)
	if err != nil {
		_ = t.files.readError(o, err) // the caller reads through the daemon then
		return nil
	}
	o.mu.Lock()
	still := o.mu.disk.whole() && o.mu.disk.trusted == o.mu.disk.blocks && f.Inode == o.mu.disk.inode
	o.mu.Unlock()
	if !still || f.OSFile() == nil {
		f.Release()
		return nil
	}
	return f
}

// unpinned says that an object can be evicted that could not.
func (t *ssdTier) unpinned() {
	if t != nil {
		t.residents.Changed()
	}
}

// runProbe tries a disk that is not ok, and looks for operations that hang.
func (t *ssdTier) runProbe(ctx context.Context) {
	tick := time.NewTicker(disk.ProbeEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		t.health.Check()
		if t.health.NeedsProbe() {
			t.health.Probed(t.probe())
		}
	}
}

// probe writes a file, reads it back and removes it. It leaves alone what is no
// cache any more.
func (t *ssdTier) probe() error {
	format, err := t.fs.Open(disk.FormatName, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("the cache directory was removed: %w", err)
	}
	if err != nil {
		return err
	}
	if err := format.Close(); err != nil {
		return err
	}
	f, err := t.fs.Open(disk.ProbeName, os.O_CREATE)
	if err != nil {
		return err
	}
	want := make([]byte, content.BlockSize)
	for i := range want {
		want[i] = byte(i * 7)
	}
	got := make([]byte, len(want))
	_, err = f.WriteAt(want, 0)
	if err == nil {
		err = f.Sync()
	}
	if err == nil {
		_, err = f.ReadAt(got, 0)
	}
	if err == nil && string(got) != string(want) {
		err = disk.ErrDamaged
	}
	return errors.Join(err, f.Close(), t.fs.Remove(disk.ProbeName))
}

// What follows forwards to the parts, for those who do not know whether there is a tier.

// accepts tells whether the blocks of o that have come may be submitted, and
// counts them as about to be. o.mu must be held.
func (t *ssdTier) accepts(o *object) bool { return t != nil && t.writer.accepts(o) }

// wants tells whether e, which is in memory, should be written and is not about to
// be; if so it counts it as accepts does. o.mu must be held.
func (t *ssdTier) wants(o *object, e *extent) bool { return t != nil && t.writer.wants(o, e) }

// shed drops what waits to be written; see [writeBehind.shed].
func (t *ssdTier) shed(urgentBytes int64, pressed bool) {
	if t != nil {
		t.writer.shed(urgentBytes, pressed)
	}
}

// makeRoom frees bytes, whatever is wanted, and returns how many it freed.
func (t *ssdTier) makeRoom(ctx context.Context, bytes int64) int64 {
	if t == nil || bytes <= 0 {
		return 0
	}
	return t.evictor.makeRoom(ctx, bytes)
}

// discard throws away what SSD has of o.
func (t *ssdTier) discard(o *object) {
	if t != nil {
		t.evictor.discard(o)
	}
}

// dropEmpty removes an object that has room and nothing to fill it with.
func (t *ssdTier) dropEmpty(o *object) {
	if t != nil {
		t.evictor.dropEmpty(o)
	}
}
