package statters

import "sync"

// Attributes make a listing ten times as dear as names alone, and a LOOKUP for a
// name without them is five times dearer still. The kernel asks for attributes at the
// start of a directory, and further on if the reader wanted some meanwhile. That
// serves ls(1), which takes name by name. Who reads all names before the first stat,
// as find(1) and du(1) do, gets no more than what comes first; so we look after them.
const (
	// Enough is how many files a thread looks up in the directory that it has
	// listed before it is taken for one that looks all up.
	Enough = 8
	// statterSlots is how many threads are remembered.
	statterSlots = 64
)

// Threads remembers which threads ask for the attributes of what they have listed.
type Threads struct {
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
	// dir is the one it listed last, of those with more than the first entries and those
	// whose attributes were asked of the store for it.
	dir uint64
	// asked counts its lookups there; enough of them say that it looks all up.
	asked, enough int
}

// Lists notes that a thread goes on with dir after its first entries, or that their
// attributes were asked of the store for it, and reports whether to give it the attributes
// of what follows. If so, one file has to come without: that it is looked up says that they
// are still wanted.
func (s *Threads) Lists(thread uint32, dir uint64) bool {
	mu := &s.slots[thread%statterSlots].mu
	mu.Lock()
	defer mu.Unlock()
	wants := mu.thread == thread && mu.wants()
	mu.statter = statter{thread: thread, dir: dir, enough: Enough}
	if wants {
		mu.enough = 1
	}
	return wants
}

// Wants reports whether a thread looked up what it listed last.
func (s *Threads) Wants(thread uint32) bool {
	mu := &s.slots[thread%statterSlots].mu
	mu.Lock()
	defer mu.Unlock()
	return mu.thread == thread && mu.wants()
}

// Looks reports whether a thread that goes on with dir has looked up a file there since it
// began. If it is noted nowhere, as where its first answer was short, it is from now on.
func (s *Threads) Looks(thread uint32, dir uint64) bool {
	mu := &s.slots[thread%statterSlots].mu
	mu.Lock()
	defer mu.Unlock()
	if mu.thread != thread || mu.dir != dir {
		mu.statter = statter{thread: thread, dir: dir, enough: Enough}
	}
	return mu.asked > 0
}

// wants reports whether its lookups are enough.
func (s *statter) wants() bool { return s.enough > 0 && s.asked >= s.enough }

// Asks notes that a thread looked up a file in dir.
func (s *Threads) Asks(thread uint32, dir uint64) {
	mu := &s.slots[thread%statterSlots].mu
	mu.Lock()
	defer mu.Unlock()
	if mu.thread == thread && mu.dir == dir {
		mu.asked++
	}
}
