package cache

import (
	"github.com/pailfs/pailfs/cache/internal/content"
	"github.com/pailfs/pailfs/cache/internal/eviction"
	"github.com/pailfs/pailfs/oss"
)

// Drop says that the bucket no longer has obj, and that nobody will open it: what there is
// of it goes. Whoever has it open reads on; it goes when the last of them has closed it, and
// what is held when it is not. That takes some seconds: many go together. Drop waits for nothing.
//
// If obj is opened again, it stays as others do, and leaves when its turn comes.
func (c *Cache) Drop(obj oss.Object) {
	id := content.Identify(c.bucket, obj)
	if c.ssd != nil {
		c.ssd.residents.Release(id)
		c.ssd.residents.Drop(id)
	}
	if o := c.objects.find(id); o != nil {
		c.dropKept(o)
		o.release()
	}
}

// evictDropped removes what is wanted gone, and neither held nor in use. It is the evictor's.
func (v *evictor) evictDropped() {
	var leaving []*eviction.Resident
	var over []content.Identity
	flush := func() {
		if len(leaving) > 0 {
			v.removeFiles(leaving)
			v.metrics.outdated.Add(int64(len(leaving)))
		}
		v.residents.Undrop(over...)
		leaving, over = nil, nil
	}
	for _, id := range v.residents.DroppedNow() {
		e, err := v.takeOut(id)
		switch {
		case err != nil:
			continue // it is looked at again
		case e != nil:
			leaving = append(leaving, e)
		case v.inUse(id):
			continue // who reads it may bring more of it
		}
		if over = append(over, id); len(leaving) == evictBatch {
			flush()
		}
	}
	flush()
}

// inUse reports whether something of an object may come to SSD still.
func (v *evictor) inUse(id content.Identity) bool {
	o := v.objects.find(id)
	if o == nil {
		return false
	}
	defer o.release()
	o.mu.Lock()
	defer o.mu.Unlock()
	d := &o.mu.disk
	return o.mu.handles > 0 || d.writing > 0 || d.fetching > 0 || d.blocked
}
