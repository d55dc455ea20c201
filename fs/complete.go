package fs

import (
	"context"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/pailfs/pailfs/manifest"
)

// completer is a [manifest.Tree] whose listings leave out attributes that cost a request for
// each name, and that asks those of many names at once.
type completer interface {
	Complete(ctx context.Context, dir string, entries []manifest.Entry)
}

// completeFor is how long one answer to READDIRPLUS waits for attributes, in all. What has
// none then is named only, and looked up.
const completeFor = time.Second

// completing asks for the attributes that a page of a listing lacks. nil asks for none.
type completing struct {
	tree completer
	ctx  context.Context //nolint:containedctx // that of the one answer, with a deadline once end is set
	end  context.CancelFunc
	// asked says that something was asked for.
	asked bool
}

// completes returns what asks for attributes in the answer to a thread that begins to list
// a directory, or goes on. Those of the first entries are for who has looked up what it listed
// before, those of others for who has looked some up of this directory: the kernel asks for
// attributes there as soon as anybody has.
func (ds *directories) completes(in *fuse.ReadIn) *completing {
	tree, ok := ds.inodes.tree.(completer)
	if !ok || ds.inodes.numbered != nil {
		return nil
	}
	if in.Offset == 0 && !ds.statters.Wants(in.Pid) || in.Offset > 0 && !ds.statters.Looks(in.Pid, in.NodeId) {
		return nil
	}
	return &completing{tree: tree}
}

// page asks for what page lacks and reports whether to read it again: not only attributes
// are known by then, names may have come and gone meanwhile.
func (c *completing) page(dir string, page []entry) bool {
	if c == nil || c.ctx.Err() != nil {
		return false
	}
	var lack []manifest.Entry
	for i := range page {
		if e := &page[i]; lacking(e) {
			lack = append(lack, e.Entry)
		}
	}
	if len(lack) == 0 {
		return false
	}
	if c.end == nil {
		c.ctx, c.end = context.WithTimeout(c.ctx, completeFor)
	}
	c.asked = true
	c.tree.Complete(c.ctx, dir, lack)
	return true
}

// done ends the wait.
func (c *completing) done() {
	if c.end != nil {
		c.end()
	}
}

// lacking reports whether a request tells the attributes of e.
func lacking(e *entry) bool {
	return e.Partial && e.File == nil && e.Kind != manifest.Directory
}
