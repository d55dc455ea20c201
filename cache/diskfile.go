package cache

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/pailfs/pailfs/cache/internal/content"
	"github.com/pailfs/pailfs/cache/internal/index"
)

// diskFile is an open object file, shared by those who use it. It is closed with
// the last of them; eviction merely unlinks it.
type diskFile struct {
	diskIO
	refs     atomic.Int32
	inode    inode
	directly directFile
	// given says that the file is the cache's no more: Take gave it to somebody who
	// changes it.
	given atomic.Bool
}

func (f *diskFile) acquire() { f.refs.Add(1) }

func (f *diskFile) release() {
	if f.refs.Add(-1) == 0 {
		// Nothing depends on it: what must last was synced by then.
		_ = f.Close()
		if w := f.directly.writer; w != nil {
			_ = w.Close()
		}
	}
}

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
	file  *diskFile
	inode inode
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
	return d.blocks > 0 && d.loaded && !d.blocked && o.cache.ssd.health.readable()
}

// wholeOnDisk tells whether the file has every block. o.mu must be held.
func (o *object) wholeOnDisk() bool {
	d := &o.mu.disk
	return d.loaded && !d.blocked && d.blocks == o.geometry.TotalBlocks()
}

// idleFile takes the open file from an object that nobody uses. o.mu must be held;
// the caller must release the file.
func (o *object) idleFile() *diskFile {
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
	o.cache.ssd.checked.remove(o.id)
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
	o.cache.ssd.checked.remove(o.id)
}

// open returns the object's file, with a reference for the caller. If create is
// set, a file that does not exist is made.
func (t *ssdTier) open(o *object, create bool) (*diskFile, error) {
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
		f.acquire()
		o.mu.Unlock()
		return f, nil
	}
	flag := 0
	switch {
	case d.blocked || !d.loaded || !d.exists && !create:
		o.mu.Unlock()
		return nil, errGone
	case !d.exists:
		// What an earlier life left there is of no use.
		flag = os.O_CREATE
	}
	epoch, opening := d.epoch, make(chan struct{})
	d.opening = opening
	o.mu.Unlock()

	f, err := t.openFile(o, flag)

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
		f.release()
		return nil, errGone
	}
	if d.inode != f.inode {
		// Not the file that we wrote: somebody put another in its place.
		o.distrust()
		d.inode = f.inode
	}
	d.exists = true
	if o.mu.handles > 0 || d.writing > 0 || d.fetching > 0 {
		f.acquire()
		d.file = f
	}
	return f, nil
}

// openFile opens the file of an object and checks that it is as long as the
// object. A new one is made so, unless one write will do it.
func (t *ssdTier) openFile(o *object, flag int) (*diskFile, error) {
	io, err := t.fs.open(fileName(o.id), flag)
	if err != nil {
		return nil, err
	}
	f := &diskFile{diskIO: io}
	f.refs.Store(1)
	created := flag&os.O_CREATE != 0
	if created && !o.small() {
		err = f.Truncate(o.geometry.Size)
	}
	var info fs.FileInfo
	if err == nil {
		info, err = f.Stat()
	}
	if err == nil && !created && info.Size() != o.geometry.Size {
		err = fmt.Errorf("%w: %d bytes instead of %d", errDamaged, info.Size(), o.geometry.Size)
	}
	if err != nil {
		f.release()
		return nil, err
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		f.inode.number = st.Ino
	}
	if file := f.osFile(); file != nil {
		f.inode.born = bornAt(file)
	}
	return f, nil
}

// inode tells a file from others that were or will be in its place: the number of one
// that was removed is used again at once, but not with the time at which it was made, in
// nanoseconds since 1970; 0 where the file system does not know it.
type inode struct {
	number uint64
	born   int64
}

// bornAt returns when a file was made.
func bornAt(file *os.File) int64 {
	var st unix.Statx_t
	if err := unix.Statx(int(file.Fd()), "", unix.AT_EMPTY_PATH, unix.STATX_BTIME, &st); err != nil || st.Mask&unix.STATX_BTIME == 0 {
		return 0
	}
	return st.Btime.Sec*1e9 + int64(st.Btime.Nsec)
}

// errDamaged means that an object file is not as it was left.
var errDamaged = errors.New("cache file is damaged")
