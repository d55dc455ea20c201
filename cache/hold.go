package cache

import (
	"errors"
	"fmt"

	"github.com/pailfs/pailfs/cache/internal/content"
	"github.com/pailfs/pailfs/cache/internal/eviction"
	"github.com/pailfs/pailfs/oss"
)

// The errors of [Cache.Evict], and of [Cache.Fetch] for what is never kept.
var (
	// ErrHeld means that somebody holds the object.
	ErrHeld = errors.New("object is held")
	// ErrInUse means that the object is open or being fetched.
	ErrInUse = errors.New("object is in use")
	// ErrNever means that Config.Never forbids keeping the object.
	ErrNever = errors.New("object is never to be cached")
)

// Hold keeps what SSD has, or will have, of obj from eviction until [Cache.Unhold]
// is called as often as Hold was. It brings nothing: that is [Cache.Fetch]'s work,
// for which what was merely fetched makes way once obj is held.
//
// Only MakeRoom, or other users of a disk that has become full, can take what is
// held, when nothing else is left: see [Cache.HoldsBroken].
func (c *Cache) Hold(obj oss.Object) {
	if c.ssd != nil {
		c.ssd.residents.Hold(content.Identify(c.bucket, obj))
	}
}

// Unhold ends one Hold. After the last one obj may go; it is the next to go if
// released, else its turn comes by its use.
func (c *Cache) Unhold(obj oss.Object, released bool) {
	id := content.Identify(c.bucket, obj)
	last := true
	if c.ssd != nil {
		last = c.ssd.residents.Unhold(id, released)
	}
	if !last || !released {
		return
	}
	if o := c.objects.find(id); o != nil {
		c.dropKept(o)
		o.release()
	}
}

// HoldsBroken counts the held objects that had to go all the same. When it has
// changed, [Cache.Residency] tells which.
func (c *Cache) HoldsBroken() uint64 {
	if c.ssd == nil {
		return 0
	}
	return c.ssd.residents.Broken()
}

// Cost returns how many bytes of the SSD tier a whole object takes.
func Cost(obj oss.Object) int64 {
	if obj.Size == 0 {
		return 0
	}
	return content.OnDisk(obj.Size) + eviction.Overhead
}

// Evict removes obj from SSD and memory at once and returns how many bytes of SSD
// that freed: 0 if it was not there. It fails with [ErrHeld] or [ErrInUse].
func (c *Cache) Evict(obj oss.Object) (freed int64, err error) {
	id := content.Identify(c.bucket, obj)
	if c.ssd != nil {
		e, err := c.ssd.evictor.takeOut(id)
		if err != nil {
			return 0, fmt.Errorf("evict %q: %w", obj.Key, err)
		}
		if e != nil {
			freed = e.Size
			c.ssd.evictor.removeFiles([]*eviction.Resident{e})
		}
	}
	if o := c.objects.find(id); o != nil {
		c.dropKept(o)
		o.release()
	}
	return freed, nil
}

// takeOut takes an object out of use, whose file is to be removed: nil if there is none. It
// fails with [ErrHeld] or [ErrInUse].
func (v *evictor) takeOut(id content.Identity) (*eviction.Resident, error) {
	e, held := v.residents.TakeIdle(id)
	switch {
	case held:
		return nil, ErrHeld
	case e == nil || v.detach(id):
		return e, nil
	}
	v.residents.PutBack(e)
	return nil, ErrInUse
}
