package listing

import (
	"context"
	"time"

	"github.com/pailfs/pailfs/fs/internal/names"
	"github.com/pailfs/pailfs/manifest"
)

// Completer is a [manifest.Tree] whose listings leave out attributes that cost a request for
// each name, and that asks those of many names at once.
type Completer interface {
	Complete(ctx context.Context, dir string, entries []manifest.Entry)
}

// completeFor is how long one answer to READDIRPLUS waits for attributes, in all. What has
// none then is named only, and looked up.
const completeFor = time.Second

// Completing asks for the attributes that a page of a listing lacks. nil asks for none.
type Completing struct {
	Tree Completer
	Ctx  context.Context //nolint:containedctx // that of the one answer, with a deadline once end is set
	end  context.CancelFunc
	// Asked says that something was asked for.
	Asked bool
}

// page asks for what page lacks and reports whether to read it again: not only attributes
// are known by then, names may have come and gone meanwhile.
func (c *Completing) page(dir string, page []names.Entry) bool {
	if c == nil || c.Ctx.Err() != nil {
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
		c.Ctx, c.end = context.WithTimeout(c.Ctx, completeFor)
	}
	c.Asked = true
	c.Tree.Complete(c.Ctx, dir, lack)
	return true
}

// done ends the wait.
func (c *Completing) done() {
	if c.end != nil {
		c.end()
	}
}

// lacking reports whether a request tells the attributes of e.
func lacking(e *names.Entry) bool {
	return e.Partial && e.File == nil && e.Kind != manifest.Directory
}

// Numbered is a [manifest.Tree] whose directories never change, so that a position
// in one holds for ever. On an immutable mount the kernel then opens
// directories without us, and a listing keeps no state here: an offset is all that
// is needed to go on, whoever comes with it and whenever. Where answers ended is kept
// for speed alone: it tells who reads on from who seeks.
type Numbered interface {
	// ReadDirAt gives the entries of dir with their positions to yield, beginning with
	// that at position, or the next one, until it returns false. Positions grow from 0.
	// namesOnly asks for no more than Name and Kind. e is yield's only until it returns.
	ReadDirAt(ctx context.Context, dir string, position int64, namesOnly bool, yield func(position int64, e *manifest.Entry) bool) error
}
