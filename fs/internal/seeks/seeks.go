package seeks

import (
	"slices"
	"sync"
)

// Whoever comes to a position by seekdir(3) often wants one entry, but the C library
// asks for as much as its buffer holds. So such a reader gets few entries, and the more
// the longer it reads on from there.
const (
	// First is how many entries the first answer after a seek has.
	First  = 16
	growth = 4
	// most is the longest answer that is counted: after it a reader gets all that fits.
	most = 1024
)

// Next returns how many entries the answer after one of limit has to a reader that goes on
// from there. 0 is as many as fit.
func Next(limit int) int {
	if limit *= growth; limit > most {
		return 0
	}
	return limit
}

// endsMost bounds the readers of one directory that are known to be reading on. There are
// fewer than entries in a first answer, so that who goes to one position after the other
// does not come to the end of an answer of its own.
const endsMost = First - 1

// Ends are where the last answers of a directory ended. Whoever comes with one of these
// offsets goes on reading, everybody else came by a seek. The zero value will do.
type Ends struct {
	mu struct {
		sync.Mutex
		ends []end // the oldest first
	}
}

// end is an answer's last offset, and how many entries the next answer has.
type end struct {
	offset uint64
	limit  int
}

// Limit returns how many entries an answer has that begins after offset, 0 for as many as
// fit. An end is one reader's, and used up.
func (e *Ends) Limit(offset uint64) int {
	if offset == 0 {
		return 0
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	i := slices.IndexFunc(e.mu.ends, func(at end) bool { return at.offset == offset })
	if i < 0 {
		return First
	}
	limit := e.mu.ends[i].limit
	e.mu.ends = slices.Delete(e.mu.ends, i, i+1)
	return limit
}

// Answered notes that an answer of at most limit entries ended with offset, and not with the
// directory.
func (e *Ends) Answered(offset uint64, limit int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.mu.ends) == endsMost {
		e.mu.ends = slices.Delete(e.mu.ends, 0, 1)
	}
	e.mu.ends = append(e.mu.ends, end{offset, Next(limit)})
}
