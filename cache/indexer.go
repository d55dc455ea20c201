package cache

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/pailfs/pailfs/cache/internal/content"
	"github.com/pailfs/pailfs/cache/internal/disk"
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

// mark notes that the index does not know everything of o. o.mu must be held.
func (t *ssdTier) mark(o *object) {
	if o.mu.disk.dirty {
		return
	}
	o.mu.disk.dirty = true
	o.acquire()
	t.dirty.Lock()
	t.dirty.set[o] = struct{}{}
	t.dirty.Unlock()
}

// runIndexer tells the index what was written, again and again.
func (t *ssdTier) runIndexer(ctx context.Context) {
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
		if t.health.Writable() {
			// A failure was noted where it happened.
			_ = t.commit()
			t.storeNotes()
			if time.Since(uses) >= usesEvery {
				uses = time.Now()
				if err := t.index.StoreUses(t.residents.TakeUses()); err != nil {
					t.indexFailed(err)
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
func (t *ssdTier) commit() error {
	t.dirty.Lock()
	set := t.dirty.set
	t.dirty.set = make(map[*object]struct{})
	t.dirty.storing += len(set)
	t.dirty.Unlock()
	if len(set) == 0 {
		return nil
	}
	defer func() {
		t.dirty.Lock()
		t.dirty.storing -= len(set)
		t.dirty.Unlock()
	}()
	pending := make([]pendingUpdate, 0, len(set))
	for o := range set {
		pending = append(pending, o.pendingUpdate())
	}
	begin := time.Now()
	err := t.syncFiles(pending)
	if err != nil {
		t.health.WriteFailed(err)
		for _, p := range pending {
			p.object.unsynced(p)
		}
		return err
	}
	if err := t.store(pending); err != nil {
		t.indexFailed(err)
		t.dirty.Lock()
		for _, p := range pending {
			t.dirty.set[p.object] = struct{}{} // with the reference that it has
		}
		t.dirty.Unlock()
		return err
	}
	t.metrics.indexUpdates.Add(1)
	t.metrics.indexNanos.Add(int64(time.Since(begin)))
	for _, p := range pending {
		p.object.stored(p)
	}
	return nil
}

// store tells the index what is still true of the pending updates.
func (t *ssdTier) store(pending []pendingUpdate) error {
	t.indexing.Lock()
	defer t.indexing.Unlock()
	updates := make([]index.Update, 0, len(pending))
	for _, p := range pending {
		if p.object.current(p) {
			p.update.Use = t.residents.Use(p.update.ID)
			updates = append(updates, p.update)
		}
	}
	return t.index.Store(updates)
}

// pendingUpdate returns what the index does not know yet.
func (o *object) pendingUpdate() pendingUpdate {
	o.mu.Lock()
	defer o.mu.Unlock()
	p := pendingUpdate{object: o, epoch: o.mu.disk.epoch, update: index.Update{
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
	r.Stored = o.diskBytes()
	p.update.Record = r
	return p
}

// diskBytes returns what the blocks on SSD occupy. o.mu must be held.
func (o *object) diskBytes() int64 {
	bytes := o.mu.disk.blocks * content.BlockSize
	last := o.geometry.Segments() - 1
	if seg := o.peek(last); seg != nil {
		if block := o.geometry.Blocks(last) - 1; seg.disk.Has(block) {
			bytes -= content.BlockSize - content.OnDisk(o.geometry.Length(content.Span{Segment: last, First: block, End: block + 1}))
		}
	}
	return bytes
}

// syncFiles makes durable what the pending updates speak of.
func (t *ssdTier) syncFiles(pending []pendingUpdate) error {
	slot := t.health.Begin()
	defer t.health.End(slot)
	if len(pending) > maxFileSyncs {
		return t.fs.Sync()
	}
	for _, p := range pending {
		if !p.object.current(p) {
			continue
		}
		f, err := t.open(p.object, false)
		switch {
		case errors.Is(err, errGone):
			continue // thrown away in the meantime: current says so below
		case errors.Is(err, os.ErrNotExist), errors.Is(err, disk.ErrDamaged):
			_ = t.readError(p.object, err)
			continue
		case err != nil:
			return err
		}
		err = f.Sync()
		f.Release()
		if err == nil && p.object.wasMoved() {
			err = t.fs.SyncName(disk.FileName(p.object.id))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// wasMoved tells whether the file came by a rename that may not be durable.
func (o *object) wasMoved() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.mu.disk.moved
}

// current tells whether what p speaks of is still there.
func (o *object) current(p pendingUpdate) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.mu.disk.epoch == p.epoch && !o.mu.disk.blocked && o.mu.disk.exists
}

// stored notes that the index knows p.
func (o *object) stored(p pendingUpdate) {
	o.mu.Lock()
	if o.mu.disk.epoch == p.epoch {
		for i, s := range p.update.Segments {
			o.segment(i).indexed = s.Blocks
		}
		o.mu.disk.indexed = p.update.Record
		o.mu.disk.moved = false
	}
	o.unmark()
	o.mu.Unlock()
	o.release()
}

// unsynced forgets what p speaks of and may not have reached the disk.
func (o *object) unsynced(p pendingUpdate) {
	o.mu.Lock()
	if o.mu.disk.epoch == p.epoch {
		for i, s := range p.update.Segments {
			seg := o.segment(i)
			for block, n := 0, o.geometry.Blocks(i); block < n; block++ {
				if s.Blocks.Has(block) && !seg.indexed.Has(block) {
					o.lose(content.Span{Segment: i, First: block, End: block + 1})
				}
			}
		}
	}
	o.unmark()
	o.mu.Unlock()
	o.release()
}

// unmark ends the state of being dirty, and begins it anew if more was written in
// the meantime. o.mu must be held; the caller has the reference that mark took.
func (o *object) unmark() {
	d := &o.mu.disk
	d.dirty = false
	if d.blocked || !d.loaded || !d.exists {
		return
	}
	again := o.mu.checked != d.indexed.Checked || o.mu.hasCRC64 != d.indexed.HasCRC64
	for _, seg := range o.mu.segments {
		again = again || seg != nil && seg.disk != seg.indexed
	}
	if again {
		o.cache.ssd.mark(o)
	}
}

// releaseDirty drops what could not be stored, at the end.
func (t *ssdTier) releaseDirty() {
	t.dirty.Lock()
	set := t.dirty.set
	t.dirty.set = make(map[*object]struct{})
	t.dirty.Unlock()
	for o := range set {
		o.release()
	}
}
