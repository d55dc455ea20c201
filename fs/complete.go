package fs

import (
	"context"
	"time"

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
	ctx  context.Context //nolint:containedctx // that of the one answer, and its deadline
	end  context.CancelFunc
}

// completes returns what asks for attributes in the answer to a thread that begins to list
// dir, or goes on. Those of the first entries are for who has looked up what it listed before;
// further on the kernel asks for attributes only because somebody looks names up.
func (f *filesystem) completes(ctx context.Context, thread uint32, offset uint64) *completing {
	tree, ok := f.tree.(completer)
	if !ok || offset == 0 && !f.statters.wants(thread) {
		return nil
	}
	c := &completing{tree: tree}
	c.ctx, c.end = context.WithTimeout(ctx, completeFor)
	return c
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
	c.tree.Complete(c.ctx, dir, lack)
	return true
}

// lacking reports whether a request tells the attributes of e.
func lacking(e *entry) bool {
	return e.Partial && e.File == nil && e.Kind != manifest.Directory
}
