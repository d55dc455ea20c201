package fs

import (
	"context"
	"testing"

	"github.com/pailfs/pailfs/fs/internal/listing"
	"github.com/pailfs/pailfs/fs/internal/moves"
	"github.com/pailfs/pailfs/fs/internal/names"
	"github.com/pailfs/pailfs/fs/writeback"
	"github.com/pailfs/pailfs/manifest"
)

// movingNames are names that somebody renames all the time.
type movingNames struct {
	names.View
	moves *moves.Moves
	// each is renamed at every lookup, and first at the first one.
	each, first string
	lookups     int
}

func (n *movingNames) Lookup(_ context.Context, dir, name string) (names.Entry, manifest.Validity, error) {
	n.lookups++
	n.moves.Begins(n.each, n.each+"2")()
	if n.lookups == 1 && n.first != "" {
		n.moves.Begins(n.first, n.first+"2")()
	}
	return names.Entry{Entry: manifest.Entry{Name: name}}, manifest.Validity{}, nil
}

func TestALookupIsRepeatedForRenamesOnItsWayAlone(t *testing.T) {
	for _, test := range []struct {
		first string
		want  int
	}{{"", 1}, {"dir", 2}, {"di", 1}, {"dir/sub/name", 2}, {"dir/sub/name/below", 1}, {"dir/sub/other", 1}} {
		f := &filesystem{inodes: inodes{space: &writeback.Space{}}}
		names := &movingNames{moves: &f.inodes.moves, each: "elsewhere", first: test.first}
		f.inodes.names = names
		_, _, err := f.inodes.lookup(t.Context(), &inode{tree: listing.New("dir/sub")}, "name")
		if err != nil || names.lookups != test.want {
			t.Errorf("with a rename of %q %d lookups, %v", test.first, names.lookups, err)
		}
	}
}
