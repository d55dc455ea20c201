package cache

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pailfs/pailfs/cache/internal/content"
	"github.com/pailfs/pailfs/cache/internal/disk"
	"github.com/pailfs/pailfs/oss"
)

// object is what the cache knows of one object version. It exists while anything
// refers to it: a handle, an extent, a job of the SSD tier. What outlives it on
// SSD is found again through the index.
//
// Lock order: object.mu, then flight.mu or the mutex of a registry. Nothing that
// waits, and no call into ristretto, happens under object.mu: ristretto calls
// back and takes it.
type object struct {
	cache    *Cache
	oss      oss.Object
	id       content.Identity
	geometry content.Geometry

	refs atomic.Int64
	// waited is for how long reads have waited for flights, in nanoseconds.
	waited   atomic.Int64
	lastRead atomic.Int64 // nanoseconds on the cache's clock
	// never says that it is not to be kept.
	never bool

	// lives counts how often the content was found to be wrong after parts of it had
	// been returned.
	lives atomic.Uint64
	// diskLoaded is mu.disk.loaded, for a look without the lock.
	diskLoaded atomic.Bool

	mu struct {
		sync.Mutex
		handles  int
		segments []*segment
		wholeSum

		streams streams
		// ahead is how many extents are heldAhead.
		ahead  int
		around around

		disk diskState

		// changed, if somebody waits, is closed by notify.
		changed chan struct{}
	}
}

// wholeSum is what is known of the checksum of a whole object. Guarded by object.mu.
type wholeSum struct {
	// wholeSegments counts the segments whose CRC-64 is known.
	wholeSegments int
	// crc64 is what the object store says of the whole, if hasCRC64, and checked
	// that the content agreed with it.
	crc64    uint64
	hasCRC64 bool
	checked  bool
}

// acquire adds a reference; the caller must know that there is one already.
func (o *object) acquire() { o.refs.Add(1) }

// release drops a reference.
func (o *object) release() {
	if o.refs.Add(-1) == 0 {
		o.cache.objects.forget(o)
	}
}

// segment returns what is known of a segment. o.mu must be held.
func (o *object) segment(i int) *segment {
	for len(o.mu.segments) <= i {
		o.mu.segments = append(o.mu.segments, nil)
	}
	if o.mu.segments[i] == nil {
		o.mu.segments[i] = new(segment)
	}
	return o.mu.segments[i]
}

// peek returns what is known of a segment, or nil. o.mu must be held.
func (o *object) peek(i int) *segment {
	if i < len(o.mu.segments) {
		return o.mu.segments[i]
	}
	return nil
}

// small tells whether the object is fetched whole or not at all.
func (o *object) small() bool { return o.geometry.Size <= content.SmallObject }

// sum notes the checksums of blocks that arrived and of the whole object, as far
// as the object store said it, and compares. o.mu must be held.
func (o *object) sum(s content.Span, sums []content.Sums, said oss.RangeResult) error {
	if said.HasCRC64 {
		if o.mu.hasCRC64 && o.mu.crc64 != said.CRC64 {
			return o.corrupted("two checksums were given for one version")
		}
		o.mu.crc64, o.mu.hasCRC64 = said.CRC64, true
	}
	seg := o.segment(s.Segment)
	before := seg.whole
	for i, sum := range sums {
		if !seg.sum(o.geometry, s.Segment, s.First+i, sum) {
			return o.corrupted("a block arrived twice with different content")
		}
	}
	if seg.whole && !before {
		o.mu.wholeSegments++
	}
	return o.check()
}

// check compares the content with the checksum of the whole object as soon as
// both are known. o.mu must be held.
func (o *object) check() error {
	if o.mu.checked || !o.mu.hasCRC64 || o.mu.wholeSegments < o.geometry.Segments() {
		return nil
	}
	crc := o.mu.segments[0].hash
	for i, seg := range o.mu.segments[1:] {
		crc = content.CombineCRC64(crc, seg.hash, o.geometry.SegmentLen(i+1))
	}
	if crc != o.mu.crc64 {
		return o.corrupted(fmt.Sprintf("the content has CRC-64 %d, the object store says %d", crc, o.mu.crc64))
	}
	o.mu.checked = true
	if o.mu.disk.exists {
		o.cache.ssd.indexer.mark(o)
	}
	return nil
}

func (o *object) corrupted(why string) error {
	return fmt.Errorf("check %q, etag %s: %s: %w", o.oss.Key, o.oss.ETag, why, oss.ErrCorrupted)
}

// leftovers are what forget has taken out of use. They must be given to
// Cache.discard once object.mu is not held.
type leftovers struct {
	extents []*extent
	file    *disk.File
}

// forget drops all that is known of the content, in memory and on SSD. What is in
// flight stays: it is checked anew when it arrives. o.mu must be held.
func (o *object) forget() (l leftovers) {
	for _, seg := range o.mu.segments {
		if seg == nil {
			continue
		}
		kept := seg.extents[:0]
		for _, e := range seg.extents {
			if e.holds&heldFetching != 0 {
				kept = append(kept, e)
				continue
			}
			o.setHolds(e, 0)
			l.extents = append(l.extents, e)
		}
		clear(seg.extents[len(kept):])
		seg.extents = kept
		seg.forget()
	}
	o.mu.wholeSum = wholeSum{}
	if !o.small() {
		o.lives.Add(1)
	}
	l.file = o.mu.disk.block()
	return l
}

// setHolds changes why e stays in memory. o.mu must be held.
func (o *object) setHolds(e *extent, holds hold) {
	was, is := e.holds&heldAhead != 0, holds&heldAhead != 0
	e.holds = holds
	switch {
	case is && !was:
		o.mu.ahead++
		if o.mu.ahead == 1 {
			o.cache.ahead.add(o)
		}
	case was && !is:
		o.mu.ahead--
		if o.mu.ahead == 0 {
			o.cache.ahead.remove(o)
		}
	}
}

// unhold removes one reason for which e stays in memory, and e from memory if it
// was the last.
func (o *object) unhold(e *extent, reason hold) {
	o.mu.Lock()
	gone := o.unholdLocked(e, reason)
	o.mu.Unlock()
	if gone {
		e.release()
	}
}

// unholdLocked is unhold under o.mu. If it returns true, the caller must release e
// after unlocking.
func (o *object) unholdLocked(e *extent, reason hold) (gone bool) {
	if e.holds&reason == 0 {
		return false
	}
	o.setHolds(e, e.holds&^reason)
	if e.holds != 0 {
		return false
	}
	if seg := o.peek(e.span.Segment); seg != nil {
		seg.remove(e)
	}
	return true
}

// settle lets go of what was fetched for readers who did not come: the memory
// tier may keep it. It returns how many bytes that were.
func (o *object) settle() (bytes int64) {
	o.mu.Lock()
	var settled []*extent
	for _, seg := range o.mu.segments {
		if seg == nil || o.mu.ahead == 0 {
			continue
		}
		for _, e := range seg.extents {
			if e.holds&heldAhead != 0 && e.holds&heldFetching == 0 {
				o.setHolds(e, e.holds&^heldAhead|heldKept)
				e.acquire()
				settled = append(settled, e)
				bytes += e.cost
			}
		}
	}
	o.mu.Unlock()
	for _, e := range settled {
		o.cache.memory.keep(e)
		e.release()
	}
	return bytes
}

// touch notes that the object was read now.
func (o *object) touch() { o.lastRead.Store(int64(o.cache.now())) }

// idle returns for how long nobody has read the object.
func (o *object) idle() time.Duration {
	return o.cache.now() - time.Duration(o.lastRead.Load())
}

// objects finds the record of a version.
type objects struct {
	shards [64]struct {
		sync.Mutex
		table map[content.Identity]*object
	}
}

// get returns the record of obj, made if need be, with a reference.
func (t *objects) get(c *Cache, id content.Identity, obj oss.Object) *object {
	s := &t.shards[id.Shard(uint64(len(t.shards)))]
	s.Lock()
	defer s.Unlock()
	o := s.table[id]
	if o == nil {
		if s.table == nil {
			s.table = make(map[content.Identity]*object)
		}
		o = &object{cache: c, oss: obj, id: id, geometry: content.Geometry{Size: obj.Size}}
		o.mu.disk.object, o.mu.streams.object = o, o
		o.never = c.never != nil && c.never(obj.Key)
		s.table[id] = o
	}
	o.refs.Add(1)
	return o
}

// find returns the record with that identity, with a reference, or nil.
func (t *objects) find(id content.Identity) *object {
	s := &t.shards[id.Shard(uint64(len(t.shards)))]
	s.Lock()
	defer s.Unlock()
	o := s.table[id]
	if o != nil {
		o.refs.Add(1)
	}
	return o
}

// forget removes a record that nobody refers to.
func (t *objects) forget(o *object) {
	s := &t.shards[o.id.Shard(uint64(len(t.shards)))]
	s.Lock()
	defer s.Unlock()
	if o.refs.Load() == 0 && s.table[o.id] == o {
		delete(s.table, o.id)
	}
}

// count returns the number of records.
func (t *objects) count() int {
	n := 0
	for i := range t.shards {
		t.shards[i].Lock()
		n += len(t.shards[i].table)
		t.shards[i].Unlock()
	}
	return n
}

// aheadObjects are those that hold memory for readers who have yet to come by.
type aheadObjects struct {
	mu struct {
		sync.Mutex
		set map[*object]struct{}
	}
}

func (a *aheadObjects) add(o *object) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.mu.set == nil {
		a.mu.set = make(map[*object]struct{})
	}
	a.mu.set[o] = struct{}{}
}

func (a *aheadObjects) remove(o *object) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.mu.set, o)
}

// idle returns those that nobody has read for that long, with a reference.
func (a *aheadObjects) idle(d time.Duration) []*object {
	a.mu.Lock()
	defer a.mu.Unlock()
	var idle []*object
	for o := range a.mu.set {
		if o.idle() >= d {
			// Its extents refer to it, and they are still there: they cannot leave
			// without remove.
			o.acquire()
			idle = append(idle, o)
		}
	}
	return idle
}
