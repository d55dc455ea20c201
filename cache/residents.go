package cache

import (
	"sort"
	"sync"
	"time"

	"github.com/pailfs/pailfs/cache/internal/content"
)

// A resident is an object that has a file on SSD, as eviction sees it.
type resident struct {
	id   content.Identity
	size int64 // what its blocks occupy, with those about to be written

	list, from *residentList // from: where it was before it was picked
	next, prev *resident

	used     int64  // Unix seconds
	visited  bool   // used since it was last looked at
	wanted   bool   // brought by Fetch and not opened yet
	evicting bool   // on its way out; its file must not be touched
	broken   bool   // and was held when it was picked for that
	tried    uint64 // the round of eviction that found it in use
}

// useAge is after how many uses for each object that is present all counts are
// halved: more than an epoch over a dataset ten times as large.
const useAge = 16

// minUseAge is how many uses that are at least.
const minUseAge = 1024

// admitMargin is by how much more a newcomer must have been used. In an epoch that
// has just begun the first files were used once more than those whose turn is
// still to come: that must not count.
const admitMargin = 1

// residentOverhead is what a file costs beside its blocks.
const residentOverhead = 4 << 10

// residents decide what stays on SSD.
//
// A newcomer enters the window, a queue of a tenth of the size. What leaves the
// window must have been used more often than the main queue's victim to take its
// place, else it goes itself. So a scan, or the many epochs of a training whose
// data is larger than the disk, passes through the window, and what was there
// first stays and is hit once in every epoch; with any policy by recency alone
// everything would be gone just before it is wanted again. Uses are counted for
// absent objects too, and counts are halved with time: when another dataset is
// read instead, its objects overtake the old ones within some epochs. As long as
// there is room everything goes into the main queue.
//
// Released objects go first. What Fetch brought stays until it was read or
// released, and what is held as long as it is: both lie in a queue of their own,
// where no victim is looked for but by those whose turn it is before them (see
// keenness).
type residents struct {
	mu struct {
		sync.Mutex
		table                        map[content.Identity]*resident
		window, main, released, kept residentList
		size, limit                  int64
		// held counts the holds of objects, whether they are present or not.
		held map[content.Identity]int
		// dropped are to go as soon as nobody uses them.
		dropped map[content.Identity]bool
		// round numbers the runs of eviction.
		round uint64
		// broken counts the objects that went although they were held.
		broken uint64
		// shortageKeen is the most pressing of those whose need shortage is.
		shortageKeen keenness
		sketch       *sketch
		// shortage is the most that was asked for in vain since the evictor looked.
		shortage int64
		// line are those who wait until they find room.
		line []*roomWaiter
		// room is closed when there may be room again.
		room chan struct{}
		// uses are those whose use the index does not know yet.
		uses map[content.Identity]*resident
	}
	// full asks the evictor to make room.
	full func()
}

// residentList is a queue: objects enter at the front and leave at the back.
type residentList struct {
	head resident
	size int64
	len  int
}

func newResidents(full func()) *residents {
	r := &residents{full: full}
	r.mu.round = 1
	r.mu.table = make(map[content.Identity]*resident)
	r.mu.uses = make(map[content.Identity]*resident)
	r.mu.held = make(map[content.Identity]int)
	r.mu.dropped = make(map[content.Identity]bool)
	r.mu.sketch = newSketch()
	for _, l := range r.lists() {
		l.head.next, l.head.prev = &l.head, &l.head
	}
	return r
}

func (r *residents) lists() []*residentList {
	return []*residentList{&r.mu.window, &r.mu.main, &r.mu.released, &r.mu.kept}
}

func (l *residentList) pushFront(e *resident) {
	e.list, e.prev, e.next = l, &l.head, l.head.next
	e.prev.next, e.next.prev = e, e
	l.size += e.size
	l.len++
}

func (l *residentList) remove(e *resident) {
	e.prev.next, e.next.prev = e.next, e.prev
	e.list, e.next, e.prev = nil, nil, nil
	l.size -= e.size
	l.len--
}

func (l *residentList) back() *resident {
	if l.head.prev == &l.head {
		return nil
	}
	return l.head.prev
}

// restore adds what a start found in the index.
func (r *residents) restore(found []*resident, released map[content.Identity]bool) {
	sort.Slice(found, func(i, j int) bool { return found[i].used < found[j].used })
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range found {
		r.mu.table[e.id] = e
		r.mu.size += e.size
		if released[e.id] {
			r.mu.released.pushFront(e)
		} else {
			r.mu.main.pushFront(e)
		}
	}
	r.mu.sketch.grow(len(found))
}

// setLimit changes how many bytes there may be.
func (r *residents) setLimit(limit int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	more := limit > r.mu.limit
	r.mu.limit = limit
	if more {
		r.serveLocked() // the evictor, who sets it, looks for victims anyway
	}
}

// opened counts a use of an object, which may be absent. What Fetch brought has
// then served its purpose.
func (r *residents) opened(id content.Identity) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.sketch.add(id, max(useAge*len(r.mu.table), minUseAge))
	delete(r.mu.dropped, id)
	e := r.mu.table[id]
	if e == nil {
		return
	}
	e.used, e.visited = time.Now().Unix(), true
	r.mu.uses[id] = e
	wanted := e.wanted
	e.wanted = false
	if e.list == &r.mu.released || wanted {
		r.placeLocked(e, &r.mu.main)
		r.roomLocked()
	}
}

// release makes an object the next to go.
func (r *residents) release(id content.Identity) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.mu.table[id]
	if e == nil {
		return
	}
	e.wanted, e.visited = false, false
	r.mu.uses[id] = e
	r.placeLocked(e, &r.mu.released)
	r.roomLocked()
}

// placeLocked moves e to the front of a queue, or of those that are kept if it is
// held or wanted. One that is on its way out goes there when it is put back.
func (r *residents) placeLocked(e *resident, l *residentList) {
	if e.wanted || r.mu.held[e.id] > 0 {
		l = &r.mu.kept
	}
	switch {
	case e.list == nil:
		e.from = l
	case e.list != l:
		e.list.remove(e)
		l.pushFront(e)
	}
}

// reservation is the answer to reserve.
type reservation uint8

const (
	reserved reservation = iota
	// reserveFull: there is no room; eviction was asked for some.
	reserveFull
	// reserveBusy: the object is being evicted.
	reserveBusy
)

// reserve takes room for bytes of an object. created says that it was absent.
func (r *residents) reserve(id content.Identity, bytes int64, wanted bool) (answer reservation, created bool) {
	r.mu.Lock()
	answer, created = r.reserveLocked(id, bytes, wanted)
	crowded := r.crowdedLocked()
	r.mu.Unlock()
	if answer == reserveFull || crowded {
		r.full()
	}
	return answer, created
}

func (r *residents) reserveLocked(id content.Identity, bytes int64, wanted bool) (reservation, bool) {
	e := r.mu.table[id]
	if e != nil && e.evicting {
		return reserveBusy, false
	}
	need := bytes
	if e == nil {
		need += residentOverhead
	}
	if need > 0 && r.mu.size+need > r.mu.limit {
		r.mu.shortage = max(r.mu.shortage, need)
		if r.mu.held[id] > 0 {
			r.mu.shortageKeen = takeWanted
		}
		return reserveFull, false
	}
	created := e == nil
	if created {
		e = &resident{id: id, used: time.Now().Unix()}
		r.mu.table[id] = e
		if r.mu.main.size+need <= r.mainShareLocked() {
			r.mu.main.pushFront(e)
		} else {
			r.mu.window.pushFront(e)
		}
		r.mu.sketch.grow(len(r.mu.table))
	}
	if wanted {
		e.wanted = true
		delete(r.mu.dropped, id)
	}
	r.placeLocked(e, e.list)
	r.resizeLocked(e, need)
	return reserved, created
}

// unreserve gives back room that was not used.
func (r *residents) unreserve(id content.Identity, bytes int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e := r.mu.table[id]; e != nil {
		r.resizeLocked(e, -bytes)
		r.roomLocked()
	}
}

func (r *residents) resizeLocked(e *resident, delta int64) {
	e.size += delta
	r.mu.size += delta
	if e.list != nil {
		e.list.size += delta
	}
}

// mainShareLocked is how large the main queue may be: nine tenths of what eviction
// and those that are kept leave.
func (r *residents) mainShareLocked() int64 {
	full := max(r.mu.limit-r.slackLocked()-r.mu.kept.size, 0)
	return full - full/10
}

// slackLocked is how much eviction keeps free, so that writes find room at once.
func (r *residents) slackLocked() int64 { return min(r.mu.limit/50, 1<<30) }

// crowdedLocked tells whether eviction should begin.
func (r *residents) crowdedLocked() bool {
	return r.mu.size > r.mu.limit-r.slackLocked()/2
}

// excess returns how much eviction should free, and how keenly: so that there is
// slack, and room for whoever did not find any.
func (r *residents) excess() (bytes int64, keen keenness) {
	r.mu.Lock()
	defer r.mu.Unlock()
	waiting, keen := r.waitingLocked()
	if !r.crowdedLocked() && r.mu.shortage == 0 && waiting == 0 {
		return 0, takeIdle
	}
	free := max(r.slackLocked(), min(max(r.mu.shortage, waiting), r.mu.limit))
	keen = max(keen, r.mu.shortageKeen)
	r.mu.shortage, r.mu.shortageKeen = 0, takeIdle
	return max(r.mu.size-(r.mu.limit-free), 0), keen
}

// keenness says what eviction may take.
type keenness uint8

const (
	// takeIdle takes what nobody has asked to be kept.
	takeIdle keenness = iota
	// takeWanted takes, after that, what was fetched and not read yet.
	takeWanted
	// takeHeld takes, after that, what is held: the disk is needed for what exists
	// nowhere else.
	takeHeld
)

// newRound begins a run of eviction: those that were found in use in the one before
// are offered again.
func (r *residents) newRound() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.round++
}

// pick chooses the next victim, which is marked as on its way out, or nil.
func (r *residents) pick(keen keenness) *resident {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, l := range r.orderLocked() {
		if e := r.victimLocked(l); e != nil {
			r.leaveLocked(e)
			return e
		}
	}
	if e := r.keptLocked(keen); e != nil {
		r.leaveLocked(e)
		return e
	}
	return nil
}

// keptLocked returns the oldest of those that are kept which may be taken: what is
// wanted before what is held.
func (r *residents) keptLocked(keen keenness) *resident {
	if keen == takeIdle {
		return nil
	}
	var held *resident
	l := &r.mu.kept
	for e := l.back(); e != nil && e != &l.head; e = e.prev {
		switch {
		case e.tried == r.mu.round:
		case r.mu.held[e.id] == 0:
			return e
		case held == nil:
			held = e
		}
	}
	if keen == takeHeld {
		return held
	}
	return nil
}

// leaveLocked marks e as on its way out.
func (r *residents) leaveLocked(e *resident) {
	e.evicting, e.from = true, e.list
	e.broken = r.mu.held[e.id] > 0 // a hold that comes later finds nothing to keep
	e.list.remove(e)
}

// orderLocked returns the queues in which to look for a victim. The window offers
// its last, which goes, or takes the place of a victim of the main queue that was
// used less.
func (r *residents) orderLocked() []*residentList {
	main, window, released := &r.mu.main, &r.mu.window, &r.mu.released
	if main.size > r.mainShareLocked() {
		return []*residentList{released, main, window}
	}
	candidate, victim := window.back(), r.victimLocked(main)
	if released.len == 0 && candidate != nil && victim != nil &&
		r.mu.sketch.estimate(candidate.id) > r.mu.sketch.estimate(victim.id)+admitMargin {
		window.remove(candidate)
		main.pushFront(candidate)
		return []*residentList{main, window}
	}
	return []*residentList{released, window, main}
}

// victimLocked returns the last of a queue. Those of the main queue that were used
// since they were last looked at are given another round.
func (r *residents) victimLocked(l *residentList) *resident {
	for range l.len {
		e := l.back()
		if again := e.visited && l == &r.mu.main; again || e.tried == r.mu.round {
			e.visited = e.visited && !again
			l.remove(e)
			l.pushFront(e)
			continue
		}
		return e
	}
	// All were visited, and no longer are; or all are in use.
	if e := l.back(); e != nil && e.tried != r.mu.round {
		return e
	}
	return nil
}

// putBack returns a victim that cannot go because somebody uses it. It is not
// offered again in this round.
func (r *residents) putBack(e *resident) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e.evicting, e.broken, e.tried = false, false, r.mu.round
	if e.wanted || r.mu.held[e.id] > 0 {
		e.from = &r.mu.kept
	} else if e.from == &r.mu.kept {
		e.from = &r.mu.main
	}
	e.from.pushFront(e)
	r.tellLocked(e.id)
}

// take marks one object as on its way out, if it is there and is not already.
func (r *residents) take(id content.Identity) *resident {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.mu.table[id]
	if e == nil || e.evicting {
		return nil
	}
	r.leaveLocked(e)
	return e
}

// takeEmpty is take for an object of which nothing is on SSD. One that has room, if
// only since whoever asks has looked, is about to be written and stays. Nobody loses
// anything, held or not.
func (r *residents) takeEmpty(id content.Identity) *resident {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.mu.table[id]
	if e == nil || e.evicting || e.size > residentOverhead {
		return nil
	}
	r.leaveLocked(e)
	e.broken = false
	return e
}

// shield makes sure that nobody makes an object with that identity until gone is
// called; nil says that there is one.
func (r *residents) shield(id content.Identity) *resident {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.table[id] != nil {
		return nil
	}
	e := &resident{id: id, evicting: true}
	r.mu.table[id] = e
	return e
}

// gone removes victims whose files are no more.
func (r *residents) gone(victims []*resident) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range victims {
		delete(r.mu.table, e.id)
		delete(r.mu.uses, e.id)
		r.mu.size -= e.size
		if e.broken {
			r.mu.broken++
		}
	}
	r.roomLocked()
}

// presence says whether an object has a file.
type presence uint8

const (
	absent presence = iota
	present
	leaving // it must not be touched
)

// state tells whether an object has a file.
func (r *residents) state(id content.Identity) presence {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch e := r.mu.table[id]; {
	case e == nil:
		return absent
	case e.evicting:
		return leaving
	default:
		return present
	}
}

// takeUses returns what the index does not know yet of the use of objects.
func (r *residents) takeUses() map[content.Identity]content.Use {
	r.mu.Lock()
	defer r.mu.Unlock()
	uses := make(map[content.Identity]content.Use, len(r.mu.uses))
	for id, e := range r.mu.uses {
		uses[id] = r.useLocked(e)
	}
	clear(r.mu.uses)
	return uses
}

// use returns what is to be stored of the use of an object.
func (r *residents) use(id content.Identity) content.Use {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.mu.uses, id)
	if e := r.mu.table[id]; e != nil {
		return r.useLocked(e)
	}
	return content.Use{}
}

func (r *residents) useLocked(e *resident) content.Use {
	return content.Use{Last: e.used, Released: e.list == &r.mu.released}
}

// usage returns the number of objects and of bytes, and the limit.
func (r *residents) usage() (objects int, size, limit int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.mu.table), r.mu.size, r.mu.limit
}
