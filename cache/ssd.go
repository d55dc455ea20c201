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
	"sync/atomic"
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
type ssdTier struct {
	dir       string
	directory *disk.Directory
	fs        disk.FileSystem
	index     *index.Index
	residents *eviction.Residents
	checked   disk.CheckedFiles
	health    *disk.Health
	queue     *writeQueue
	log       *slog.Logger
	metrics   *metrics
	objects   *objects

	size, minFreeBytes, minFreeInodes int64
	// beside is what others keep in the directory that counts in size.
	beside func() int64

	// indexing keeps what is stored and what is removed apart, so that nothing is
	// stored of an object that is being thrown away.
	indexing sync.Mutex
	// dirty are the objects of which the index does not know everything.
	dirty struct {
		sync.Mutex
		set map[*object]struct{}
		// storing is how many were taken out to be stored, and are not yet.
		storing int
	}

	notes *notes

	// noDirect says that files cannot be written past the page cache.
	noDirect atomic.Bool

	evictions chan evictRequest
	full      chan struct{} // asks the evictor to look
	verify    chan *object
	stop      context.CancelFunc
	loops     sync.WaitGroup
	writers   sync.WaitGroup
}

// openSSD opens the tier in cfg.Dir. clock is the cache's.
func openSSD(cfg Config, queueBytes int64, files disk.FileSystem, c *Cache) (*ssdTier, error) {
	dir, err := disk.OpenDirectory(cfg.Dir)
	if err != nil {
		return nil, errors.Join(err, files.Close())
	}
	t := &ssdTier{
		dir:           cfg.Dir,
		directory:     dir,
		fs:            files,
		health:        disk.NewHealth(c.log, c.now),
		queue:         newWriteQueue(queueBytes),
		log:           c.log,
		metrics:       c.metrics,
		objects:       &c.objects,
		size:          cfg.Size,
		beside:        cfg.Beside,
		minFreeBytes:  cfg.MinFreeBytes,
		minFreeInodes: cfg.MinFreeInodes,
		evictions:     make(chan evictRequest),
		full:          make(chan struct{}, 1),
		verify:        make(chan *object, 64),
		notes:         &c.notes,
	}
	t.dirty.set = make(map[*object]struct{})
	t.residents = eviction.New(t.crowded)
	if err := t.start(); err != nil {
		return nil, errors.Join(err, files.Close(), dir.Close())
	}
	return t, nil
}

// start reads the index and starts the goroutines.
func (t *ssdTier) start() error {
	if err := t.openSpace(); err != nil {
		return err
	}
	clean, err := t.openIndex()
	if err != nil {
		return fmt.Errorf("open cache directory %q: %w", t.dir, err)
	}
	err = t.checkRoom()
	if errors.Is(err, ErrNoSpace) && !clean {
		// What takes the room may be files of which the index has lost track.
		t.sweep(context.Background())
		err = t.checkRoom()
	}
	if err != nil {
		return errors.Join(fmt.Errorf("open cache directory %q: %w", t.dir, err), t.index.Close())
	}
	ctx, stop := context.WithCancel(context.Background())
	t.stop = stop
	for range diskWriters {
		t.writers.Go(t.runWriter)
	}
	t.loops.Go(func() { t.runIndexer(ctx) })
	t.loops.Go(func() { t.runEvictor(ctx) })
	t.loops.Go(func() { t.runVerifier(ctx) })
	t.loops.Go(func() { t.runProbe(ctx) })
	if !clean {
		t.loops.Go(func() { t.sweep(ctx) })
	}
	return nil
}

// openSpace fills in what depends on the size of the file system.
func (t *ssdTier) openSpace() error {
	space, err := t.fs.Space()
	if err != nil {
		return fmt.Errorf("look at the file system of %q: %w", t.dir, err)
	}
	if t.minFreeBytes == 0 {
		t.minFreeBytes = space.Bytes / 10
	}
	if t.minFreeInodes == 0 {
		t.minFreeInodes = space.Inodes / 10
	}
	if t.size == 0 {
		t.size = unlimited
	}
	if t.beside == nil {
		t.beside = func() int64 { return 0 }
	}
	return nil
}

// checkRoom refuses a file system on which nothing could be kept.
func (t *ssdTier) checkRoom() error {
	space, err := t.fs.Space()
	if err != nil {
		return err
	}
	t.updateLimit(space, 0)
	if objects, _, limit := t.residents.Usage(); objects == 0 && limit < minSSD {
		return fmt.Errorf("%d bytes are free of which %d must stay so: %w", space.FreeBytes, t.minFreeBytes, ErrNoSpace)
	}
	return nil
}

// minSSD is the least room with which an SSD tier makes sense.
const minSSD = 4 << 20

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
	t.residents = eviction.New(t.crowded)
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
	t.index = ix
	return clean, nil
}

// drain writes what waits to be written, tells the index, and stops. Nothing may
// be submitted any more.
func (t *ssdTier) drain() error {
	if t == nil {
		return nil
	}
	t.queue.close()
	t.writers.Wait()
	t.stop()
	t.loops.Wait()
	t.dropVerify()
	err := t.commit()
	t.storeNotes()
	if err == nil {
		err = t.index.StoreUses(t.residents.TakeUses())
	}
	if err == nil && len(t.dirty.set) == 0 {
		err = t.index.SetClean()
	}
	t.releaseDirty()
	if err != nil {
		err = fmt.Errorf("store cache index in %q: %w", t.dir, err)
	}
	return errors.Join(err, t.index.Close(), t.fs.Close(), t.directory.Close())
}

// accepts tells whether the blocks of o that have come may be submitted, and
// counts them as about to be. o.mu must be held.
func (t *ssdTier) accepts(o *object) bool {
	if t == nil || o.never || !t.health.Writable() {
		return false
	}
	d := &o.mu.disk
	if !d.loaded || d.blocked {
		return false
	}
	d.writing++
	return true
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
		record, segments, err = t.index.Load(o.id)
		if err == nil && record != nil && !record.Describes(o.oss) {
			err = index.ErrRecord
		}
		if errors.Is(err, index.ErrRecord) {
			t.metrics.damaged.Add(1)
			t.discard(o)
			return
		}
		if err != nil {
			t.indexFailed(err)
			return
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if d := &o.mu.disk; d.epoch == epoch && !d.loaded && !d.blocked {
		d.loaded = true
		o.diskLoaded.Store(true)
		if record != nil {
			o.restore(*record, segments)
		}
	}
}

// restore takes over what the index says. o.mu must be held.
func (o *object) restore(r index.Object, segments map[int]*index.Segment) {
	d := &o.mu.disk
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
	o.recallChecked()
}

// indexFailed notes that the index could not be read or written.
func (t *ssdTier) indexFailed(err error) {
	if errors.Is(err, index.ErrUnusable) {
		t.metrics.damaged.Add(1)
		t.health.IndexFailed(err)
		return
	}
	t.health.WriteFailed(err)
}

// wholeFile returns the file of o, with a reference, if every block of it is there
// and was checked.
func (t *ssdTier) wholeFile(o *object) *disk.File {
	if t == nil || o.geometry.Size == 0 {
		return nil
	}
	t.load(o)
	o.mu.Lock()
	whole := o.wholeOnDisk() && t.health.Readable()
	trusted := o.wholeChecked()
	if whole && !trusted {
		t.startVerify(o)
	}
	o.mu.Unlock()
	if !whole || !trusted {
		return nil
	}
	f, err := t.open(o, false)
	if err != nil {
		_ = t.readError(o, err) // the caller reads through the daemon then
		return nil
	}
	o.mu.Lock()
	still := o.wholeOnDisk() && o.mu.disk.trusted == o.mu.disk.blocks && f.Inode == o.mu.disk.inode
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
