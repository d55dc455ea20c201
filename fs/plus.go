package fs

import (
	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/pailfs/pailfs/fs/internal/listing"
	"github.com/pailfs/pailfs/fs/internal/names"
	"github.com/pailfs/pailfs/manifest"
)

// firstPlus is how many entries come with their attributes to everyone who begins to list a
// directory. Then the kernel decides what to ask for.
const firstPlus = 64

// plusReply is one answer to READDIRPLUS.
type plusReply struct {
	ds    *directories
	in    *fuse.ReadIn
	out   *fuse.DirEntryList
	given int
	// completing is what asks for attributes, nil if none are.
	completing *listing.Completing
	// noted says that the thread was noted, probe that one file has to come without attributes.
	noted, probe bool
}

// add takes an entry in, as an [addEntry]. What the tree does not know all of is
// named only: the kernel looks up what it needs.
func (r *plusReply) add(dir *inode, d fuse.DirEntry, e *names.Entry, valid manifest.Validity) bool {
	asked := r.completing != nil && r.completing.Asked
	if r.in.Offset == 0 && !r.noted && (r.given == firstPlus || asked) {
		r.noted = true
		if r.probe = r.ds.statters.Lists(r.in.Pid, dir.id); !r.probe && r.given == firstPlus {
			return false
		}
	}
	out := r.out.AddDirLookupEntry(d)
	if out == nil {
		return false
	}
	if e == nil {
		return true
	}
	r.given++
	switch {
	case e.Partial:
	case r.probe && e.Kind != manifest.Directory:
		r.probe = false
	default:
		r.ds.listed(dir, e, valid, out)
	}
	return true
}

// completes returns what asks for attributes in the answer to a thread that begins to list
// a directory, or goes on. Those of the first entries are for who has looked up what it listed
// before, those of others for who has looked some up of this directory: the kernel asks for
// attributes there as soon as anybody has.
func (ds *directories) completes(in *fuse.ReadIn) *listing.Completing {
	tree, ok := ds.inodes.tree.(listing.Completer)
	if !ok || ds.inodes.numbered != nil {
		return nil
	}
	if in.Offset == 0 && !ds.statters.Wants(in.Pid) || in.Offset > 0 && !ds.statters.Looks(in.Pid, in.NodeId) {
		return nil
	}
	return &listing.Completing{Tree: tree}
}
