package fs

import (
	"log/slog"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/time/rate"

	"github.com/pailfs/pailfs/fs/internal/errnos"
	"github.com/pailfs/pailfs/fs/internal/measures"
)

// reports tell people what happened: log, metrics and status.
type reports struct {
	log *slog.Logger
	// logs bounds how many failures are logged.
	logs     *rate.Limiter
	counters measures.Counters
	metrics  *measures.Metrics
}

// fail logs an error that is ours or the store's and returns its status.
func (p *reports) fail(doing string, n *inode, errno syscall.Errno, err error) fuse.Status {
	if errnos.Ours(errno) {
		p.counters.Errors.Add(1)
		if p.logs.Allow() {
			p.log.Warn("request failed", "doing", doing, "path", n.path(), "key", n.object.Key, "etag", n.object.ETag,
				"errno", errno.Error(), "err", err)
		}
	}
	return fuse.Status(errno)
}

// refuse returns the status of an error met while changing something, and logs what
// is ours, the disk's or the store's.
func (p *reports) refuse(doing string, n *inode, err error) fuse.Status {
	errno := errnos.OfChange(err)
	if errnos.Refused(errno) {
		return fuse.Status(errno)
	}
	return p.fail(doing, n, errno, err)
}

// panicked answers a request whose handling panicked.
func (p *reports) panicked(v any, stack []byte) fuse.Status {
	p.counters.Errors.Add(1)
	p.log.Error("panic while answering a request", "panic", v, "stack", string(stack))
	return fuse.EIO
}
