package cache

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/pailfs/pailfs/cache/internal/content"
	"github.com/pailfs/pailfs/cache/internal/disk"
	"github.com/pailfs/pailfs/oss"
)

// scratch holds buffers of one block, for blocks that must be read whole to be
// checked although only a part is wanted.
var scratch = sync.Pool{New: func() any { return new([content.BlockSize]byte) }}

// read fills p with the bytes at off, which SSD was said to have. Blocks that were
// not read since the start are checked first. If they turn out not to be there,
// or not to be right, they are forgotten and errGone is returned.
func (t *objectFiles) read(ctx context.Context, o *object, p []byte, off int64) error {
	if !o.mu.disk.beginRead() {
		return errGone
	}
	defer o.mu.disk.endRead()
	f, err := t.open(o, false)
	if err != nil {
		return t.readError(o, err)
	}
	defer f.Release()
	for s := range o.geometry.Spans(off, int64(len(p))) {
		start := max(off, o.geometry.Offset(s))
		end := min(off+int64(len(p)), o.geometry.Offset(s)+o.geometry.Length(s))
		if err := t.readSpan(o, f, s, p[start-off:end-off], start); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// beginRead counts a read of the file; it returns false while the file is being
// taken out of use.
func (d *diskState) beginRead() bool {
	o := d.object
	o.mu.Lock()
	defer o.mu.Unlock()
	if d.blocked {
		return false
	}
	d.reading++
	return true
}

// endRead counts it no more.
func (d *diskState) endRead() {
	o := d.object
	o.mu.Lock()
	defer o.mu.Unlock()
	d.reading--
	if d.blocked && d.reading == 0 {
		o.notify()
	}
}

// readSpan reads from one segment. It goes on after a block that is not there, so
// that all of those are known when errGone is returned.
func (t *objectFiles) readSpan(o *object, f *disk.File, s content.Span, p []byte, off int64) (err error) {
	o.mu.Lock()
	seg := o.segment(s.Segment)
	trusted := seg.trusted
	if o.mu.disk.inode != f.Inode {
		trusted = content.BlockSet{}
	}
	o.mu.Unlock()
	for block := s.First; block < s.End; {
		run := content.Span{Segment: s.Segment, First: block, End: block + 1}
		var failed error
		if trusted.Has(block) {
			run.End = trusted.Run(block, s.End)
			from := max(off, o.geometry.Offset(run))
			to := min(off+int64(len(p)), o.geometry.Offset(run)+o.geometry.Length(run))
			failed = t.pread(o, f, run, p[from-off:to-off], from)
		} else {
			failed = t.readChecked(o, f, run, p, off)
		}
		if failed != nil && !errors.Is(failed, errGone) {
			return failed
		}
		if err == nil {
			err = failed
		}
		block = run.End
	}
	return err
}

// readChecked reads one block, compares its checksum, and copies what of it
// belongs into p, which begins at off.
func (t *objectFiles) readChecked(o *object, f *disk.File, s content.Span, p []byte, off int64) error {
	start, n := o.geometry.Offset(s), o.geometry.Length(s)
	var block []byte
	if start >= off && start+n <= off+int64(len(p)) {
		block = p[start-off : start-off+n]
	} else {
		buf := scratch.Get().(*[content.BlockSize]byte)
		defer scratch.Put(buf)
		block = buf[:n]
	}
	if err := t.pread(o, f, s, block, start); err != nil {
		return err
	}
	sum := content.CRC32C(block)

	o.mu.Lock()
	seg := o.segment(s.Segment)
	needHash := !o.mu.checked && !seg.hashed.Has(s.First) && !seg.whole
	switch {
	case !seg.disk.Has(s.First) || o.mu.disk.blocked:
		o.mu.Unlock()
		return errGone
	case seg.crc32[s.First] != sum:
		o.mu.disk.lose(s)
		o.mu.Unlock()
		t.complain(o, start, n, disk.ErrDamaged)
		return errGone
	}
	o.mu.Unlock()

	var hash uint64
	if needHash {
		hash = oss.CRC64(block)
	}
	o.mu.Lock()
	var corrupt error
	var waste leftovers
	if seg := o.segment(s.Segment); seg.disk.Has(s.First) && seg.crc32[s.First] == sum && o.mu.disk.inode == f.Inode {
		o.mu.disk.trust(s)
		if needHash {
			whole := seg.whole
			seg.rememberHash(o.geometry, s.Segment, s.First, hash)
			if seg.whole && !whole {
				o.mu.wholeSegments++
			}
			if corrupt = o.check(); corrupt != nil {
				waste = o.forget()
			}
		}
	}
	o.mu.Unlock()
	if corrupt != nil {
		o.cache.discard(o, waste, corrupt)
		return corrupt
	}
	if &block[0] != &p[0] {
		from, to := max(start, off), min(start+n, off+int64(len(p)))
		copy(p[from-off:to-off], block[from-start:to-start])
	}
	return nil
}

// pread reads from the file. What cannot be read is forgotten.
func (t *objectFiles) pread(o *object, f *disk.File, s content.Span, p []byte, off int64) error {
	slot := t.health.Begin()
	n, err := f.ReadAt(p, off)
	t.health.End(slot)
	if n == len(p) {
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		err = fmt.Errorf("%w: it ends at %d", disk.ErrDamaged, off+int64(n))
	} else {
		t.health.ReadFailed(err)
	}
	o.mu.Lock()
	o.mu.disk.lose(s)
	o.mu.Unlock()
	t.complain(o, off, int64(len(p)), err)
	return errGone
}

// complain counts something that is not as it was left, and logs the first of it
// in each object.
func (t *objectFiles) complain(o *object, off, n int64, err error) {
	t.metrics.damaged.Add(1)
	o.mu.Lock()
	first := !o.mu.disk.complained
	o.mu.disk.complained = true
	o.mu.Unlock()
	if first {
		t.log.Warn("cache file is not as it was left, what is wrong is fetched again",
			"key", o.oss.Key, "etag", o.oss.ETag, "offset", off, "length", n, "error", err)
	}
}

// readError decides what an object file means that cannot be opened. It returns
// errGone, always: the bytes are to be had elsewhere.
func (t *objectFiles) readError(o *object, err error) error {
	switch {
	case errors.Is(err, errGone):
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, disk.ErrDamaged),
		errors.Is(err, unix.EISDIR), errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP):
		t.complain(o, 0, o.geometry.Size, err)
		t.discard(o)
	default:
		if !disk.Shortage(err) {
			t.health.ReadFailed(err)
		}
		o.mu.Lock()
		file := o.mu.disk.unload()
		o.mu.Unlock()
		if file != nil {
			file.Release()
		}
	}
	return errGone
}
