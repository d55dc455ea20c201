package cache

import (
	"github.com/pailfs/pailfs/cache/internal/content"
	"github.com/pailfs/pailfs/cache/internal/disk"
	"github.com/pailfs/pailfs/cache/internal/index"
)

// diskState is what an object knows of its file. Guarded by object.mu.
type diskState struct {
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
	// dirty says that the object is in ssdTier.dirty, and indexed is what the index
	// has.
	dirty   bool
	indexed index.Object
	// verifying says that all blocks are being checked, complained that damage was
	// logged.
	verifying, complained bool
}

// diskReadable tells whether what is on SSD may be read. o.mu must be held.
func (o *object) diskReadable() bool {
	d := &o.mu.disk
	return d.blocks > 0 && d.loaded && !d.blocked && o.cache.ssd.health.Readable()
}

// wholeOnDisk tells whether the file has every block. o.mu must be held.
func (o *object) wholeOnDisk() bool {
	d := &o.mu.disk
	return d.loaded && !d.blocked && d.blocks == o.geometry.TotalBlocks()
}

// idleFile takes the open file from an object that nobody uses. o.mu must be held;
// the caller must release the file.
func (o *object) idleFile() *disk.File {
	d := &o.mu.disk
	if o.mu.handles > 0 || d.writing > 0 || d.fetching > 0 {
		return nil
	}
	o.rememberChecked() // nobody may refer to o for long
	f := d.file
	d.file = nil
	return f
}

// setDisk notes that the file has the blocks of s, written by us. o.mu must be
// held.
func (o *object) setDisk(s content.Span) {
	seg, d := o.segment(s.Segment), &o.mu.disk
	had, trusted := seg.disk.Count(), seg.trusted.Count()
	seg.disk.Add(s.First, s.End)
	seg.trusted.Add(s.First, s.End)
	d.blocks += int64(seg.disk.Count() - had)
	d.trusted += int64(seg.trusted.Count() - trusted)
	o.cache.ssd.residents.Progressed(o.id)
}

// trust notes that the content of the blocks of s was checked. o.mu must be held.
func (o *object) trust(s content.Span) {
	seg := o.segment(s.Segment)
	trusted := seg.trusted.Count()
	seg.trusted.Add(s.First, s.End)
	for w := range seg.trusted {
		seg.trusted[w] &= seg.disk[w]
	}
	o.mu.disk.trusted += int64(seg.trusted.Count() - trusted)
}

// lose notes that the blocks of s are not on SSD, or no longer. o.mu must be held.
func (o *object) lose(s content.Span) {
	seg, d := o.segment(s.Segment), &o.mu.disk
	had, trusted := seg.disk.Count(), seg.trusted.Count()
	seg.disk.Remove(s.First, s.End)
	seg.trusted.Remove(s.First, s.End)
	d.blocks += int64(seg.disk.Count() - had)
	d.trusted += int64(seg.trusted.Count() - trusted)
	o.cache.ssd.checked.Remove(o.id)
	o.cache.ssd.mark(o)
}

// distrust notes that no block has been checked. o.mu must be held.
func (o *object) distrust() {
	for _, seg := range o.mu.segments {
		if seg != nil {
			seg.trusted = content.BlockSet{}
		}
	}
	o.mu.disk.trusted = 0
	o.cache.ssd.checked.Remove(o.id)
}

// open returns the object's file, with a reference for the caller. If create is
// set, a file that does not exist is made.
func (t *ssdTier) open(o *object, create bool) (*disk.File, error) {
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
		o.distrust()
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
func (o *object) rememberChecked() {
	if d := &o.mu.disk; !o.small() && o.wholeOnDisk() && o.wholeChecked() && d.inode != (disk.Inode{}) {
		o.cache.ssd.checked.Add(o.id, d.inode)
	}
}

// wholeChecked tells whether every block that is on SSD, and the whole, was
// checked. o.mu must be held.
func (o *object) wholeChecked() bool {
	return o.mu.disk.trusted == o.mu.disk.blocks && (o.mu.checked || !o.mu.hasCRC64)
}

// recallChecked takes over what an earlier record of o knew. o.mu must be held.
func (o *object) recallChecked() {
	file, ok := o.cache.ssd.checked.Inode(o.id)
	if !ok || !o.wholeOnDisk() {
		return
	}
	for _, seg := range o.mu.segments {
		if seg != nil {
			seg.trusted = seg.disk
		}
	}
	o.mu.disk.trusted, o.mu.disk.inode = o.mu.disk.blocks, file
}
