package cache

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/pailfs/pailfs/cache/internal/content"
	"github.com/pailfs/pailfs/cache/internal/disk"
	"github.com/pailfs/pailfs/cache/internal/eviction"
)

const (
	// diskWriters is how many extents are written at once.
	diskWriters = 4
	// maxOffers is how often an extent that was dropped is offered again at once.
	// Then it is after every offerAgain: a disk that was full for a while gets what
	// stayed in memory all that time.
	maxOffers  = 3
	offerAgain = 10 * time.Second
	// busyWait is how long a write waits for an object to be gone that is being
	// evicted.
	busyWait = time.Second
)

// writeJob is an extent that waits to be written. It holds a reference.
type writeJob struct {
	extent *extent
	fetch  *fetchJob // nil if nobody waits for it
}

// writeQueue holds what waits to be written, up to a number of bytes. Writing
// trails behind reading; where the disk cannot keep up, what was read for demand
// is not written at all, and what was fetched for SSD waits.
type writeQueue struct {
	limit int64
	mu    struct {
		sync.Mutex
		jobs   []writeJob
		bytes  int64
		closed bool
		// more is closed when a job comes, room when there is room again.
		more, room chan struct{}
	}
}

func newWriteQueue(limit int64) *writeQueue {
	return &writeQueue{limit: limit}
}

// push adds a job if there is room, or returns a channel that is closed when there
// may be. A closed queue takes nothing and returns neither.
func (q *writeQueue) push(j writeJob) (ok bool, room <-chan struct{}) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch cost := j.extent.cost; {
	case q.mu.closed:
		return false, nil
	case q.mu.bytes > 0 && q.mu.bytes+cost > q.limit:
		if q.mu.room == nil {
			q.mu.room = make(chan struct{})
		}
		return false, q.mu.room
	default:
		q.mu.jobs = append(q.mu.jobs, j)
		q.mu.bytes += cost
		if q.mu.more != nil {
			close(q.mu.more)
			q.mu.more = nil
		}
		return true, nil
	}
}

// pop waits for a job; false says that there will be none.
func (q *writeQueue) pop() (writeJob, bool) {
	for {
		q.mu.Lock()
		if len(q.mu.jobs) > 0 {
			j := q.mu.jobs[0]
			q.mu.jobs[0] = writeJob{}
			q.mu.jobs = q.mu.jobs[1:]
			q.mu.Unlock()
			return j, true
		}
		if q.mu.closed {
			q.mu.Unlock()
			return writeJob{}, false
		}
		if q.mu.more == nil {
			q.mu.more = make(chan struct{})
		}
		more := q.mu.more
		q.mu.Unlock()
		<-more
	}
}

// done gives back the room of a job that was popped.
func (q *writeQueue) done(cost int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.mu.bytes -= cost
	if q.mu.room != nil {
		close(q.mu.room)
		q.mu.room = nil
	}
}

// shed removes the oldest jobs that nobody waits for, until that many bytes are
// free.
func (q *writeQueue) shed(bytes int64) (dropped []writeJob) {
	q.mu.Lock()
	defer q.mu.Unlock()
	kept := q.mu.jobs[:0]
	for _, j := range q.mu.jobs {
		if bytes <= 0 || j.fetch != nil {
			kept = append(kept, j)
			continue
		}
		bytes -= j.extent.cost
		q.mu.bytes -= j.extent.cost
		dropped = append(dropped, j)
	}
	clear(q.mu.jobs[len(kept):])
	q.mu.jobs = kept
	return dropped
}

// close lets pop return false once the queue is empty.
func (q *writeQueue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.mu.closed = true
	if q.mu.more != nil {
		close(q.mu.more)
		q.mu.more = nil
	}
	if q.mu.room != nil {
		close(q.mu.room)
		q.mu.room = nil
	}
}

// waiting returns the bytes that wait or are being written.
func (q *writeQueue) waiting() int64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.mu.bytes
}

// hasRoom tells whether a job of that cost would be taken now.
func (q *writeQueue) hasRoom(cost int64) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return !q.mu.closed && q.mu.bytes+cost <= q.limit
}

// The reasons for which an extent is not written.
var (
	errQueueFull = errors.New("the disk cannot keep up")
	errDiskFull  = errors.New("no room in the SSD tier")
	errBusy      = errors.New("object is being evicted, or its content was thrown away")
	errNotOK     = errors.New("the disk is not ok")
)

// wants tells whether e, which is in memory, should be written and is not about to
// be; if so it counts it as accepts does. o.mu must be held.
func (t *ssdTier) wants(o *object, e *extent) bool {
	if t == nil || e.flight != nil || e.holds&heldWriting != 0 || e.holds == 0 ||
		o.segment(e.span.Segment).disk.HasAll(e.span.First, e.span.End) {
		return false
	}
	if e.offers == maxOffers && time.Since(e.offered) < offerAgain {
		return false
	}
	if !t.queue.hasRoom(e.cost) || !t.accepts(o) {
		return false
	}
	if e.offers < maxOffers {
		e.offers++
	}
	if e.offers == maxOffers {
		e.offered = time.Now()
	}
	return true
}

// submit queues e, which accepts has counted, to be written. Without a fetch it
// never blocks: where there is no room e is dropped.
func (t *ssdTier) submit(ctx context.Context, e *extent, fetch *fetchJob) {
	e.acquire()
	for {
		ok, room := t.queue.push(writeJob{e, fetch})
		if ok {
			return
		}
		err := errQueueFull
		if room == nil {
			err = errClosed
		}
		if fetch != nil && room != nil {
			select {
			case <-room:
				continue
			case <-ctx.Done():
				err = ctx.Err()
			}
		}
		t.written(writeJob{e, fetch}, err)
		return
	}
}

// shed drops what waits to be written because readers wait for that many bytes, or
// because others would like to fetch. Those leave it half of the queue.
func (t *ssdTier) shed(urgentBytes int64, pressed bool) {
	if t == nil {
		return
	}
	bytes := urgentBytes
	if pressed {
		bytes = max(bytes, min(2*content.SegmentSize, t.queue.waiting()-t.queue.limit/2))
	}
	if bytes <= 0 {
		return
	}
	for _, j := range t.queue.shed(bytes) {
		t.written(j, errQueueFull)
	}
}

// runWriter writes jobs until the queue is closed and empty.
func (t *ssdTier) runWriter() {
	for {
		j, ok := t.queue.pop()
		if !ok {
			return
		}
		cost := j.extent.cost
		err := t.write(j)
		t.written(j, err)
		t.queue.done(cost)
	}
}

// written ends a job.
func (t *ssdTier) written(j writeJob, err error) {
	e := j.extent
	o := e.object
	if err != nil {
		t.metrics.dropped.Add(1)
		t.metrics.droppedBytes.Add(e.object.geometry.Length(e.span))
	}
	o.mu.Lock()
	o.mu.disk.writing--
	if errors.Is(err, errDiskFull) {
		o.mu.around.refused = true
	}
	idle := o.idleFile()
	gone := o.unholdLocked(e, heldWriting)
	if j.fetch != nil {
		j.fetch.ended(err)
	}
	o.notify()
	o.mu.Unlock()
	if idle != nil {
		idle.Release()
	}
	if err != nil {
		t.dropEmpty(o)
	}
	if gone {
		e.release()
	}
	e.release()
}

// write writes the blocks of an extent that are not on SSD yet. An extent that is
// not held for it any more was thrown away with content that was found wrong, and
// must not come back as part of what is fetched anew.
func (t *ssdTier) write(j writeJob) error {
	e := j.extent
	o := e.object
	if !t.health.Writable() {
		return errNotOK
	}
	o.mu.Lock()
	if o.mu.disk.blocked || !o.mu.disk.loaded || e.holds&heldWriting == 0 {
		o.mu.Unlock()
		return errBusy
	}
	missing := o.missing(e.span)
	o.mu.Unlock()
	if len(missing) == 0 {
		return nil
	}
	for _, s := range missing {
		if err := t.writeSpan(e, s, j.fetch); err != nil {
			return err
		}
	}
	return nil
}

// missing returns the runs of blocks in s that are not on SSD. o.mu must be held.
func (o *object) missing(s content.Span) (runs []content.Span) {
	seg := o.segment(s.Segment)
	for block := s.First; block < s.End; {
		stop := seg.disk.Run(block, s.End)
		if !seg.disk.Has(block) {
			runs = append(runs, content.Span{Segment: s.Segment, First: block, End: stop})
		}
		block = stop
	}
	return runs
}

// writeSpan writes a run of blocks of e.
func (t *ssdTier) writeSpan(e *extent, s content.Span, fetch *fetchJob) error {
	o := e.object
	bytes := content.OnDisk(o.geometry.Length(s))
	if fetch == nil {
		if err := t.reserve(o.id, bytes); err != nil {
			return err
		}
	} else {
		o.mu.Lock()
		fetch.credit -= bytes
		o.mu.Unlock()
	}
	err := t.pwrite(e, s)
	if err != nil {
		t.residents.Unreserve(o.id, bytes)
	}
	return err
}

// reserve takes room for bytes of an object. It waits for an eviction of the same
// object to end, which takes a moment, but not for room.
func (t *ssdTier) reserve(id content.Identity, bytes int64) error {
	answer, _ := t.residents.Reserve(id, bytes, false)
	if answer == eviction.Busy {
		deadline := time.NewTimer(busyWait)
		defer deadline.Stop()
		for waiting := true; waiting && answer == eviction.Busy; {
			gone := t.residents.WaitRoom()
			answer, _ = t.residents.Reserve(id, bytes, false)
			if answer == eviction.Busy {
				select {
				case <-gone:
				case <-deadline.C:
					waiting = false
				}
			}
		}
	}
	switch answer {
	case eviction.Full:
		return errDiskFull
	case eviction.Busy:
		return errBusy
	}
	return nil
}

// pwrite writes to the file and notes that the blocks are there.
func (t *ssdTier) pwrite(e *extent, s content.Span) error {
	o := e.object
	f, err := t.open(o, true)
	if err != nil {
		if !errors.Is(err, errGone) {
			err = t.writeError(o, err)
		}
		return err
	}
	defer f.Release()
	off, n := o.geometry.Offset(s), o.geometry.Length(s)
	slot := t.health.Begin()
	err = t.writeBlocks(f, e.slice(off, n), off)
	t.health.End(slot)
	if err != nil {
		o.mu.Lock()
		if o.mu.disk.blocks == 0 {
			o.mu.disk.exists = false // it may be shorter than the object
		}
		o.mu.Unlock()
		return t.writeError(o, err)
	}
	t.metrics.writtenBytes.Add(n)

	o.mu.Lock()
	defer o.mu.Unlock()
	d := &o.mu.disk
	if d.blocked || !d.loaded || d.inode != f.Inode || e.holds&heldWriting == 0 {
		return errBusy
	}
	d.exists = true // another part may have met an error, and been the first to
	o.setDisk(s)
	t.mark(o)
	return nil
}

// writeError notes that the disk does not take what it should.
func (t *ssdTier) writeError(o *object, err error) error {
	if !disk.Shortage(err) {
		t.health.WriteFailed(err)
	}
	if disk.NoSpace(err) {
		t.crowded()
	}
	return fmt.Errorf("write cache file of %q: %w", o.oss.Key, err)
}
