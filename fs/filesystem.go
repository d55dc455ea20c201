package fs

import (
	"log/slog"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/time/rate"

	"github.com/pailfs/pailfs/cache"
	"github.com/pailfs/pailfs/fs/internal/backing"
	"github.com/pailfs/pailfs/fs/internal/handles"
	"github.com/pailfs/pailfs/fs/internal/lateopens"
	"github.com/pailfs/pailfs/fs/internal/moves"
	"github.com/pailfs/pailfs/fs/internal/notices"
	"github.com/pailfs/pailfs/fs/internal/pagecache"
	"github.com/pailfs/pailfs/fs/internal/statters"
	"github.com/pailfs/pailfs/fs/writeback"
	"github.com/pailfs/pailfs/manifest"
)

// filesystem answers the kernel's requests. What it does not define, the
// embedded default answers with ENOSYS, which the kernel takes once as "never
// ask again": fsync, locks, access, statx and lseek are then its own business.
//
// Lock order: dirHandle.mu, directory.mu, listing.mu; fileState.mu; a shard of
// nodeTable. None is held over a request to the store but dirHandle.mu, which
// belongs to one open directory.
type filesystem struct {
	fuse.RawFileSystem

	cfg   Config
	tree  manifest.Tree
	names view // tree, with what space has laid over it
	space *writeback.Space
	// specials are the names that only this mount has.
	specials specials
	cache    *cache.Cache
	log      *slog.Logger

	nodes    *nodeTable
	changed  byPath
	moves    moves.Moves
	handles  handles.Table[openFile]
	keeping  keeping
	pages    pagecache.Pages
	bringing *pagecache.Bringing
	dirs     handles.Table[dirHandle]
	statters statters.Threads
	cursors  cursorKeeper
	idle     idleHandles
	late     lateopens.Keeper[*inode]
	notify   notices.Notifier
	mounted  time.Time
	times    changeTimes

	// numbered is tree, if the kernel may keep directories by themselves.
	numbered    numbered
	keepAtOnce  atomic.Int64 // keepMost, but in tests
	noOpen      bool
	passthrough backing.Files

	counters counters
	metrics  *metrics
	// logs bounds how many failures are logged.
	logs *rate.Limiter
}

var _ fuse.RawFileSystem = (*filesystem)(nil)

// String implements [fuse.RawFileSystem].
func (f *filesystem) String() string { return fsType }

// Init implements [fuse.RawFileSystem]: the kernel has accepted the mount and
// sends nothing else before this returns.
func (f *filesystem) Init(server *fuse.Server) {
	f.notify.Start(server)
	dir := ""
	if ssd := f.cache.Stats().SSD; ssd != nil {
		dir = ssd.Dir
	}
	switch {
	case f.cfg.Passthrough == Off:
		f.passthrough.Refuse("off by configuration")
	case f.noOpen:
		f.passthrough.Refuse("a no-open mount has no OPEN in which to offer a file")
	default:
		f.passthrough.Probe(server, f.cfg.PassthroughMin, dir)
	}
}

// fail logs an error that is ours or the store's and returns its status.
func (f *filesystem) fail(doing string, n *inode, errno syscall.Errno, err error) fuse.Status {
	if ours(errno) {
		f.counters.errors.Add(1)
		if f.logs.Allow() {
			f.log.Warn("request failed", "doing", doing, "path", n.path(), "key", n.object.Key, "etag", n.object.ETag,
				"errno", errno.Error(), "err", err)
		}
	}
	return fuse.Status(errno)
}

// refuse returns the status of an error met while changing something, and logs what
// is ours, the disk's or the store's.
func (f *filesystem) refuse(doing string, n *inode, err error) fuse.Status {
	errno := changeErrno(err)
	if refused(errno) {
		return fuse.Status(errno)
	}
	return f.fail(doing, n, errno, err)
}

// panicked answers a request whose handling panicked.
func (f *filesystem) panicked(v any, stack []byte) fuse.Status {
	f.counters.errors.Add(1)
	f.log.Error("panic while answering a request", "panic", v, "stack", string(stack))
	return fuse.EIO
}
