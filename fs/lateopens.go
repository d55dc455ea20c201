package fs

import (
	"context"
	"errors"

	"github.com/pailfs/pailfs/fs/writeback"
	"github.com/pailfs/pailfs/manifest"
	"github.com/pailfs/pailfs/oss"
)

// partsFrom keeps what n has, whose name is about to go: a program may have looked it up
// and not opened it yet, and its open is for this file. It stays until the kernel forgets n,
// or some seconds. done must be called when the name has gone or stayed.
func (k *keeps) partsFrom(ctx context.Context, n *inode) (done func()) {
	if n == nil || n.kind != manifest.File {
		return func() {}
	}
	k.late.Keep(n, n.keptBytes(), k.keepContent(ctx, n))
	return func() {
		if !n.gone.Load() || k.inodes.nodes.get(n.id) != n {
			k.late.Drop(n)
		}
	}
}

// keptBytes is how much of the disk is kept with n.
func (n *inode) keptBytes() int64 {
	if file := n.file.Load(); file != nil {
		if a, err := file.Stat(); err == nil {
			return a.Blocks * 512
		}
	}
	o, _ := n.version()
	return o.Size
}

// keepContent keeps the bytes of n until release is called: the staged file, or the object in
// the cache, where all of it is there, or else in the bucket.
func (k *keeps) keepContent(ctx context.Context, n *inode) (release func()) {
	var all []func()
	if file := n.file.Load(); file != nil {
		// An error means that it is the store's again, or that there is nothing to keep.
		if h, err := k.space.OpenFile(ctx, file, writeback.OpenOptions{}); err == nil {
			all = append(all, h.Release)
		}
	}
	if version, staged := n.version(); !staged && version.Size > 0 {
		all = append(all, k.keepVersion(version))
	}
	return func() {
		for _, do := range all {
			do()
		}
	}
}

// keepVersion keeps an object until release is called.
func (k *keeps) keepVersion(version oss.Object) (release func()) {
	h, err := k.cache.Open(version)
	if err == nil && k.cache.Residency(version).Whole {
		return func() {
			if err := h.Close(); err != nil {
				k.reports.log.Warn("closing a cached object failed", "key", version.Key, "err", err)
			}
		}
	}
	if err == nil {
		_ = h.Close() // nothing was read by it
	}
	return k.space.HoldBackUnlessDraining(version.Key)
}

// bring makes sure that n has its bytes, if its name went before it is opened now. ESTALE says
// that they are gone: the kernel looks the name up again.
func (k *keeps) bring(ctx context.Context, n *inode) error {
	if file := n.file.Load(); file != nil && file.Lost() {
		return estale
	}
	if !n.gone.Load() {
		return nil
	}
	version, staged := n.version()
	if staged || version.Size == 0 || version.Size > k.keepAtOnce.Load() || k.cache.Residency(version).Whole {
		return nil
	}
	err := k.cache.Fetch(ctx, version)
	if errors.Is(err, oss.ErrChanged) || errors.Is(err, oss.ErrNotFound) {
		return estale
	}
	return nil // READ asks again
}
