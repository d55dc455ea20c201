package cache

import (
	"slices"

	"github.com/pailfs/pailfs/cache/internal/content"
)

// A roomWaiter waits in line for room on SSD. A hundred fetches may: each is told to
// look again when there is room for it, and not whenever anything has changed, for
// so many who look in vain keep reads and hints from their turn.
type roomWaiter struct {
	id content.Identity
	// need is what it found no room for, 0 if the object was on its way out.
	need int64
	// look says that it should ask again.
	look chan struct{}
}

func newRoomWaiter(id content.Identity) *roomWaiter {
	return &roomWaiter{id: id, look: make(chan struct{}, 1)}
}

// tell lets w ask again.
func (w *roomWaiter) tell() {
	select {
	case w.look <- struct{}{}:
	default: // it was told before and has not looked yet
	}
}

// reserveInLine takes room for bytes of the object of w, or lets w wait for it. leave
// must follow.
func (r *residents) reserveInLine(w *roomWaiter, bytes int64) reservation {
	r.mu.Lock()
	present := r.mu.table[w.id] != nil
	answer, _ := r.reserveLocked(w.id, bytes, true)
	crowded := r.crowdedLocked()
	switch answer {
	case reserved:
		r.leaveLineLocked(w)
	case reserveFull, reserveBusy:
		w.need = 0
		if answer == reserveFull {
			w.need = bytes
			if !present {
				w.need += residentOverhead
			}
		}
		if !slices.Contains(r.mu.line, w) {
			r.mu.line = append(r.mu.line, w)
		} else if answer == reserveFull {
			r.serveLocked() // it was told of room that a write has taken: the rest may do for another
		}
	}
	r.mu.Unlock()
	if answer == reserveFull || crowded {
		r.full()
	}
	return answer
}

// leave ends the wait of w. The room that it was told of is the next one's.
func (r *residents) leave(w *roomWaiter) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.leaveLineLocked(w) {
		r.roomLocked()
	}
}

func (r *residents) leaveLineLocked(w *roomWaiter) (waited bool) {
	i := slices.Index(r.mu.line, w)
	if i < 0 {
		return false
	}
	r.mu.line = slices.Delete(r.mu.line, i, i+1)
	return true
}

// progressed says that more of an object is on SSD: who waits for room for it needs
// less than before.
func (r *residents) progressed(id content.Identity) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tellLocked(id)
}

// tellLocked lets those ask again who wait for room for one object.
func (r *residents) tellLocked(id content.Identity) {
	for _, w := range r.mu.line {
		if w.id == id {
			w.tell()
		}
	}
}

// waitingLocked returns what those in line need together, and how keenly: one
// eviction, which has to tell the disk, serves them all. What one object needs counts
// once, however many wait for it.
func (r *residents) waitingLocked() (bytes int64, keen keenness) {
	for i, w := range r.mu.line {
		if !slices.ContainsFunc(r.mu.line[:i], func(before *roomWaiter) bool { return before.id == w.id }) {
			bytes += w.need
		}
		if r.mu.held[w.id] > 0 {
			keen = takeWanted
		}
	}
	return bytes, keen
}

// waitRoom returns a channel that is closed when reserve may succeed.
func (r *residents) waitRoom() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.room == nil {
		r.mu.room = make(chan struct{})
	}
	return r.mu.room
}

// changed says that a victim may be found where there was none.
func (r *residents) changed() {
	r.mu.Lock()
	waiting := r.mu.room != nil
	r.roomLocked()
	r.mu.Unlock()
	if waiting {
		r.full()
	}
}

// roomLocked follows whatever may have made room, or a victim.
func (r *residents) roomLocked() {
	if r.serveLocked() {
		r.full()
	}
}

// serveLocked tells those who may find room, and whether there are others. Who comes
// first in line looks first. One for whom there is too little lets smaller ones pass:
// it may wait for what is held, and they need not.
func (r *residents) serveLocked() (unserved bool) {
	if r.mu.room != nil {
		close(r.mu.room)
		r.mu.room = nil
	}
	free := r.mu.limit - r.mu.size
	for _, w := range r.mu.line {
		if w.need > 0 && w.need > free {
			unserved = true
			continue
		}
		free -= w.need
		w.tell()
	}
	return unserved
}
