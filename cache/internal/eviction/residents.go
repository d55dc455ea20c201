package eviction

import (
	"maps"
	"slices"
	"sort"
	"sync"
	"time"

	"github.com/pailfs/pailfs/cache/internal/content"
)

// A Resident is an object that has a file on SSD, as eviction sees it.
type Resident struct {
	ID   content.Identity
	Size int64 // what its blocks occupy, with those about to be written

	list, from *residentList // from: where it was before it was picked
	next, prev *Resident

	Used     int64  // Unix seconds
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

// Overhead is what a file costs beside its blocks.
const Overhead = 4 << 10

// Residents decide what stays on SSD.
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
type Residents struct {
	mu struct {
		sync.Mutex
		table                        map[content.Identity]*Resident
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
		shortageKeen Keenness
		sketch       *sketch
		// shortage is the most that was asked for in vain since the evictor looked.
		shortage int64
		// line are those who wait until they find room.
		line roomLine
		// room is closed when there may be room again.
		room chan struct{}
		// uses are those whose use the index does not know yet.
		uses map[content.Identity]*Resident
	}
	// full asks the evictor to make room.
	full func()
}

// residentList is a queue: objects enter at the front and leave at the back.
type residentList struct {
	head Resident
	size int64
	len  int
}

// New returns residents that call full, which asks the evictor to make room, without a lock held.
func New(full func()) *Residents {
	r := &Residents{full: full}
	r.mu.round = 1
	r.mu.table = make(map[content.Identity]*Resident)
	r.mu.uses = make(map[content.Identity]*Resident)
	r.mu.held = make(map[content.Identity]int)
	r.mu.dropped = make(map[content.Identity]bool)
	r.mu.sketch = newSketch()
	for _, l := range lists(r) {
		l.head.next, l.head.prev = &l.head, &l.head
	}
	return r
}

func lists(r *Residents) []*residentList {
	return []*residentList{&r.mu.window, &r.mu.main, &r.mu.released, &r.mu.kept}
}

func (l *residentList) pushFront(e *Resident) {
	e.list, e.prev, e.next = l, &l.head, l.head.next
	e.prev.next, e.next.prev = e, e
	l.size += e.Size
	l.len++
}

func (l *residentList) remove(e *Resident) {
	e.prev.next, e.next.prev = e.next, e.prev
	e.list, e.next, e.prev = nil, nil, nil
	l.size -= e.Size
	l.len--
}

func (l *residentList) back() *Resident {
	if l.head.prev == &l.head {
		return nil
	}
	return l.head.prev
}

// Restore adds what a start found in the index.
func (r *Residents) Restore(found []*Resident, released map[content.Identity]bool) {
	sort.Slice(found, func(i, j int) bool { return found[i].Used < found[j].Used })
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range found {
		r.mu.table[e.ID] = e
		r.mu.size += e.Size
		if released[e.ID] {
			r.mu.released.pushFront(e)
		} else {
			r.mu.main.pushFront(e)
		}
	}
	r.mu.sketch.grow(len(found))
}

// SetLimit changes how many bytes there may be.
func (r *Residents) SetLimit(limit int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	more := limit > r.mu.limit
	r.mu.limit = limit
	if more {
		r.serveLocked() // the evictor, who sets it, looks for victims anyway
	}
}

// Opened counts a use of an object, which may be absent. What Fetch brought has
// then served its purpose.
func (r *Residents) Opened(id content.Identity) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.sketch.add(id, max(useAge*len(r.mu.table), minUseAge))
	delete(r.mu.dropped, id)
	e := r.mu.table[id]
	if e == nil {
		return
	}
	e.Used, e.visited = time.Now().Unix(), true
	r.mu.uses[id] = e
	wanted := e.wanted
	e.wanted = false
	if e.list == &r.mu.released || wanted {
		r.placeLocked(e, &r.mu.main)
		r.roomLocked()
	}
}

// Release makes an object the next to go.
func (r *Residents) Release(id content.Identity) {
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
func (r *Residents) placeLocked(e *Resident, l *residentList) {
	if e.wanted || r.mu.held[e.ID] > 0 {
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

// Answer is the answer to Reserve.
type Answer uint8

// The answers to Reserve.
const (
	Reserved Answer = iota
	Full            // there is no room, and eviction was asked for some
	Busy            // the object is being evicted
)

// Reserve takes room for bytes of an object. created says that it was absent.
func (r *Residents) Reserve(id content.Identity, bytes int64, wanted bool) (answer Answer, created bool) {
	r.mu.Lock()
	answer, created = r.reserveLocked(id, bytes, wanted)
	crowded := r.crowdedLocked()
	r.mu.Unlock()
	if answer == Full || crowded {
		r.full()
	}
	return answer, created
}

func (r *Residents) reserveLocked(id content.Identity, bytes int64, wanted bool) (Answer, bool) {
	e := r.mu.table[id]
	if e != nil && e.evicting {
		return Busy, false
	}
	need := bytes
	if e == nil {
		need += Overhead
	}
	if need > 0 && r.mu.size+need > r.mu.limit {
		r.mu.shortage = max(r.mu.shortage, need)
		if r.mu.held[id] > 0 {
			r.mu.shortageKeen = TakeWanted
		}
		return Full, false
	}
	created := e == nil
	if created {
		e = &Resident{ID: id, Used: time.Now().Unix()}
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
	return Reserved, created
}

// Unreserve gives back room that was not used.
func (r *Residents) Unreserve(id content.Identity, bytes int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e := r.mu.table[id]; e != nil {
		r.resizeLocked(e, -bytes)
		r.roomLocked()
	}
}

func (r *Residents) resizeLocked(e *Resident, delta int64) {
	e.Size += delta
	r.mu.size += delta
	if e.list != nil {
		e.list.size += delta
	}
}

// mainShareLocked is how large the main queue may be: nine tenths of what eviction
// and those that are kept leave.
func (r *Residents) mainShareLocked() int64 {
	full := max(r.mu.limit-r.slackLocked()-r.mu.kept.size, 0)
	return full - full/10
}

// slackLocked is how much eviction keeps free, so that writes find room at once.
func (r *Residents) slackLocked() int64 { return min(r.mu.limit/50, 1<<30) }

// crowdedLocked tells whether eviction should begin.
func (r *Residents) crowdedLocked() bool {
	return r.mu.size > r.mu.limit-r.slackLocked()/2
}

// Excess returns how much eviction should free, and how keenly: so that there is
// slack, and room for whoever did not find any.
func (r *Residents) Excess() (bytes int64, keen Keenness) {
	r.mu.Lock()
	defer r.mu.Unlock()
	waiting, keen := r.mu.line.need(r.mu.held)
	if !r.crowdedLocked() && r.mu.shortage == 0 && waiting == 0 {
		return 0, takeIdle
	}
	free := max(r.slackLocked(), min(max(r.mu.shortage, waiting), r.mu.limit))
	keen = max(keen, r.mu.shortageKeen)
	r.mu.shortage, r.mu.shortageKeen = 0, takeIdle
	return max(r.mu.size-(r.mu.limit-free), 0), keen
}

// Keenness says what eviction may take.
type Keenness uint8

const (
	// takeIdle takes what nobody has asked to be kept.
	takeIdle Keenness = iota
	// TakeWanted takes, after that, what was fetched and not read yet.
	TakeWanted
	// TakeHeld takes, after that, what is held: the disk is needed for what exists
	// nowhere else.
	TakeHeld
)

// NewRound begins a run of eviction: those that were found in use in the one before
// are offered again.
func (r *Residents) NewRound() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.round++
}

// Pick chooses the next victim, which is marked as on its way out, or nil.
func (r *Residents) Pick(keen Keenness) *Resident {
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
func (r *Residents) keptLocked(keen Keenness) *Resident {
	if keen == takeIdle {
		return nil
	}
	var held *Resident
	l := &r.mu.kept
	for e := l.back(); e != nil && e != &l.head; e = e.prev {
		switch {
		case e.tried == r.mu.round:
		case r.mu.held[e.ID] == 0:
			return e
		case held == nil:
			held = e
		}
	}
	if keen == TakeHeld {
		return held
	}
	return nil
}

// leaveLocked marks e as on its way out.
func (r *Residents) leaveLocked(e *Resident) {
	e.evicting, e.from = true, e.list
	e.broken = r.mu.held[e.ID] > 0 // a hold that comes later finds nothing to keep
	e.list.remove(e)
}

// orderLocked returns the queues in which to look for a victim. The window offers
// its last, which goes, or takes the place of a victim of the main queue that was
// used less.
func (r *Residents) orderLocked() []*residentList {
	main, window, released := &r.mu.main, &r.mu.window, &r.mu.released
	if main.size > r.mainShareLocked() {
		return []*residentList{released, main, window}
	}
	candidate, victim := window.back(), r.victimLocked(main)
	if released.len == 0 && candidate != nil && victim != nil &&
		r.mu.sketch.estimate(candidate.ID) > r.mu.sketch.estimate(victim.ID)+admitMargin {
		window.remove(candidate)
		main.pushFront(candidate)
		return []*residentList{main, window}
	}
	return []*residentList{released, window, main}
}

// victimLocked returns the last of a queue. Those of the main queue that were used
// since they were last looked at are given another round.
func (r *Residents) victimLocked(l *residentList) *Resident {
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

// PutBack returns a victim that cannot go because somebody uses it. It is not
// offered again in this round.
func (r *Residents) PutBack(e *Resident) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e.evicting, e.broken, e.tried = false, false, r.mu.round
	if e.wanted || r.mu.held[e.ID] > 0 {
		e.from = &r.mu.kept
	} else if e.from == &r.mu.kept {
		e.from = &r.mu.main
	}
	e.from.pushFront(e)
	r.mu.line.tell(e.ID)
}

// Take marks one object as on its way out, if it is there and is not already.
func (r *Residents) Take(id content.Identity) *Resident {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.mu.table[id]
	if e == nil || e.evicting {
		return nil
	}
	r.leaveLocked(e)
	return e
}

// TakeEmpty is take for an object of which nothing is on SSD. One that has room, if
// only since whoever asks has looked, is about to be written and stays. Nobody loses
// anything, held or not.
func (r *Residents) TakeEmpty(id content.Identity) *Resident {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.mu.table[id]
	if e == nil || e.evicting || e.Size > Overhead {
		return nil
	}
	r.leaveLocked(e)
	e.broken = false
	return e
}

// Shield makes sure that nobody makes an object with that identity until gone is
// called; nil says that there is one.
func (r *Residents) Shield(id content.Identity) *Resident {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.table[id] != nil {
		return nil
	}
	e := &Resident{ID: id, evicting: true}
	r.mu.table[id] = e
	return e
}

// Gone removes victims whose files are no more.
func (r *Residents) Gone(victims []*Resident) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range victims {
		delete(r.mu.table, e.ID)
		delete(r.mu.uses, e.ID)
		r.mu.size -= e.Size
		if e.broken {
			r.mu.broken++
		}
	}
	r.roomLocked()
}

// Presence says whether an object has a file.
type Presence uint8

// What an object may have of a file.
const (
	Absent Presence = iota
	Present
	Leaving // it must not be touched
)

// State tells whether an object has a file.
func (r *Residents) State(id content.Identity) Presence {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch e := r.mu.table[id]; {
	case e == nil:
		return Absent
	case e.evicting:
		return Leaving
	default:
		return Present
	}
}

// TakeUses returns what the index does not know yet of the use of objects.
func (r *Residents) TakeUses() map[content.Identity]content.Use {
	r.mu.Lock()
	defer r.mu.Unlock()
	uses := make(map[content.Identity]content.Use, len(r.mu.uses))
	for id, e := range r.mu.uses {
		uses[id] = e.use(&r.mu.released)
	}
	clear(r.mu.uses)
	return uses
}

// Use returns what is to be stored of the use of an object.
func (r *Residents) Use(id content.Identity) content.Use {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.mu.uses, id)
	if e := r.mu.table[id]; e != nil {
		return e.use(&r.mu.released)
	}
	return content.Use{}
}

// use returns what is to be stored of the use of an object, which released has if it was
// released.
func (e *Resident) use(released *residentList) content.Use {
	return content.Use{Last: e.Used, Released: e.list == released}
}

// Broken counts the objects that had to go although they were held.
func (r *Residents) Broken() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mu.broken
}

// Held returns how many objects are held.
func (r *Residents) Held() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.mu.held)
}

// Usage returns the number of objects and of bytes, and the limit.
func (r *Residents) Usage() (objects int, size, limit int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.mu.table), r.mu.size, r.mu.limit
}

// Hold counts a hold.
func (r *Residents) Hold(id content.Identity) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.held[id]++
	if e := r.mu.table[id]; e != nil && r.mu.held[id] == 1 {
		r.placeLocked(e, &r.mu.kept)
	}
}

// Unhold counts a hold less and tells whether it was the last.
func (r *Residents) Unhold(id content.Identity, released bool) (last bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch r.mu.held[id] {
	case 0:
		return true
	case 1:
		delete(r.mu.held, id)
	default:
		r.mu.held[id]--
		return false
	}
	e := r.mu.table[id]
	if e == nil {
		return true
	}
	e.wanted, e.visited = false, e.visited && !released
	r.mu.uses[id] = e
	if released {
		r.placeLocked(e, &r.mu.released)
	} else {
		r.placeLocked(e, &r.mu.main)
	}
	r.roomLocked()
	return true
}

// TakeIdle is take for what nobody holds.
func (r *Residents) TakeIdle(id content.Identity) (e *Resident, held bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.held[id] > 0 {
		return nil, true
	}
	e = r.mu.table[id]
	if e == nil || e.evicting {
		return nil, false
	}
	r.leaveLocked(e)
	return e, false
}

// Drop wants an object gone.
func (r *Residents) Drop(id content.Identity) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.dropped[id] = true
}

// DroppedNow returns what is wanted gone.
func (r *Residents) DroppedNow() []content.Identity {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Collect(maps.Keys(r.mu.dropped))
}

// Undrop ends that.
func (r *Residents) Undrop(ids ...content.Identity) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, id := range ids {
		delete(r.mu.dropped, id)
	}
}
