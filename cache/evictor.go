package cache

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
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

// minSSD is the least room with which an SSD tier makes sense.
const minSSD = 4 << 20

// evictor takes object files out of use and away: what is beyond the limits, what others
// need the room of, and what is found wrong.
type evictor struct {
	fs        disk.FileSystem
	dir       string
	residents *eviction.Residents
	objects   *objects
	indexer   *indexer
	files     *objectFiles
	health    *disk.Health
	log       *slog.Logger
	metrics   *metrics

	size, minFreeBytes, minFreeInodes int64
	// beside is what others keep in the directory that counts in size.
	beside func() int64

	evictions chan evictRequest
	full      chan struct{} // asks it to look
}

// newEvictor returns the evictor of t, which has yet to be given its residents, indexer and
// files: those tell it when they need room.
func newEvictor(cfg Config, t *ssdTier, objects *objects) *evictor {
	return &evictor{
		fs: t.fs, dir: t.dir, objects: objects, health: t.health, log: t.log, metrics: t.metrics,
		size: cfg.Size, beside: cfg.Beside, minFreeBytes: cfg.MinFreeBytes, minFreeInodes: cfg.MinFreeInodes,
		evictions: make(chan evictRequest),
		full:      make(chan struct{}, 1),
	}
}

// openSpace fills in what depends on the size of the file system.
func (v *evictor) openSpace() error {
	space, err := v.fs.Space()
	if err != nil {
		return fmt.Errorf("look at the file system of %q: %w", v.dir, err)
	}
	if v.minFreeBytes == 0 {
		v.minFreeBytes = space.Bytes / 10
	}
	if v.minFreeInodes == 0 {
		v.minFreeInodes = space.Inodes / 10
	}
	if v.size == 0 {
		v.size = unlimited
	}
	if v.beside == nil {
		v.beside = func() int64 { return 0 }
	}
	return nil
}

// checkRoom refuses a file system on which nothing could be kept.
func (v *evictor) checkRoom() error {
	space, err := v.fs.Space()
	if err != nil {
		return err
	}
	v.updateLimit(space, 0)
	if objects, _, limit := v.residents.Usage(); objects == 0 && limit < minSSD {
		return fmt.Errorf("%d bytes are free of which %d must stay so: %w", space.FreeBytes, v.minFreeBytes, ErrNoSpace)
	}
	return nil
}

// evictRequest asks for bytes to be freed, whatever is wanted.
type evictRequest struct {
	bytes int64
	freed chan<- int64
}

// crowded asks the evictor to look.
func (v *evictor) crowded() {
	select {
	case v.full <- struct{}{}:
	default:
	}
}

// makeRoom frees bytes, whatever is wanted, and returns how many it freed.
func (v *evictor) makeRoom(ctx context.Context, bytes int64) int64 {
	freed := make(chan int64, 1)
	select {
	case v.evictions <- evictRequest{bytes, freed}:
		return <-freed
	case <-ctx.Done():
		return 0
	}
}

// run evicts when asked to and when the disk fills up. Only its goroutine
// does.
func (v *evictor) run(ctx context.Context) {
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
		case <-v.full:
		case <-again:
			v.residents.Changed()
		case request = <-v.evictions:
			force = request.bytes
		}
		if force > 0 {
			freed, _, _ := v.evict(force, 0, eviction.TakeHeld)
			request.freed <- freed
			y = v.yield(force)
		}
		v.evictDropped()
		if v.look(y) {
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
func (v *evictor) yield(bytes int64) yielded {
	space, err := v.fs.Space()
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
func (v *evictor) look(y yielded) (again bool) {
	space, err := v.fs.Space()
	if err != nil {
		v.health.ReadFailed(err)
		return false
	}
	v.updateLimit(space, y.left(space.FreeBytes))
	excess, keen := v.residents.Excess()
	freed, _, inUse := v.evict(excess, 0, keen)
	// What must stay free for others comes before what is wanted here.
	if short := v.minFreeBytes - space.FreeBytes; short > 0 {
		v.evict(short, 0, eviction.TakeHeld)
	}
	if short := v.minFreeInodes - space.FreeInodes; short > 0 && space.Inodes > 0 {
		v.evict(0, short, eviction.TakeHeld)
	}
	return freed < excess && inUse > 0
}

// updateLimit sets how much the tier may hold: as configured, less what others keep
// beside it, but no more than leaves the file system its free space, and what was yielded.
func (v *evictor) updateLimit(space disk.Space, yielded int64) {
	_, size, _ := v.residents.Usage()
	v.residents.SetLimit(max(0, min(v.size-v.beside(), size+space.FreeBytes-v.minFreeBytes-yielded)))
}

// evict removes objects until that many bytes and files are freed, or nothing can
// go. It returns what it freed, and how many it found in use.
func (v *evictor) evict(bytes, files int64, keen eviction.Keenness) (freedBytes, freedFiles int64, inUse int) {
	// Each that is in use comes round once.
	v.residents.NewRound()
	tries, _, _ := v.residents.Usage()
	var batch []*eviction.Resident
	flush := func() {
		if len(batch) > 0 {
			v.removeFiles(batch)
			batch = nil
		}
	}
	for ; (freedBytes < bytes || freedFiles < files) && tries > 0; tries-- {
		e := v.residents.Pick(keen)
		if e == nil {
			break
		}
		if !v.detach(e.ID) {
			v.residents.PutBack(e)
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
		v.metrics.evicted.Add(freedFiles)
		v.metrics.evictedBytes.Add(freedBytes)
	}
	return freedBytes, freedFiles, inUse
}

// detach makes the object forget its file, unless somebody needs it. It is marked
// as leaving by then: whoever opens it now does not find the file.
func (v *evictor) detach(id content.Identity) bool {
	o := v.objects.find(id)
	if o == nil {
		return true
	}
	defer o.release()
	o.mu.Lock()
	d := &o.mu.disk
	busy := o.mu.handles > 0 || d.writing > 0 || d.fetching > 0 || d.blocked || d.verifying
	var file *disk.File
	if !busy {
		file = o.mu.disk.unload()
	}
	o.mu.Unlock()
	if file != nil {
		file.Release()
	}
	return !busy
}

// unload forgets what is known of the file, which stays as it is, and returns it
// to be released if it is open. o.mu must be held.
func (d *diskState) unload() (file *disk.File) {
	o := d.object
	for _, seg := range o.mu.segments {
		if seg != nil {
			seg.disk, seg.indexed, seg.trusted = content.BlockSet{}, content.BlockSet{}, content.BlockSet{}
		}
	}
	file = d.file
	d.diskFacts = diskFacts{
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
func (v *evictor) removeFiles(leaving []*eviction.Resident) {
	ids := make([]content.Identity, len(leaving))
	for i, e := range leaving {
		ids[i] = e.ID
		v.files.checked.Remove(e.ID)
	}
	v.indexer.remove(ids)
	for _, id := range ids {
		if err := v.fs.Remove(disk.FileName(id)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			v.health.WriteFailed(err)
		}
	}
	v.residents.Gone(leaving)
}

// block stops all use of the file, whose content is to be thrown away, and
// returns it to be released if it is open. o.mu must be held; discard must be
// called after unlocking.
func (d *diskState) block() (file *disk.File) {
	o := d.object
	if o.cache.ssd == nil {
		return nil
	}
	file = d.unload()
	d.blocked = true
	return file
}

// discard throws away what SSD has of o.
func (v *evictor) discard(o *object) {
	o.mu.Lock()
	file := o.mu.disk.block()
	o.mu.Unlock()
	if file != nil {
		file.Release()
	}
	if e := v.residents.Take(o.id); e != nil {
		v.removeFiles([]*eviction.Resident{e})
	}
	o.mu.Lock()
	o.mu.disk.blocked = false
	o.notify()
	o.mu.Unlock()
}

// dropEmpty removes an object that has room and nothing to fill it with: the
// first write has failed.
func (v *evictor) dropEmpty(o *object) {
	o.mu.Lock()
	d := &o.mu.disk
	empty := d.loaded && !d.blocked && d.blocks == 0 && d.writing == 0 && d.fetching == 0 && !d.dirty
	var file *disk.File
	if empty {
		file = o.mu.disk.unload()
	}
	o.mu.Unlock()
	if file != nil {
		file.Release()
	}
	if !empty {
		return
	}
	if e := v.residents.TakeEmpty(o.id); e != nil {
		v.removeFiles([]*eviction.Resident{e})
	}
}

// sweep removes files that the index does not know: what was written and not
// indexed before a crash.
func (v *evictor) sweep(ctx context.Context) {
	removed := 0
	for _, dir := range v.names(disk.ObjectsName) {
		for _, name := range v.names(disk.ObjectsName + "/" + dir) {
			if ctx.Err() != nil {
				return
			}
			id, ok := disk.ParseFileName(dir, name)
			if !ok {
				continue // not ours
			}
			if e := v.residents.Shield(id); e != nil {
				if v.fs.Remove(disk.FileName(id)) == nil {
					removed++
				}
				v.residents.Gone([]*eviction.Resident{e})
			}
		}
	}
	if removed > 0 {
		v.log.Info("removed cache files that a crash had left", "dir", v.dir, "count", removed)
	}
}

func (v *evictor) names(dir string) []string {
	names, err := v.fs.List(dir)
	if err != nil {
		v.health.ReadFailed(err)
	}
	return names
}

// unlimited is the size of a tier that is bounded by its file system alone. It
// leaves room for sums.
const unlimited = math.MaxInt64 / 4
