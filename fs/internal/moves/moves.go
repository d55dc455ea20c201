package moves

import (
	"hash/maphash"
	"strings"
	"sync"
	"sync/atomic"
)

// Moves keep what is known by path right while directories are renamed. What
// changes a name holds the lock for reading, from the moment at which it learns the
// path of the directory; the rename of a directory holds it for writing. Waits for
// room and for publication come before or after. A lookup,
// which may wait for the store, holds nothing: it begins anew if what it asks for, or a
// directory above, was renamed meanwhile. Who renames others keeps nobody from anything.
type Moves struct {
	sync.RWMutex
	// count changes at the beginning and at the end of a rename of a directory, and is odd
	// during one.
	count atomic.Uint64
	mu    struct {
		sync.Mutex
		// last has the count at the last rename from or to a path. Paths are hashed: who is
		// taken for another asks once more.
		last map[uint64]uint64
		seed maphash.Seed
		// forgotten is the count of the last rename of which the paths are not known any more.
		forgotten uint64
	}
}

// most bounds the renames of which the paths are remembered, at some 40 bytes each.
// Who wants to hold up a lookup that has nothing to do with it has to rename as many, all
// of them named differently, in the time that the lookup takes.
const most = 1 << 15

// Now returns the present moment, for [Moves.Touched].
func (m *Moves) Now() uint64 { return m.count.Load() }

// Begins notes that a directory begins to be renamed. The lock is held for writing. end
// must be called when all of it has taken effect.
func (m *Moves) Begins(from, to string) (end func()) {
	m.note(from, to)
	return func() { m.note(from, to) }
}

func (m *Moves) note(paths ...string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.count.Add(1)
	if m.mu.last == nil {
		m.mu.seed = maphash.MakeSeed()
	}
	if m.mu.last == nil || len(m.mu.last) >= most {
		m.mu.last = make(map[uint64]uint64)
		m.mu.forgotten = now - 1
	}
	for _, path := range paths {
		m.mu.last[maphash.String(m.mu.seed, path)] = now
	}
}

// Touched reports whether the directory at path may have been another one at some time
// since the moment since: it, or one above, has been renamed, or another one to there.
func (m *Moves) Touched(path string, since uint64) bool {
	if since%2 == 0 && m.count.Load() == since {
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	// A rename that was under way at that time counts, one that had ended does not.
	after := since - since%2
	if m.mu.forgotten > after {
		return true
	}
	for path != "" {
		if m.mu.last[maphash.String(m.mu.seed, path)] > after {
			return true
		}
		path = path[:max(strings.LastIndexByte(path, '/'), 0)]
	}
	return false
}
