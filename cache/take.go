package cache

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/pailfs/pailfs/cache/internal/content"
	"github.com/pailfs/pailfs/cache/internal/disk"
	"github.com/pailfs/pailfs/cache/internal/eviction"
	"github.com/pailfs/pailfs/oss"
)

// Take brings the whole of obj to dst, a file that must not exist, and leaves it
// to the caller, who may change it. If the cache has the object whole in a file of
// its own, on the file system of dst, then it is that file, renamed: whoever was
// given it by [Handle.WholeFile] sees the caller's changes. Otherwise dst is a
// copy. The cache keeps nothing of a file that it gave away, and whoever reads obj
// through it goes on to get the bytes of obj.
//
// The index has durably forgotten the object before the file is renamed. The new
// name is not durable yet when Take returns, nor is a copy.
//
// Errors are those of [oss.RangeReader], and of the disk of dst. After an error
// there is no dst.
func (c *Cache) Take(ctx context.Context, obj oss.Object, dst string) error {
	h, err := c.Open(obj)
	if err != nil {
		return err
	}
	defer func() { _ = h.Close() }() // a handle that is closed once
	taken, err := c.ssd.give(ctx, h.object, dst)
	if err == nil && !taken {
		err = h.copyTo(ctx, dst)
	}
	if err != nil {
		return fmt.Errorf("take %q: %w", obj.Key, err)
	}
	return nil
}

// copyBytes is how much of an object is copied at once.
const copyBytes = 1 << 20

// copyTo writes the whole object to a new file.
func (h *Handle) copyTo(ctx context.Context, dst string) (err error) {
	f, err := os.OpenFile(dst, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err = errors.Join(err, f.Close()); err != nil {
			err = errors.Join(err, os.Remove(dst))
		}
	}()
	size := h.object.geometry.Size
	for off := int64(0); off < size; {
		v, err := h.View(ctx, off, int(min(copyBytes, size-off)))
		if err != nil {
			return err
		}
		for _, p := range v.Slices() {
			if _, err = f.WriteAt(p, off); err != nil {
				break
			}
			off += int64(len(p))
		}
		v.Release()
		if err != nil {
			return err
		}
	}
	// An object that turned out to be wrong once all of it had come is no copy.
	return h.sound()
}

// give renames the file of o to dst. It returns false where that cannot be: a copy
// will do then.
func (t *ssdTier) give(ctx context.Context, o *object, dst string) (given bool, err error) {
	if t == nil || o.geometry.Size == 0 || !t.sameFileSystem(dst) {
		return false, nil
	}
	t.load(o)
	o.mu.Lock()
	// A copy of a small object costs less than telling the index. One that somebody
	// else reads from the file itself must be that file.
	cheap := o.small() && o.mu.disk.handedOut == 0
	o.mu.Unlock()
	if cheap {
		return false, nil
	}
	switch err := o.fetch(ctx); {
	case errors.Is(err, ErrNoSpace), errors.Is(err, ErrUnavailable):
		return false, nil
	case err != nil:
		return false, err
	}
	if !t.checkAll(ctx, o) {
		return false, ctx.Err()
	}
	r, file, err := t.withdraw(ctx, o)
	if r == nil {
		return false, err
	}
	defer func() {
		if file != nil {
			file.Release()
		}
		t.residents.Gone([]*eviction.Resident{r})
		o.mu.Lock()
		o.mu.disk.blocked = false
		o.notify()
		o.mu.Unlock()
	}()
	t.files.checked.Remove(o.id)
	t.indexer.remove([]content.Identity{o.id})
	if err := t.fs.MoveOut(disk.FileName(o.id), dst); err != nil {
		t.health.WriteFailed(err)
		return false, errors.Join(err, t.fs.Remove(disk.FileName(o.id)))
	}
	t.metrics.given.Add(1)
	return true, nil
}

// sameFileSystem tells whether a file of the tier can be renamed to path.
func (t *ssdTier) sameFileSystem(path string) bool {
	var here, there unix.Stat_t
	return unix.Stat(t.dir, &here) == nil && unix.Stat(filepath.Dir(path), &there) == nil && here.Dev == there.Dev
}

// checkAll checks every block that was not checked since the start, and tells
// whether the file is whole and right.
func (t *ssdTier) checkAll(ctx context.Context, o *object) bool {
	for range maxAttempts {
		o.mu.Lock()
		whole, checked := o.mu.disk.whole(), o.mu.disk.wholeChecked()
		o.mu.Unlock()
		if !whole || checked {
			return whole
		}
		t.verifier.check(ctx, o, make([]byte, content.SmallObject))
	}
	return false
}

// withdraw takes the file of o, which is whole and checked, out of use: nobody
// reads or writes it through the cache any more, and nobody will. It returns nil
// if it is not whole any longer. The object stays blocked.
func (t *ssdTier) withdraw(ctx context.Context, o *object) (*eviction.Resident, *disk.File, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	d := &o.mu.disk
	for d.writing > 0 || d.fetching > 0 || d.opening != nil || d.blocked {
		if err := o.awaitChange(ctx); err != nil {
			return nil, nil, err
		}
	}
	if !o.mu.disk.whole() || !o.mu.disk.wholeChecked() {
		return nil, nil, nil
	}
	r := t.residents.Take(o.id)
	if r == nil {
		return nil, nil, nil // it is being evicted, or others take it
	}
	file := o.mu.disk.block()
	if file != nil {
		file.Given.Store(true)
	}
	for d.reading > 0 {
		// What they read is in the page cache or on a disk that works: they are done in
		// a moment, and must be, for the file is to be changed.
		_ = o.awaitChange(context.WithoutCancel(ctx))
	}
	return r, file, nil
}

// awaitChange waits for notify. o.mu must be held, and is again afterwards.
func (o *object) awaitChange(ctx context.Context) error {
	if o.mu.changed == nil {
		o.mu.changed = make(chan struct{})
	}
	changed := o.mu.changed
	o.mu.Unlock()
	defer o.mu.Lock()
	select {
	case <-changed:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Whole reports whether SSD holds every byte of obj.
func (c *Cache) Whole(obj oss.Object) bool { return c.Residency(obj).Whole }

// ReadAt reads into p what obj has at off, as [Handle.ReadAt] does.
func (c *Cache) ReadAt(ctx context.Context, obj oss.Object, p []byte, off int64) (int, error) {
	h, err := c.Open(obj)
	if err != nil {
		return 0, err
	}
	defer func() { _ = h.Close() }() // a handle that is closed once
	return h.ReadAt(ctx, p, off)
}

// Pin keeps obj open until done is called, which may be called once: what SSD holds of it
// stays, and reads of it go on to be read ahead of.
func (c *Cache) Pin(obj oss.Object) (done func()) {
	h, err := c.Open(obj)
	if err != nil {
		return func() {} // whoever reads it meets the error
	}
	return func() { _ = h.Close() } // a handle that is closed once
}
