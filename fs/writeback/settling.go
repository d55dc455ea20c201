package writeback

import (
	"container/heap"
	"slices"
	"time"

	"github.com/pailfs/pailfs/fs/writeback/internal/state"
)

// settling are the names that are to be compared with the base tree, and when. In a burst
// of small files there are as many as operations, and they are asked for all the time.
type settling struct {
	names map[state.NameID]*settle
	// fresh have not been looked at, in the order of their positions but for a few; resting
	// are those that are looked at again at a time of their own. Either may have such as another one
	// has taken the place of.
	fresh   []*settle
	resting restingNames
}

// add wants a name compared once everything up to pos is on the disk, whatever was wanted
// before.
func (q *settling) add(id state.NameID, pos int64) {
	x := &settle{id: id, pos: pos}
	if q.names == nil {
		q.names = make(map[state.NameID]*settle)
	}
	q.names[id] = x
	if q.fresh = append(q.fresh, x); len(q.fresh) > 2*len(q.names)+64 {
		q.fresh = slices.DeleteFunc(q.fresh, q.over)
	}
}

// over reports whether another one has taken the place of x, or it has ended.
func (q *settling) over(x *settle) bool { return q.names[x.id] != x }

// end forgets x.
func (q *settling) end(x *settle) {
	if !q.over(x) {
		delete(q.names, x.id)
	}
}

// rest wants x, which was due, at another time.
func (q *settling) rest(x *settle, until time.Time) {
	if !q.over(x) {
		x.next = until
		heap.Push(&q.resting, x)
	}
}

// due takes what is due when the journal has everything up to synced. Each of it ends, or rests.
func (q *settling) due(synced int64, at time.Time) (due []*settle) {
	for {
		x, when := q.first(synced, at)
		if x == nil || when.After(at) {
			return due
		}
		if len(q.resting) > 0 && q.resting[0] == x {
			heap.Pop(&q.resting)
		} else {
			q.fresh = q.fresh[1:]
		}
		due = append(due, x)
	}
}

// first returns what is due next, and when; nil if nothing is before the journal has more.
func (q *settling) first(synced int64, at time.Time) (x *settle, when time.Time) {
	for len(q.fresh) > 0 && q.over(q.fresh[0]) {
		q.fresh = q.fresh[1:]
	}
	for len(q.resting) > 0 && q.over(q.resting[0]) {
		heap.Pop(&q.resting)
	}
	switch {
	case len(q.fresh) > 0 && q.fresh[0].pos <= synced:
		return q.fresh[0], at
	case len(q.resting) > 0:
		return q.resting[0], q.resting[0].next
	}
	return nil, time.Time{}
}

// restingNames is a heap with what is due first before all others.
type restingNames []*settle

func (h restingNames) Len() int           { return len(h) }
func (h restingNames) Less(i, j int) bool { return h[i].next.Before(h[j].next) }
func (h restingNames) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *restingNames) Push(x any)        { *h = append(*h, x.(*settle)) }

func (h *restingNames) Pop() any {
	last := len(*h) - 1
	x := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return x
}
