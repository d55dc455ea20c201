package cache

import (
	"context"
	"errors"
	"io/fs"
	"math"
	"time"

	"github.com/pailfs/pailfs/cache/internal/content"
	"github.com/pailfs/pailfs/cache/internal/disk"
	"github.com/pailfs/pailfs/cache/internal/eviction"
)

const (
	// lookEvery is how often the evictor looks at the file system, which others fill
	// as well.
	lookEvery = 5 * time.Second
	// evictBatch is how many objects leave the index in one transaction.
	evictBatch = 256
	// evictAgain is after how long the evictor looks again when somebody waits for
	// room and what could go was in use: being written, say. The time doubles up to
	// evictAgainMost.
	evictAgain     = 20 * time.Millisecond
	evictAgainMost = time.Second
	// yieldFor is how long the room made by MakeRoom is left to whoever asked.
	yieldFor = 30 * time.Second
)

// evictRequest asks for bytes to be freed, whatever is wanted.
type evictRequest struct {
	bytes int64
	freed chan<- int64
}

// crowded asks the evictor to look.
func (t *ssdTier) crowded() {
	select {
	case t.full <- struct{}{}:
	default:
	}
}

// makeRoom frees bytes, whatever is wanted, and returns how many it freed.
func (t *ssdTier) makeRoom(ctx context.Context, bytes int64) int64 {
	if t == nil || bytes <= 0 {
		return 0
	}
	freed := make(chan int64, 1)
	select {
	case t.evictions <- evictRequest{bytes, freed}:
		return <-freed
	case <-ctx.Done():
		return 0
	}
}

// runEvictor evicts when asked to and when the disk fills up. Only its goroutine
// does.
func (t *ssdTier) runEvictor(ctx context.Context) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	var y yielded
	var again <-chan time.Time
	wait := evictAgain
	for {
		force, request := int64(0), evictRequest{}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-t.full:
		case <-again:
			t.residents.Changed()
		case request = <-t.evictions:
			force = request.bytes
		}
		if force > 0 {
			freed, _, _ := t.evict(force, 0, eviction.TakeHeld)
			request.freed <- freed
			y = t.yield(force)
		}
		t.evictDropped()
		if t.look(y) {
			again = time.After(wait)
			wait = min(2*wait, evictAgainMost)
		} else {
			again, wait = nil, evictAgain
		}
	}
}

// yielded is room that was made for others: free space is to be left as high as
// it was then, less what they have used of it since.
type yielded struct {
	bytes, free int64
	until       time.Time
}

// yield remembers that bytes were freed for others.
func (t *ssdTier) yield(bytes int64) yielded {
	space, err := t.fs.Space()
	if err != nil {
		return yielded{}
	}
	return yielded{bytes: bytes, free: space.FreeBytes, until: time.Now().Add(yieldFor)}
}

// left returns how much of the room has not been used.
func (y yielded) left(free int64) int64 {
	if time.Now().After(y.until) {
		return 0
	}
	return max(0, y.bytes-max(0, y.free-free))
}

// look evicts what is beyond the limits. It tells whether it found too little
// because something was in use.
func (t *ssdTier) look(y yielded) (again bool) {
	space, err := t.fs.Space()
	if err != nil {
		t.health.ReadFailed(err)
		return false
	}
	t.updateLimit(space, y.left(space.FreeBytes))
	excess, keen := t.residents.Excess()
	freed, _, inUse := t.evict(excess, 0, keen)
	// What must stay free for others comes before what is wanted here.
	if short := t.minFreeBytes - space.FreeBytes; short > 0 {
		t.evict(short, 0, eviction.TakeHeld)
	}
	if short := t.minFreeInodes - space.FreeInodes; short > 0 && space.Inodes > 0 {
		t.evict(0, short, eviction.TakeHeld)
	}
	return freed < excess && inUse > 0
}

// updateLimit sets how much the tier may hold: as configured, less what others keep
// beside it, but no more than leaves the file system its free space, and what was yielded.
func (t *ssdTier) updateLimit(space disk.Space, yielded int64) {
	_, size, _ := t.residents.Usage()
	t.residents.SetLimit(max(0, min(t.size-t.beside(), size+space.FreeBytes-t.minFreeBytes-yielded)))
}

// evict removes objects until that many bytes and files are freed, or nothing can
// go. It returns what it freed, and how many it found in use.
func (t *ssdTier) evict(bytes, files int64, keen eviction.Keenness) (freedBytes, freedFiles int64, inUse int) {
	// Each that is in use comes round once.
	t.residents.NewRound()
	tries, _, _ := t.residents.Usage()
	var batch []*eviction.Resident
	flush := func() {
		if len(batch) > 0 {
			t.removeFiles(batch)
			batch = nil
		}
	}
	for ; (freedBytes < bytes || freedFiles < files) && tries > 0; tries-- {
		e := t.residents.Pick(keen)
		if e == nil {
			break
		}
		if !t.detach(e.ID) {
			t.residents.PutBack(e)
			inUse++
			continue
		}
		batch = append(batch, e)
		freedBytes += e.Size
		freedFiles++
		if len(batch) == evictBatch {
			flush()
		}
	}
	flush()
	if freedFiles > 0 {
		t.metrics.evicted.Add(freedFiles)
		t.metrics.evictedBytes.Add(freedBytes)
	}
	return freedBytes, freedFiles, inUse
}

// detach makes the object forget its file, unless somebody needs it. It is marked
// as leaving by then: whoever opens it now does not find the file.
func (t *ssdTier) detach(id content.Identity) bool {
	o := t.objects.find(id)
	if o == nil {
		return true
	}
	defer o.release()
	o.mu.Lock()
	d := &o.mu.disk
	busy := o.mu.handles > 0 || d.writing > 0 || d.fetching > 0 || d.blocked || d.verifying
	var file *disk.File
	if !busy {
		file = o.unload()
	}
	o.mu.Unlock()
	if file != nil {
		file.Release()
	}
	return !busy
}

// unload forgets what is known of the file, which stays as it is, and returns it
// to be released if it is open. o.mu must be held.
func (o *object) unload() (file *disk.File) {
	for _, seg := range o.mu.segments {
		if seg != nil {
			seg.disk, seg.indexed, seg.trusted = content.BlockSet{}, content.BlockSet{}, content.BlockSet{}
		}
	}
	d := &o.mu.disk
	file = d.file
	*d = diskState{
		epoch:   d.epoch + 1,
		writing: d.writing, fetching: d.fetching,
		reading: d.reading, handedOut: d.handedOut,
		dirty: d.dirty, verifying: d.verifying, opening: d.opening,
	}
	o.diskLoaded.Store(false)
	return file
}

// removeFiles removes objects that are marked as leaving: from the index first,
// durably, then from the disk.
func (t *ssdTier) removeFiles(leaving []*eviction.Resident) {
	ids := make([]content.Identity, len(leaving))
	for i, e := range leaving {
		ids[i] = e.ID
		t.checked.Remove(e.ID)
	}
	t.indexing.Lock()
	err := t.index.Remove(ids)
	t.indexing.Unlock()
	if err != nil {
		// The space is needed all the same. A record without a file is noticed when it
		// is read.
		t.indexFailed(err)
	}
	for _, id := range ids {
		if err := t.fs.Remove(disk.FileName(id)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.health.WriteFailed(err)
		}
	}
	t.residents.Gone(leaving)
}

// blockDisk stops all use of the file, whose content is to be thrown away, and
// returns it to be released if it is open. o.mu must be held; discard must be
// called after unlocking.
func (o *object) blockDisk() (file *disk.File) {
	if o.cache.ssd == nil {
		return nil
	}
	file = o.unload()
	o.mu.disk.blocked = true
	return file
}

// discard throws away what SSD has of o.
func (t *ssdTier) discard(o *object) {
	if t == nil {
		return
	}
	o.mu.Lock()
	file := o.blockDisk()
	o.mu.Unlock()
	if file != nil {
		file.Release()
	}
	if e := t.residents.Take(o.id); e != nil {
		t.removeFiles([]*eviction.Resident{e})
	}
	o.mu.Lock()
	o.mu.disk.blocked = false
	o.notify()
	o.mu.Unlock()
}

// dropEmpty removes an object that has room and nothing to fill it with: the
// first write has failed.
func (t *ssdTier) dropEmpty(o *object) {
	if t == nil {
		return
	}
	o.mu.Lock()
	d := &o.mu.disk
	empty := d.loaded && !d.blocked && d.blocks == 0 && d.writing == 0 && d.fetching == 0 && !d.dirty
	var file *disk.File
	if empty {
		file = o.unload()
	}
	o.mu.Unlock()
	if file != nil {
		file.Release()
	}
	if !empty {
		return
	}
	if e := t.residents.TakeEmpty(o.id); e != nil {
		t.removeFiles([]*eviction.Resident{e})
	}
}

// sweep removes files that the index does not know: what was written and not
// indexed before a crash.
func (t *ssdTier) sweep(ctx context.Context) {
	removed := 0
	for _, dir := range t.names(disk.ObjectsName) {
		for _, name := range t.names(disk.ObjectsName + "/" + dir) {
			if ctx.Err() != nil {
				return
			}
			id, ok := disk.ParseFileName(dir, name)
			if !ok {
				continue // not ours
			}
			if e := t.residents.Shield(id); e != nil {
				if t.fs.Remove(disk.FileName(id)) == nil {
					removed++
				}
				t.residents.Gone([]*eviction.Resident{e})
			}
		}
	}
	if removed > 0 {
		t.log.Info("removed cache files that a crash had left", "dir", t.dir, "count", removed)
	}
}

func (t *ssdTier) names(dir string) []string {
	names, err := t.fs.List(dir)
	if err != nil {
		t.health.ReadFailed(err)
	}
	return names
}

// unlimited is the size of a tier that is bounded by its file system alone. It
// leaves room for sums.
const unlimited = math.MaxInt64 / 4
