package fs

import (
	"sync"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/pailfs/pailfs/manifest"
)

// Attributes make a listing ten times as dear as names alone, and a LOOKUP for a
// name without them is five times dearer still. The kernel asks for attributes at the
// start of a directory, and further on if the reader wanted some meanwhile. That
// serves ls(1), which takes name by name. Who reads all names before the first stat,
// as find(1) and du(1) do, gets no more than what comes first; so we look after them.
const (
	// firstPlus is how many entries come with their attributes to everyone who begins
	// to list a directory. Then the kernel decides what to ask for.
	firstPlus = 64
	// statterAsks is how many files a thread looks up in the directory that it has
	// listed before it is taken for one that looks all up.
	statterAsks = 8
	// statterSlots is how many threads are remembered.
	statterSlots = 64
)

// statters remembers which threads ask for the attributes of what they have listed.
type statters struct {
	slots [statterSlots]struct {
		mu struct {
			sync.Mutex
			statter
		}
	}
}

// statter is a thread that lists directories.
type statter struct {
	thread uint32
	// dir is the one it listed last, of those with more than firstPlus entries and those
	// whose attributes were asked of the store for it.
	dir uint64
	// asked counts its lookups there; enough of them say that it looks all up.
	asked, enough int
}

// lists notes that a thread goes on with dir after its first entries, or that their
// attributes were asked of the store for it, and reports whether to give it the attributes
// of what follows. If so, one file has to come without: that it is looked up says that they
// are still wanted.
func (s *statters) lists(thread uint32, dir uint64) bool {
	mu := &s.slots[thread%statterSlots].mu
	mu.Lock()
	defer mu.Unlock()
	wants := mu.thread == thread && mu.wants()
	mu.statter = statter{thread: thread, dir: dir, enough: statterAsks}
	if wants {
		mu.enough = 1
	}
	return wants
}

// wants reports whether a thread looked up what it listed last.
func (s *statters) wants(thread uint32) bool {
	mu := &s.slots[thread%statterSlots].mu
	mu.Lock()
	defer mu.Unlock()
	return mu.thread == thread && mu.wants()
}

// looks reports whether a thread that goes on with dir has looked up a file there since it
// began. If it is noted nowhere, as where its first answer was short, it is from now on.
func (s *statters) looks(thread uint32, dir uint64) bool {
	mu := &s.slots[thread%statterSlots].mu
	mu.Lock()
	defer mu.Unlock()
	if mu.thread != thread || mu.dir != dir {
		mu.statter = statter{thread: thread, dir: dir, enough: statterAsks}
	}
	return mu.asked > 0
}

// wants reports whether its lookups are enough.
func (s *statter) wants() bool { return s.enough > 0 && s.asked >= s.enough }

// asks notes that a thread looked up a file in dir.
func (s *statters) asks(thread uint32, dir uint64) {
	mu := &s.slots[thread%statterSlots].mu
	mu.Lock()
	defer mu.Unlock()
	if mu.thread == thread && mu.dir == dir {
		mu.asked++
	}
}

// plusReply is one answer to READDIRPLUS.
type plusReply struct {
	fs    *filesystem
	in    *fuse.ReadIn
	out   *fuse.DirEntryList
	given int
	// completing is what asks for attributes, nil if none are.
	completing *completing
	// noted says that the thread was noted, probe that one file has to come without attributes.
	noted, probe bool
}

// add takes an entry in, as an [addEntry]. What the tree does not know all of is
// named only: the kernel looks up what it needs.
func (r *plusReply) add(dir *inode, d fuse.DirEntry, e *entry, valid manifest.Validity) bool {
	asked := r.completing != nil && r.completing.asked
	if r.in.Offset == 0 && !r.noted && (r.given == firstPlus || asked) {
		r.noted = true
		if r.probe = r.fs.statters.lists(r.in.Pid, dir.id); !r.probe && r.given == firstPlus {
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
		r.fs.listed(dir, e, valid, out)
	}
	return true
}
