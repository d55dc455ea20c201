package cache

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pailfs/pailfs/cache/internal/content"
	"github.com/pailfs/pailfs/cache/internal/disk"
	"github.com/pailfs/pailfs/cache/internal/eviction"
	"github.com/pailfs/pailfs/oss"
)

// adoptWait is how long Adopt waits for eviction to make room.
const adoptWait = 10 * time.Second

// Adopt makes the file at path, which nobody changes any more, the cache's file of
// obj, whole, without a copy: path is renamed. It reads the file once, for the
// checksums of its blocks, and compares its CRC-64 with crc64, which the object
// store gave for obj. The end of ctx ends that soon.
//
// It returns false, and leaves the file alone, where the cache does not want it:
// there is no SSD tier, no room, or something of obj is in it already. The error is
// [oss.ErrCorrupted] if the file is not the content of obj, one of reading it, or ctx's.
// A lease on the file must be given up at once: the cache opens it for writing.
func (c *Cache) Adopt(ctx context.Context, obj oss.Object, crc64 uint64, path string) (adopted bool, err error) {
	o, err := c.object(obj)
	if err != nil {
		return false, err
	}
	defer o.release()
	if c.ssd == nil || obj.Size == 0 || !c.ssd.health.Writable() || !c.ssd.sameFileSystem(path) {
		return false, nil
	}
	adopted, err = c.ssd.adopt(ctx, o, crc64, path)
	if err != nil {
		return false, fmt.Errorf("adopt %q as %q: %w", path, obj.Key, err)
	}
	return adopted, nil
}

func (t *ssdTier) adopt(ctx context.Context, o *object, crc64 uint64, path string) (bool, error) {
	t.residents.Undrop(o.id)
	if t.residents.State(o.id) != eviction.Absent {
		return false, nil
	}
	f, err := os.OpenFile(path, os.O_RDONLY, 0)
	if err != nil {
		return false, err
	}
	defer func() { _ = f.Close() }() // only read
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return false, err
	}
	if st.Size != o.geometry.Size {
		return false, fmt.Errorf("it has %d bytes, the object %d: %w", st.Size, o.geometry.Size, oss.ErrCorrupted)
	}
	sums, err := sumFile(ctx, f, o.geometry, crc64)
	if err != nil {
		return false, err
	}
	// The file need not be on the disk: the index speaks of it when it is.
	if !t.roomFor(ctx, o) {
		return false, ctx.Err()
	}
	epoch, entered := t.enter(o)
	if !entered {
		t.residents.Unreserve(o.id, content.OnDisk(o.geometry.Size))
		t.evictor.dropEmpty(o)
		return false, nil
	}
	err = t.fs.MoveIn(path, disk.FileName(o.id))
	o.mu.Lock()
	alone := o.mu.disk.blocked && o.mu.disk.epoch == epoch // nobody threw the object away meanwhile
	o.mu.disk.blocked = false
	ok := err == nil && alone && o.mu.disk.install(sums, crc64, disk.InodeOf(f, st.Ino))
	o.notify()
	o.mu.Unlock()
	switch {
	case ok:
		t.metrics.adopted.Add(1)
		return true, nil
	case err == nil:
		// What is known of the object is not what the file holds: neither is kept.
		t.evictor.discard(o)
		return false, fmt.Errorf("others had other content: %w", oss.ErrCorrupted)
	}
	if r := t.residents.Take(o.id); r != nil {
		t.residents.Gone([]*eviction.Resident{r})
	}
	t.health.WriteFailed(err)
	return false, err
}

// sumFile returns the checksums of the blocks of f, segment by segment, if its
// CRC-64 is crc64.
func sumFile(ctx context.Context, f io.ReaderAt, g content.Geometry, crc64 uint64) ([][]content.Sums, error) {
	sums := make([][]content.Sums, g.Segments())
	buf := make([]byte, min(content.SegmentBlocks/8*content.BlockSize, g.Size))
	all := uint64(0)
	for i := range sums {
		for first := 0; first < g.Blocks(i); {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			s := content.Span{Segment: i, First: first, End: min(first+content.SegmentBlocks/8, g.Blocks(i))}
			p := buf[:g.Length(s)]
			if n, err := f.ReadAt(p, g.Offset(s)); n < len(p) {
				return nil, fmt.Errorf("read at %d: %w", g.Offset(s), errors.Join(err, io.ErrUnexpectedEOF))
			}
			for j, sum := range content.SumBlocks(p) {
				all = content.CombineCRC64(all, sum.CRC64, g.Length(content.Span{Segment: i, First: first + j, End: first + j + 1}))
				sums[i] = append(sums[i], sum)
			}
			first = s.End
		}
	}
	if all != crc64 {
		return nil, fmt.Errorf("it has CRC-64 %d, the object store said %d: %w", all, crc64, oss.ErrCorrupted)
	}
	return sums, nil
}

// roomFor takes room for the whole of o, of which nothing is there, waiting a while
// for an eviction.
func (t *ssdTier) roomFor(ctx context.Context, o *object) bool {
	bytes := content.OnDisk(o.geometry.Size)
	deadline := time.NewTimer(adoptWait)
	defer deadline.Stop()
	for {
		room := t.residents.WaitRoom()
		answer, created := t.residents.Reserve(o.id, bytes, false)
		switch {
		case created:
			return true
		case answer == eviction.Reserved:
			t.residents.Unreserve(o.id, bytes)
			return false
		case answer == eviction.Busy:
			return false
		}
		if _, _, limit := t.residents.Usage(); bytes+eviction.Overhead > limit {
			return false
		}
		select {
		case <-room:
		case <-deadline.C:
			return false
		case <-ctx.Done():
			return false
		case <-o.cache.ctx.Done():
			return false
		}
	}
}

// enter blocks the use of o's file until one has been put in its place. It returns
// false if somebody else is about to make one.
func (t *ssdTier) enter(o *object) (epoch int, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	d := &o.mu.disk
	if d.blocked || d.exists || d.blocks > 0 || d.writing > 0 || d.fetching > 0 || d.opening != nil {
		return 0, false
	}
	o.mu.disk.unload()
	d.blocked = true
	return d.epoch, true
}

// install notes that the file with that inode has every block. It returns false if
// the checksums do not agree with what is known of the object. o.mu must be held.
func (d *diskState) install(sums [][]content.Sums, crc64 uint64, file disk.Inode) bool {
	o := d.object
	if o.mu.hasCRC64 && o.mu.crc64 != crc64 {
		return false
	}
	d.loaded, d.exists, d.moved, d.inode = true, true, true, file
	o.diskLoaded.Store(true)
	for i := range sums {
		seg := o.segment(i)
		whole := seg.whole
		for block, sum := range sums[i] {
			if !seg.sum(o.geometry, i, block, sum) {
				return false
			}
		}
		if seg.whole && !whole {
			o.mu.wholeSegments++
		}
		d.add(o.geometry.Whole(i))
	}
	o.mu.crc64, o.mu.hasCRC64, o.mu.checked = crc64, true, true
	d.rememberChecked()
	o.cache.ssd.indexer.mark(o)
	return true
}
