package fs

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/pailfs/pailfs/cache"
	"github.com/pailfs/pailfs/fs/internal/lateopens"
	"github.com/pailfs/pailfs/fs/writeback"
	"github.com/pailfs/pailfs/manifest"
	"github.com/pailfs/pailfs/oss"
)

// keeps is what keeps the bytes of files that lose their names, for who has them open and
// who has looked them up.
type keeps struct {
	reports *reports
	inodes  *inodes
	reads   *readPath
	space   *writeback.Space
	cache   *cache.Cache

	keeping    keeping
	keepAtOnce atomic.Int64 // keepMost, but in tests
	late       lateopens.Keeper[*inode]
}

// keepMost is the largest object that is fetched at once because its name goes while
// it is open.
const keepMost = 256 << 20

// keep makes sure that a clean file which is open can be read when its object is to
// go from the bucket: the whole of it is brought into the cache, where the open file
// pins it. A large object stays in the bucket until that is done, or the file closed.
func (k *keeps) keep(ctx context.Context, n *inode) {
	if n == nil || n.kind != manifest.File || !n.opened().inUse() {
		return
	}
	version, staged := n.version()
	if staged || version.Size == 0 {
		return
	}
	st := n.opened()
	st.mu.Lock()
	err := k.reads.pin(n, st)
	st.mu.Unlock()
	switch {
	case err != nil:
	case k.cache.Residency(version).Whole:
	case version.Size > k.keepAtOnce.Load():
		k.keeping.add(ctx, n, st, version, k.space.HoldBack(version.Key))
		return
	default:
		err = k.cache.Fetch(ctx, version)
	}
	if err != nil {
		k.reports.log.Warn("a file that is open loses its name, and not all of it could be kept", "path", n.path(), "key", version.Key, "err", err)
	}
}

// kept is a large object that is brought into the cache, so that it may go.
type kept struct {
	node    *inode
	version oss.Object
	release func()
	closed  chan struct{} // when nobody has it open any more
}

// keeping are the objects that are being kept.
type keeping struct{ queue chan kept }

// add holds back the change of an object until it is in the cache or closed.
func (k *keeping) add(ctx context.Context, n *inode, st *fileState, version oss.Object, release func()) {
	job := kept{node: n, version: version, release: release, closed: make(chan struct{})}
	st.mu.Lock()
	if st.mu.opens == 0 {
		st.mu.Unlock()
		release()
		return
	}
	st.mu.atClose = append(st.mu.atClose, func() {
		close(job.closed)
		release()
	})
	st.mu.Unlock()
	select {
	case k.queue <- job:
	case <-ctx.Done(): // then it stays until it is closed
	}
}

// run brings what is added into the cache until ctx ends.
func (k *keeping) run(ctx context.Context, keeps *keeps) {
	var running sync.WaitGroup
	defer running.Wait()
	for {
		select {
		case <-ctx.Done():
			return
		case job := <-k.queue:
			running.Go(func() { keeps.keepOne(ctx, job) })
		}
	}
}

// keepOne brings one object into the cache, unless its file is closed before.
func (k *keeps) keepOne(ctx context.Context, job kept) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var watch sync.WaitGroup
	watch.Go(func() {
		select {
		case <-job.closed:
			cancel()
		case <-ctx.Done():
		}
	})
	err := k.cache.Fetch(ctx, job.version)
	if err == nil {
		job.release()
	} else if ctx.Err() == nil {
		k.reports.log.Info("a large file that is open loses its name: its object stays until it is closed", "path", job.node.path(), "key", job.version.Key, "err", err)
	}
	cancel()
	watch.Wait()
}
