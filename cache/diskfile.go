package cache

import (
	"log/slog"

	"github.com/pailfs/pailfs/cache/internal/content"
	"github.com/pailfs/pailfs/cache/internal/disk"
	"github.com/pailfs/pailfs/cache/internal/index"
)

// diskState is what an object knows of its file: which blocks that has, who needs it, and
// what the index has been told. It is guarded by object.mu, for it changes together with
// what memory has; its methods say where they take that lock themselves.
type diskState struct {
	object *object // whose it is; set once, so that it may be read without the lock
	diskFacts
}

// diskFacts is what of a diskState begins anew when a file is taken out of use.
type diskFacts struct {
	// loaded says that the index was asked; before, nothing is known and nothing may
	// be written. epoch changes whenever what was loaded becomes void.
	loaded bool
	epoch  int
	// blocked says that the content is being thrown away.
	blocked bool
	// exists says that there is a file, made by us or known to the index.
	exists bool
	// file is open while handles or writes need it. inode is the file that the
	// trusted blocks are in.
	file  *disk.File
	inode disk.Inode
	// opening, while somebody opens the file, is closed when that has ended.
	opening chan struct{}
	// blocks and trusted are how many there are in all segments.
	blocks, trusted int64
	// writing counts the extents that wait to be written, fetching the calls of
	// Fetch. While there is any the object is not evicted.
	writing, fetching int
	// reading counts the reads of the file, handedOut the handles that gave it to
	// others.
	reading, handedOut int
	// moved says that the file came by a rename that may not be durable.
	moved bool
	// dirty says that the object is in indexer.dirty, and indexed is what the index
	// has.
	dirty   bool
	indexed index.Object
	// verifying says that all blocks are being checked, complained that damage was
	// logged.
	verifying, complained bool
}

// readable tells whether what is on SSD may be read. o.mu must be held.
func (d *diskState) readable() bool {
	o := d.object
	return d.blocks > 0 && d.loaded && !d.blocked && o.cache.ssd.health.Readable()
}

// whole tells whether the file has every block. o.mu must be held.
func (d *diskState) whole() bool {
	o := d.object
	return d.loaded && !d.blocked && d.blocks == o.geometry.TotalBlocks()
}

// idleFile takes the open file from an object that nobody uses. o.mu must be held;
// the caller must release the file.
func (d *diskState) idleFile() *disk.File {
	o := d.object
	if o.mu.handles > 0 || d.writing > 0 || d.fetching > 0 {
		return nil
	}
	d.rememberChecked() // nobody may refer to o for long
	f := d.file
	d.file = nil
	return f
}

// add notes that the file has the blocks of s, written by us. object.mu must be held.
func (d *diskState) add(s content.Span) {
	d.change(s, func(seg *segment) {
		seg.disk.Add(s.First, s.End)
		seg.trusted.Add(s.First, s.End)
	})
	d.object.cache.ssd.residents.Progressed(d.object.id)
}

// trust notes that the content of the blocks of s was checked. object.mu must be held.
func (d *diskState) trust(s content.Span) {
	d.change(s, func(seg *segment) {
		seg.trusted.Add(s.First, s.End)
		for w := range seg.trusted {
			seg.trusted[w] &= seg.disk[w]
		}
	})
}

// lose notes that the blocks of s are not on SSD, or no longer. object.mu must be held.
func (d *diskState) lose(s content.Span) {
	d.change(s, func(seg *segment) {
		seg.disk.Remove(s.First, s.End)
		seg.trusted.Remove(s.First, s.End)
	})
	d.object.cache.ssd.files.checked.Remove(d.object.id)
	d.object.cache.ssd.indexer.mark(d.object)
}

// change changes which blocks of the segment of s are there or trusted, and counts anew
// how many are. object.mu must be held.
func (d *diskState) change(s content.Span, change func(seg *segment)) {
	seg := d.object.segment(s.Segment)
	had, trusted := seg.disk.Count(), seg.trusted.Count()
	change(seg)
	d.blocks += int64(seg.disk.Count() - had)
	d.trusted += int64(seg.trusted.Count() - trusted)
}

// distrust notes that no block has been checked. o.mu must be held.
func (d *diskState) distrust() {
	o := d.object
	for _, seg := range o.mu.segments {
		if seg != nil {
			seg.trusted = content.BlockSet{}
		}
	}
	d.trusted = 0
	o.cache.ssd.files.checked.Remove(o.id)
}

// objectFiles opens, reads and checks the files of objects.
type objectFiles struct {
	fs      disk.FileSystem
	health  *disk.Health
	log     *slog.Logger
	metrics *metrics
	// checked are the files that were found right since the start.
	checked disk.CheckedFiles
	// discard throws away what SSD has of an object whose file is of no use.
	discard func(o *object)
}

// open returns the object's file, with a reference for the caller. If create is
// set, a file that does not exist is made.
func (t *objectFiles) open(o *object, create bool) (*disk.File, error) {
	d := &o.mu.disk
	o.mu.Lock()
	for d.file == nil && d.opening != nil {
		// One at a time: two who make the same file would empty each other's.
		opened := d.opening
		o.mu.Unlock()
		<-opened
		o.mu.Lock()
	}
	if f := d.file; f != nil {
		f.Acquire()
		o.mu.Unlock()
		return f, nil
	}
	newFile := false
	switch {
	case d.blocked || !d.loaded || !d.exists && !create:
		o.mu.Unlock()
		return nil, errGone
	case !d.exists:
		// What an earlier life left there is of no use.
		newFile = true
	}
	epoch, opening := d.epoch, make(chan struct{})
	d.opening = opening
	o.mu.Unlock()

	f, err := disk.OpenFile(t.fs, disk.FileName(o.id), o.geometry.Size, newFile, !o.small())

	o.mu.Lock()
	defer o.mu.Unlock()
	close(opening)
	if d.opening == opening {
		d.opening = nil
		o.notify()
	}
	if err != nil {
		return nil, err
	}
	if d.epoch != epoch || d.blocked {
		f.Release()
		return nil, errGone
	}
	if d.inode != f.Inode {
		// Not the file that we wrote: somebody put another in its place.
		o.mu.disk.distrust()
		d.inode = f.Inode
	}
	d.exists = true
	if o.mu.handles > 0 || d.writing > 0 || d.fetching > 0 {
		f.Acquire()
		d.file = f
	}
	return f, nil
}

// rememberChecked notes that the file of o is whole and right, if it is. o.mu must
// be held.
func (d *diskState) rememberChecked() {
	o := d.object
	if !o.small() && d.whole() && d.wholeChecked() && d.inode != (disk.Inode{}) {
		o.cache.ssd.files.checked.Add(o.id, d.inode)
	}
}

// wholeChecked tells whether every block that is on SSD, and the whole, was
// checked. o.mu must be held.
func (d *diskState) wholeChecked() bool {
	o := d.object
	return d.trusted == d.blocks && (o.mu.checked || !o.mu.hasCRC64)
}

// recallChecked takes over what an earlier record of o knew. o.mu must be held.
func (d *diskState) recallChecked() {
	o := d.object
	file, ok := o.cache.ssd.files.checked.Inode(o.id)
	if !ok || !d.whole() {
		return
	}
	for _, seg := range o.mu.segments {
		if seg != nil {
			seg.trusted = seg.disk
		}
	}
	d.trusted, d.inode = d.blocks, file
}
