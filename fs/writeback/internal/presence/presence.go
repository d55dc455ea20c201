package presence

import (
	"encoding/binary"
	"math/bits"
	"sync"
)

// maxChunks is how many chunks a file has at most: they grow with it.
const maxChunks = 1 << 20

// Extent is a stretch of a file.
type Extent struct{ Off, Size int64 }

// End is where the stretch ends.
func (e Extent) End() int64 { return e.Off + e.Size }

// ChunkOf returns the size of the chunks of a file of a size, least or larger.
func ChunkOf(least, size int64) int64 {
	chunk := least
	for size > chunk*maxChunks {
		chunk *= 2
	}
	return chunk
}

// Set says which bytes of a partial file are in its staged file: all from limit
// on, and of those before it the chunks that were written here, which are local. The
// others are the base's. It is never inferred from holes: to copy a directory fills
// them, or makes some.
//
// A chunk that is local stays so, and limit never grows: what was cut off is zeros
// when the file is extended again. So whoever finds a byte to be the base's, fetches it,
// and finds that again afterwards, has the right one.
type Set struct {
	chunk int64

	mu struct {
		sync.Mutex
		limit int64
		local []uint64
		// missing counts the chunks below limit that are not local.
		missing int
		// watches are the publications that read the file now.
		watches map[*Watch]bool
	}
}

// Watch notices that the bytes below size change.
type Watch struct {
	size      int64
	disturbed bool
}

// New returns what a record says: limit and chunk in bytes, and local as record returns
// it. What it says of chunks that there are not, nobody has written.
func New(limit, chunk int64, local string) *Set {
	n := &Set{chunk: max(chunk, 1)}
	n.mu.limit = min(max(limit, 0), 1<<50)
	for n.mu.limit/n.chunk > 2*maxChunks {
		n.chunk *= 2 // nobody has written such a record
	}
	n.mu.watches = make(map[*Watch]bool)
	chunks := n.chunks()
	n.mu.local = make([]uint64, (chunks+63)/64)
	at, runs := 0, []byte(local)
	for at < chunks && len(runs) > 0 {
		var run [2]uint64
		for i := range run {
			u, k := binary.Uvarint(runs)
			if k <= 0 {
				u, k = 0, len(runs)
			}
			run[i], runs = min(u, uint64(chunks)), runs[k:]
		}
		at += int(run[0])
		for end := min(at+int(run[1]), chunks); at < end; at++ {
			n.mu.local[at/64] |= 1 << (at % 64)
		}
	}
	n.count()
	return n
}

// chunks is how many there are below the limit.
func (n *Set) chunks() int { return int((n.mu.limit + n.chunk - 1) / n.chunk) }

func (n *Set) count() {
	n.mu.missing = n.chunks()
	for _, word := range n.mu.local {
		n.mu.missing -= bits.OnesCount64(word)
	}
}

func (n *Set) has(i int) bool { return n.mu.local[i/64]&(1<<(i%64)) != 0 }

// extent returns the bytes of a chunk that are the base's unless it is local.
func (n *Set) extent(i int) Extent {
	off := int64(i) * n.chunk
	return Extent{off, min(n.chunk, n.mu.limit-off)}
}

// next returns the first chunk from i on that is local, or the first that is not; chunks if there
// is none.
func (n *Set) next(i int, local bool) int {
	chunks := n.chunks()
	for i < chunks {
		word := n.mu.local[i/64]
		if !local {
			word = ^word
		}
		if rest := word >> (i % 64); rest != 0 {
			return min(i+bits.TrailingZeros64(rest), chunks)
		}
		i = (i/64 + 1) * 64
	}
	return chunks
}

// Record returns what tells it in the journal: pairs of how many chunks are not local,
// and how many after them are.
func (n *Set) Record() (limit int64, local string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	var runs []byte
	for from, chunks := 0, n.chunks(); ; {
		first := n.next(from, true)
		if first == chunks {
			return n.mu.limit, string(runs)
		}
		end := n.next(first, false)
		runs = binary.AppendUvarint(runs, uint64(first-from))
		runs = binary.AppendUvarint(runs, uint64(end-first))
		from = end
	}
}

// Mark tells whether a presence has changed.
type Mark struct {
	of *Set
	// Limit and Local are what [Set.Record] returned.
	Limit int64
	Local string
}

// Mark returns what tells whether n, or which one there is, has changed since. There may be none.
func (n *Set) Mark() Mark {
	if n == nil {
		return Mark{}
	}
	limit, local := n.Record()
	return Mark{n, limit, local}
}

// Lacks reports whether any byte is the base's. Of no presence none is.
func (n *Set) Lacks() bool {
	if n == nil {
		return false
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.mu.missing > 0
}

// Absent returns the extents from off on, of size bytes, that are the base's.
func (n *Set) Absent(off, size int64) []Extent {
	if n == nil || size <= 0 {
		return nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	var all []Extent
	end := min(off+size, n.mu.limit)
	if off >= end {
		return nil
	}
	for i := n.next(int(off/n.chunk), false); int64(i)*n.chunk < end; {
		stop := n.next(i, true)
		from := max(off, int64(i)*n.chunk)
		all = append(all, Extent{from, min(int64(stop)*n.chunk, end) - from})
		i = n.next(stop, false)
	}
	return all
}

// Torn returns the chunks, as far as they are the base's, of which a change of size
// bytes at off leaves some as they are.
func (n *Set) Torn(off, size int64) []Extent {
	n.mu.Lock()
	defer n.mu.Unlock()
	var all []Extent
	end := min(off+size, n.mu.limit)
	for at := off; at < end; {
		i := int(at / n.chunk)
		e := n.extent(i)
		if !n.has(i) && (off > e.Off || off+size < e.End()) {
			all = append(all, e)
		}
		at = int64(i+1) * n.chunk
	}
	return all
}

// Changed makes the chunks of a change local.
func (n *Set) Changed(off, size int64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for at, end := off, min(off+size, n.mu.limit); at < end; {
		i := int(at / n.chunk)
		if !n.has(i) {
			n.mu.local[i/64] |= 1 << (i % 64)
			n.mu.missing--
		}
		at = int64(i+1) * n.chunk
	}
}

// Cut lowers the limit and reports whether it was higher.
func (n *Set) Cut(size int64) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if size >= n.mu.limit {
		return false
	}
	n.mu.limit = size
	chunks := n.chunks()
	n.mu.local = n.mu.local[:(chunks+63)/64]
	if chunks%64 != 0 {
		n.mu.local[chunks/64] &= 1<<(chunks%64) - 1
	}
	n.count()
	return true
}

// Watch begins to notice changes of the first size bytes, until unwatch.
func (n *Set) Watch(size int64) *Watch {
	n.mu.Lock()
	defer n.mu.Unlock()
	w := &Watch{size: size}
	n.mu.watches[w] = true
	return w
}

// Unwatch ends what Watch began.
func (n *Set) Unwatch(w *Watch) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.mu.watches, w)
}

// Disturb says that bytes from off on change.
func (n *Set) Disturb(off int64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for w := range n.mu.watches {
		w.disturbed = w.disturbed || off < w.size
	}
}

// Undisturbed reports whether nothing changed that w watches.
func (n *Set) Undisturbed(w *Watch) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return !w.disturbed
}

// First returns the first chunk of which the bytes are the base's, and whether there is
// one.
func (n *Set) First() (e Extent, lacks bool) {
	if !n.Lacks() {
		return e, false
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if i := n.next(0, false); i < n.chunks() {
		return n.extent(i), true
	}
	return e, false
}
