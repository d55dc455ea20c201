package cache

import (
	"context"
	"errors"
	"os"
	"sync"
	"time"

	"github.com/pailfs/pailfs/cache/internal/content"
	"github.com/pailfs/pailfs/cache/internal/disk"
	"github.com/pailfs/pailfs/cache/internal/eviction"
	"github.com/pailfs/pailfs/cache/internal/index"
)

const (
	// indexEvery is how often the index is told what was written, at most. What a
	// crash loses is what was written since.
	indexEvery = time.Second
	// indexRest is how many times as long as an update takes the next one waits: so
	// that a slow disk is not always syncing.
	indexRest = 4
	// usesEvery is how often the index is told what was used.
	usesEvery = time.Minute
	// maxFileSyncs is how many files are synced one by one. Beyond that the whole
	// file system is, at once.
	maxFileSyncs = 16
)

// indexer makes durable what was written, and then tells the index that it is there.
type indexer struct {
	index     *index.Index
	fs        disk.FileSystem
	files     *objectFiles
	residents *eviction.Residents
	health    *disk.Health
	metrics   *metrics
	notes     *notes

	// storing keeps what is stored and what is removed apart, so that nothing is
	// stored of an object that is being thrown away.
	storing sync.Mutex
	// dirty are the objects of which the index does not know everything.
	dirty struct {
		sync.Mutex
		set map[*object]struct{}
		// storing is how many were taken out to be stored, and are not yet.
		storing int
	}
}

// newIndexer returns the indexer of t, which has yet to be given its index and files.
func newIndexer(t *ssdTier, notes *notes) *indexer {
	x := &indexer{fs: t.fs, residents: t.residents, health: t.health, metrics: t.metrics, notes: notes}
	x.dirty.set = make(map[*object]struct{})
	return x
}

// failed notes that the index could not be read or written.
func (x *indexer) failed(err error) {
	if errors.Is(err, index.ErrUnusable) {
		x.metrics.damaged.Add(1)
		x.health.IndexFailed(err)
		return
	}
	x.health.WriteFailed(err)
}

// remove makes the index forget objects, durably, before their files go. If that fails, they
// go all the same: a record without a file is noticed when it is read.
func (x *indexer) remove(ids []content.Identity) {
	x.storing.Lock()
	err := x.index.Remove(ids)
	x.storing.Unlock()
	if err != nil {
		x.failed(err)
	}
}

// unindexed returns of how many objects the index does not know everything.
func (x *indexer) unindexed() int {
	x.dirty.Lock()
	defer x.dirty.Unlock()
	return len(x.dirty.set) + x.dirty.storing
}

// mark notes that the index does not know everything of o. o.mu must be held.
func (x *indexer) mark(o *object) {
	if o.mu.disk.dirty {
		return
	}
	o.mu.disk.dirty = true
	o.acquire()
	x.dirty.Lock()
	x.dirty.set[o] = struct{}{}
	x.dirty.Unlock()
}

// run tells the index what was written, again and again.
func (x *indexer) run(ctx context.Context) {
	timer := time.NewTimer(indexEvery)
	defer timer.Stop()
	uses := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		begin := time.Now()
		if x.health.Writable() {
			// A failure was noted where it happened.
			_ = x.commit()
			x.storeNotes()
			if time.Since(uses) >= usesEvery {
				uses = time.Now()
				if err := x.index.StoreUses(x.residents.TakeUses()); err != nil {
					x.failed(err)
				}
			}
		}
		timer.Reset(max(indexEvery, indexRest*time.Since(begin)))
	}
}

// pendingUpdate is what is to be stored of one object.
type pendingUpdate struct {
	object *object
	update index.Update
	epoch  int
}

// commit syncs what was written and stores in the index that it is there.
func (x *indexer) commit() error {
	x.dirty.Lock()
	set := x.dirty.set
	x.dirty.set = make(map[*object]struct{})
	x.dirty.storing += len(set)
	x.dirty.Unlock()
	if len(set) == 0 {
		return nil
	}
	defer func() {
		x.dirty.Lock()
		x.dirty.storing -= len(set)
		x.dirty.Unlock()
	}()
	pending := make([]pendingUpdate, 0, len(set))
	for o := range set {
		pending = append(pending, o.mu.disk.pending())
	}
	begin := time.Now()
	err := x.syncFiles(pending)
	if err != nil {
		x.health.WriteFailed(err)
		for _, p := range pending {
			p.object.mu.disk.unsynced(p)
		}
		return err
	}
	if err := x.store(pending); err != nil {
		x.failed(err)
		x.dirty.Lock()
		for _, p := range pending {
			x.dirty.set[p.object] = struct{}{} // with the reference that it has
		}
		x.dirty.Unlock()
		return err
	}
	x.metrics.indexUpdates.Add(1)
	x.metrics.indexNanos.Add(int64(time.Since(begin)))
	for _, p := range pending {
		p.object.mu.disk.stored(p)
	}
	return nil
}

// store tells the index what is still true of the pending updates.
func (x *indexer) store(pending []pendingUpdate) error {
	x.storing.Lock()
	defer x.storing.Unlock()
	updates := make([]index.Update, 0, len(pending))
	for _, p := range pending {
		if p.object.mu.disk.current(p) {
			p.update.Use = x.residents.Use(p.update.ID)
			updates = append(updates, p.update)
		}
	}
	return x.index.Store(updates)
}

// pending returns what the index does not know yet.
func (d *diskState) pending() pendingUpdate {
	o := d.object
	o.mu.Lock()
	defer o.mu.Unlock()
	p := pendingUpdate{object: o, epoch: d.epoch, update: index.Update{
		ID:       o.id,
		Segments: make(map[int]*index.Segment),
	}}
	r := index.Object{
		Key: o.oss.Key, ETag: o.oss.ETag, Size: o.oss.Size,
		CRC64: o.mu.crc64, HasCRC64: o.mu.hasCRC64, Checked: o.mu.checked,
	}
	for i, seg := range o.mu.segments {
		if seg == nil {
			continue
		}
		if seg.disk != seg.indexed {
			s := &index.Segment{Blocks: seg.disk}
			copy(s.CRC32[:], seg.crc32)
			p.update.Segments[i] = s
		}
	}
	r.Stored = d.bytes()
	p.update.Record = r
	return p
}

// bytes returns what the blocks on SSD occupy. o.mu must be held.
func (d *diskState) bytes() int64 {
	o := d.object
	bytes := d.blocks * content.BlockSize
	last := o.geometry.Segments() - 1
	if seg := o.peek(last); seg != nil {
		if block := o.geometry.Blocks(last) - 1; seg.disk.Has(block) {
			bytes -= content.BlockSize - content.OnDisk(o.geometry.Length(content.Span{Segment: last, First: block, End: block + 1}))
		}
	}
	return bytes
}

// syncFiles makes durable what the pending updates speak of.
func (x *indexer) syncFiles(pending []pendingUpdate) error {
	slot := x.health.Begin()
	defer x.health.End(slot)
	if len(pending) > maxFileSyncs {
		return x.fs.Sync()
	}
	for _, p := range pending {
		if !p.object.mu.disk.current(p) {
			continue
		}
		f, err := x.files.open(p.object, false)
		switch {
		case errors.Is(err, errGone):
			continue // thrown away in the meantime: current says so below
		case errors.Is(err, os.ErrNotExist), errors.Is(err, disk.ErrDamaged):
			_ = x.files.readError(p.object, err)
			continue
		case err != nil:
			return err
		}
		err = f.Sync()
		f.Release()
		if err == nil && p.object.mu.disk.wasMoved() {
			err = x.fs.SyncName(disk.FileName(p.object.id))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// wasMoved tells whether the file came by a rename that may not be durable.
func (d *diskState) wasMoved() bool {
	o := d.object
	o.mu.Lock()
	defer o.mu.Unlock()
	return d.moved
}

// current tells whether what p speaks of is still there.
func (d *diskState) current(p pendingUpdate) bool {
	o := d.object
	o.mu.Lock()
	defer o.mu.Unlock()
	return d.epoch == p.epoch && !d.blocked && d.exists
}

// stored notes that the index knows p.
func (d *diskState) stored(p pendingUpdate) {
	o := d.object
	o.mu.Lock()
	if d.epoch == p.epoch {
		for i, s := range p.update.Segments {
			o.segment(i).indexed = s.Blocks
		}
		d.indexed = p.update.Record
		d.moved = false
	}
	d.unmark()
	o.mu.Unlock()
	o.release()
}

// unsynced forgets what p speaks of and may not have reached the disk.
func (d *diskState) unsynced(p pendingUpdate) {
	o := d.object
	o.mu.Lock()
	if d.epoch == p.epoch {
		for i, s := range p.update.Segments {
			seg := o.segment(i)
			for block, n := 0, o.geometry.Blocks(i); block < n; block++ {
				if s.Blocks.Has(block) && !seg.indexed.Has(block) {
					d.lose(content.Span{Segment: i, First: block, End: block + 1})
				}
			}
		}
	}
	d.unmark()
	o.mu.Unlock()
	o.release()
}

// unmark ends the state of being dirty, and begins it anew if more was written in
// the meantime. o.mu must be held; the caller has the reference that mark took.
func (d *diskState) unmark() {
	o := d.object
	d.dirty = false
	if d.blocked || !d.loaded || !d.exists {
		return
	}
	again := o.mu.checked != d.indexed.Checked || o.mu.hasCRC64 != d.indexed.HasCRC64
	for _, seg := range o.mu.segments {
		again = again || seg != nil && seg.disk != seg.indexed
	}
	if again {
		o.cache.ssd.indexer.mark(o)
	}
}

// release drops what could not be stored, at the end.
func (x *indexer) release() {
	x.dirty.Lock()
	set := x.dirty.set
	x.dirty.set = make(map[*object]struct{})
	x.dirty.Unlock()
	for o := range set {
		o.release()
	}
}
