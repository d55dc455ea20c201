package names

import (
	"context"

	"github.com/pailfs/pailfs/fs/writeback"
	"github.com/pailfs/pailfs/manifest"
)

// Entry is a name as the mount shows it, with the file that it became if it was
// changed here.
type Entry = writeback.Entry

// View is what a mount shows: a tree, with what was changed here laid over it.
type View interface {
	Lookup(ctx context.Context, dir, name string) (Entry, manifest.Validity, error)
	ReadDir(ctx context.Context, dir, after string, limit int) ([]Entry, manifest.Validity, error)
	ReadLink(ctx context.Context, e Entry) (string, error)
}

var (
	_ View = Tree{}
	_ View = (*writeback.Space)(nil)
)

// Tree are the names of a mount that cannot be written.
type Tree struct{ manifest.Tree }

// Lookup implements [View].
func (t Tree) Lookup(ctx context.Context, dir, name string) (Entry, manifest.Validity, error) {
	e, valid, err := t.Tree.Lookup(ctx, dir, name)
	return Entry{Entry: e}, valid, err
}

// ReadDir implements [View].
func (t Tree) ReadDir(ctx context.Context, dir, after string, limit int) ([]Entry, manifest.Validity, error) {
	page, valid, err := t.Tree.ReadDir(ctx, dir, after, limit)
	entries := make([]Entry, len(page))
	for i := range page {
		entries[i].Entry = page[i]
	}
	return entries, valid, err
}

// ReadLink implements [View].
func (t Tree) ReadLink(ctx context.Context, e Entry) (string, error) {
	return t.Tree.ReadLink(ctx, e.Entry)
}
