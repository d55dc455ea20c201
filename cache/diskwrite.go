package cache

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
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

// writeBehind writes extents to the files of their objects, behind the reads that brought
// them.
type writeBehind struct {
	queue     *writeQueue
	files     *objectFiles
	indexer   *indexer
	evictor   *evictor
	residents *eviction.Residents
	health    *disk.Health
	metrics   *metrics

	// noDirect says that files cannot be written past the page cache.
	noDirect atomic.Bool
	loops    sync.WaitGroup
}

func newWriteBehind(t *ssdTier, queueBytes int64) *writeBehind {
	return &writeBehind{
		queue: newWriteQueue(queueBytes), files: t.files, indexer: t.indexer, evictor: t.evictor,
		residents: t.residents, health: t.health, metrics: t.metrics,
	}
}

// start starts the goroutines that write.
func (w *writeBehind) start() {
	for range diskWriters {
		w.loops.Go(w.run)
	}
}

// drain returns when what waits is written. Nothing may be submitted any more.
func (w *writeBehind) drain() {
	w.queue.close()
	w.loops.Wait()
}

// accepts tells whether the blocks of o that have come may be submitted, and
// counts them as about to be. o.mu must be held.
func (w *writeBehind) accepts(o *object) bool {
	if o.never || !w.health.Writable() {
		return false
	}
	d := &o.mu.disk
	if !d.loaded || d.blocked {
		return false
	}
	d.writing++
	return true
}

// wants tells whether e, which is in memory, should be written and is not about to
// be; if so it counts it as accepts does. o.mu must be held.
func (w *writeBehind) wants(o *object, e *extent) bool {
	if e.flight != nil || e.holds&heldWriting != 0 || e.holds == 0 ||
		o.segment(e.span.Segment).disk.HasAll(e.span.First, e.span.End) {
		return false
	}
	if e.offers == maxOffers && time.Since(e.offered) < offerAgain {
		return false
	}
	if !w.queue.hasRoom(e.cost) || !w.accepts(o) {
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
func (w *writeBehind) submit(ctx context.Context, e *extent, fetch *fetchJob) {
	e.acquire()
	for {
		ok, room := w.queue.push(writeJob{e, fetch})
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
		w.written(writeJob{e, fetch}, err)
		return
	}
}

// shed drops what waits to be written because readers wait for that many bytes, or
// because others would like to fetch. Those leave it half of the queue.
func (w *writeBehind) shed(urgentBytes int64, pressed bool) {
	bytes := urgentBytes
	if pressed {
		bytes = max(bytes, min(2*content.SegmentSize, w.queue.waiting()-w.queue.limit/2))
	}
	if bytes <= 0 {
		return
	}
	for _, j := range w.queue.shed(bytes) {
		w.written(j, errQueueFull)
	}
}

// run writes jobs until the queue is closed and empty.
func (w *writeBehind) run() {
	for {
		j, ok := w.queue.pop()
		if !ok {
			return
		}
		cost := j.extent.cost
		err := w.write(j)
		w.written(j, err)
		w.queue.done(cost)
	}
}

// written ends a job.
func (w *writeBehind) written(j writeJob, err error) {
	e := j.extent
	o := e.object
	if err != nil {
		w.metrics.dropped.Add(1)
		w.metrics.droppedBytes.Add(e.object.geometry.Length(e.span))
	}
	o.mu.Lock()
	o.mu.disk.writing--
	if errors.Is(err, errDiskFull) {
		o.mu.around.refused = true
	}
	idle := o.mu.disk.idleFile()
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
		w.evictor.dropEmpty(o)
	}
	if gone {
		e.release()
	}
	e.release()
}

// write writes the blocks of an extent that are not on SSD yet. An extent that is
// not held for it any more was thrown away with content that was found wrong, and
// must not come back as part of what is fetched anew.
func (w *writeBehind) write(j writeJob) error {
	e := j.extent
	o := e.object
	if !w.health.Writable() {
		return errNotOK
	}
	o.mu.Lock()
	if o.mu.disk.blocked || !o.mu.disk.loaded || e.holds&heldWriting == 0 {
		o.mu.Unlock()
		return errBusy
	}
	missing := o.mu.disk.missing(e.span)
	o.mu.Unlock()
	if len(missing) == 0 {
		return nil
	}
	for _, s := range missing {
		if err := w.writeSpan(e, s, j.fetch); err != nil {
			return err
		}
	}
	return nil
}

// missing returns the runs of blocks in s that are not on SSD. o.mu must be held.
func (d *diskState) missing(s content.Span) (runs []content.Span) {
	o := d.object
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
func (w *writeBehind) writeSpan(e *extent, s content.Span, fetch *fetchJob) error {
	o := e.object
	bytes := content.OnDisk(o.geometry.Length(s))
	if fetch == nil {
		if err := w.reserve(o.id, bytes); err != nil {
			return err
		}
	} else {
		o.mu.Lock()
		fetch.credit -= bytes
		o.mu.Unlock()
	}
	err := w.pwrite(e, s)
	if err != nil {
		w.residents.Unreserve(o.id, bytes)
	}
	return err
}

// reserve takes room for bytes of an object. It waits for an eviction of the same
// object to end, which takes a moment, but not for room.
func (w *writeBehind) reserve(id content.Identity, bytes int64) error {
	answer, _ := w.residents.Reserve(id, bytes, false)
	if answer == eviction.Busy {
		deadline := time.NewTimer(busyWait)
		defer deadline.Stop()
		for waiting := true; waiting && answer == eviction.Busy; {
			gone := w.residents.WaitRoom()
			answer, _ = w.residents.Reserve(id, bytes, false)
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
func (w *writeBehind) pwrite(e *extent, s content.Span) error {
	o := e.object
	f, err := w.files.open(o, true)
	if err != nil {
		if !errors.Is(err, errGone) {
			err = w.writeError(o, err)
		}
		return err
	}
	defer f.Release()
	off, n := o.geometry.Offset(s), o.geometry.Length(s)
	slot := w.health.Begin()
	err = w.writeBlocks(f, e.slice(off, n), off)
	w.health.End(slot)
	if err != nil {
		o.mu.Lock()
		if o.mu.disk.blocks == 0 {
			o.mu.disk.exists = false // it may be shorter than the object
		}
		o.mu.Unlock()
		return w.writeError(o, err)
	}
	w.metrics.writtenBytes.Add(n)

	o.mu.Lock()
	defer o.mu.Unlock()
	d := &o.mu.disk
	if d.blocked || !d.loaded || d.inode != f.Inode || e.holds&heldWriting == 0 {
		return errBusy
	}
	d.exists = true // another part may have met an error, and been the first to
	o.mu.disk.add(s)
	w.indexer.mark(o)
	return nil
}

// writeError notes that the disk does not take what it should.
func (w *writeBehind) writeError(o *object, err error) error {
	if !disk.Shortage(err) {
		w.health.WriteFailed(err)
	}
	if disk.NoSpace(err) {
		w.evictor.crowded()
	}
	return fmt.Errorf("write cache file of %q: %w", o.oss.Key, err)
}
