package eviction

import (
	"slices"

	"github.com/pailfs/pailfs/cache/internal/content"
)

// A RoomWaiter waits in line for room on SSD. A hundred fetches may: each is told to
// look again when there is room for it, and not whenever anything has changed, for
// so many who look in vain keep reads and hints from their turn.
type RoomWaiter struct {
	id content.Identity
	// need is what it found no room for, 0 if the object was on its way out.
	need int64
	// Look says that it should ask again.
	Look chan struct{}
}

// NewRoomWaiter returns one that is not in line yet.
func NewRoomWaiter(id content.Identity) *RoomWaiter {
	return &RoomWaiter{id: id, Look: make(chan struct{}, 1)}
}

// tell lets w ask again.
func (w *RoomWaiter) tell() {
	select {
	case w.Look <- struct{}{}:
	default: // it was told before and has not looked yet
	}
}

// ReserveInLine takes room for bytes of the object of w, or lets w wait for it. leave
// must follow.
func (r *Residents) ReserveInLine(w *RoomWaiter, bytes int64) Answer {
	r.mu.Lock()
	present := r.mu.table[w.id] != nil
	answer, _ := r.reserveLocked(w.id, bytes, true)
	crowded := r.crowdedLocked()
	switch answer {
	case Reserved:
		r.mu.line.leave(w)
	case Full, Busy:
		w.need = 0
		if answer == Full {
			w.need = bytes
			if !present {
				w.need += Overhead
			}
		}
		if !slices.Contains(r.mu.line, w) {
			r.mu.line = append(r.mu.line, w)
		} else if answer == Full {
			r.serveLocked() // it was told of room that a write has taken: the rest may do for another
		}
	}
	r.mu.Unlock()
	if answer == Full || crowded {
		r.full()
	}
	return answer
}

// Leave ends the wait of w. The room that it was told of is the next one's.
func (r *Residents) Leave(w *RoomWaiter) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.line.leave(w) {
		r.roomLocked()
	}
}

// roomLine are those who wait for room, the first to come first. It is guarded by the
// lock of the residents.
type roomLine []*RoomWaiter

// leave takes w out of the line and tells whether it was there.
func (l *roomLine) leave(w *RoomWaiter) (waited bool) {
	i := slices.Index(*l, w)
	if i < 0 {
		return false
	}
	*l = slices.Delete(*l, i, i+1)
	return true
}

// Progressed says that more of an object is on SSD: who waits for room for it needs
// less than before.
func (r *Residents) Progressed(id content.Identity) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.line.tell(id)
}

// tell lets those ask again who wait for room for one object.
func (l roomLine) tell(id content.Identity) {
	for _, w := range l {
		if w.id == id {
			w.tell()
		}
	}
}

// need returns what those in line need together, and how keenly, given what is held: one
// eviction, which has to tell the disk, serves them all. What one object needs counts
// once, however many wait for it.
func (l roomLine) need(held map[content.Identity]int) (bytes int64, keen Keenness) {
	for i, w := range l {
		if !slices.ContainsFunc(l[:i], func(before *RoomWaiter) bool { return before.id == w.id }) {
			bytes += w.need
		}
		if held[w.id] > 0 {
			keen = TakeWanted
		}
	}
	return bytes, keen
}

// Waiting returns how many are in line.
func (r *Residents) Waiting() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.mu.line)
}

// WaitRoom returns a channel that is closed when reserve may succeed.
func (r *Residents) WaitRoom() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.room == nil {
		r.mu.room = make(chan struct{})
	}
	return r.mu.room
}

// Changed says that a victim may be found where there was none.
func (r *Residents) Changed() {
	r.mu.Lock()
	waiting := r.mu.room != nil
	r.roomLocked()
	r.mu.Unlock()
	if waiting {
		r.full()
	}
}

// roomLocked follows whatever may have made room, or a victim.
func (r *Residents) roomLocked() {
	if r.serveLocked() {
		r.full()
	}
}

// serveLocked tells those who may find room, and whether there are others. Who comes
// first in line looks first. One for whom there is too little lets smaller ones pass:
// it may wait for what is held, and they need not.
func (r *Residents) serveLocked() (unserved bool) {
	if r.mu.room != nil {
		close(r.mu.room)
		r.mu.room = nil
	}
	return r.mu.line.serve(r.mu.limit - r.mu.size)
}

// serve tells those for whom there is room in that many bytes, and whether there are
// others.
func (l roomLine) serve(free int64) (unserved bool) {
	for _, w := range l {
		if w.need > 0 && w.need > free {
			unserved = true
			continue
		}
		free -= w.need
		w.tell()
	}
	return unserved
}
