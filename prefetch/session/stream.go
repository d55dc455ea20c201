package session

import (
	"cmp"
	"slices"
	"time"
)

// State is what has become of an entry.
type State uint8

// The states of an entry.
const (
	// Requested: announced, and nothing more.
	Requested State = iota
	// Resolving: its objects are being looked up.
	Resolving
	// Waiting: its size is known, and there is no room for it yet.
	Waiting
	// Fetching: its bytes are charged and on their way.
	Fetching
	// Ready: all of its bytes are in the cache.
	Ready
	// Streamed: it is larger than what the cache may hold, and is read as it comes.
	Streamed
	// Failed: it could not be resolved or fetched.
	Failed
)

// String returns the name of the state as the protocol has it.
func (s State) String() string {
	switch s {
	case Fetching:
		return "fetching"
	case Ready:
		return "ready"
	case Streamed:
		return "streamed"
	case Failed:
		return "failed"
	default:
		return "requested"
	}
}

// session is one worker of one task.
type session struct {
	id       ID
	key      Key
	tenant   *tenant
	params   Params
	lastCall time.Time
	// restored says that it was found in a persistence file and that its worker has
	// not come back yet.
	restored bool
	streams  map[int]*stream
	// whos are who opened it last and before, whose names it holds.
	whos []Who
	// folders counts the names that it holds in each, and names is what they and its streams
	// are charged.
	folders map[*folder]int
	names   int64
	// handles are the open descriptions by which calls came, unseen says that some came by
	// what cannot be seen being closed. orphaned is when the last was closed, zero while
	// there is one, and kept that the client has left it to a successor.
	handles  map[uint64]bool
	unseen   bool
	orphaned time.Time
	kept     bool
	// charged is the sum of what is charged to it.
	charged          int64
	released, leaked Files
	dropped          int64
}

// streamsCost returns what n streams of the session are charged: all but one.
func (s *session) streamsCost(n int) int64 { return streamCost * int64(max(n-1, 0)) }

// knownWhos is how many are remembered of those who opened a session one after the other.
// What those before have announced goes with its lease.
const knownWhos = 2

// known notes that who has opened the session.
func (s *session) known(who Who) {
	s.whos = slices.DeleteFunc(s.whos, func(w Who) bool { return w == who })
	s.whos = slices.Insert(s.whos, 0, who)
	s.whos = s.whos[:min(len(s.whos), knownWhos)]
}

// holds returns how many holders the session has.
func (s *session) holds() (n int) {
	for _, st := range s.streams {
		n += len(st.holders)
	}
	return n
}

// sorted returns the streams in the order of their index.
func (s *session) sorted() []*stream {
	all := make([]*stream, 0, len(s.streams))
	for _, st := range s.streams {
		all = append(all, st)
	}
	slices.SortFunc(all, func(x, y *stream) int { return cmp.Compare(x.index, y.index) })
	return all
}

// stream is what one sampler index of a session announces.
type stream struct {
	session *session
	index   int
	holders map[use]*holder
	// urgent and queue are the holders whose entries are still to be fetched, in the
	// order of their use. Some of them may be gone, or fetched for somebody else.
	urgent, queue fifo
	// unresolved are those of them that are still to be resolved.
	unresolved fifo
	// outstanding counts the holders that are announced and not yet in use.
	outstanding int
	// full says that the quota was zero when it was asked for last.
	full bool
	// size is a moving average of the entries' sizes.
	size float64
	// nameSize is a moving average of what its names are charged, in bytes.
	nameSize int64
	// next numbers the holders, passed is the largest number in use so far.
	next, passed uint64
}

// use is one use of a path in a stream.
type use struct {
	name name
	seq  int
}

// holder is one who holds an entry.
type holder struct {
	stream *stream
	entry  *Entry
	use    use
	order  uint64
	// at is its place among the holders of the entry.
	at int
	// active says that it is being read.
	active bool
	// counted says that it is among the stream's outstanding.
	counted bool
	named   time.Time
	gone    bool
}

// lastSign is when the holder was last known to be wanted. One whose turn is still
// to come is as long as the session lives; one that has been passed by, or is in
// use, only if it is named or read.
func (h *holder) lastSign() time.Time {
	last := h.named
	if s := h.stream.session; !h.active && h.order > h.stream.passed && s.lastCall.After(last) {
		last = s.lastCall
	}
	if h.entry.lastRead.After(last) {
		last = h.entry.lastRead
	}
	return last
}

// settle counts h among the outstanding, or no longer.
func (st *stream) settle(h *holder) {
	should := !h.active && !h.gone && h.entry.state != Failed
	if should == h.counted {
		return
	}
	h.counted = should
	if should {
		st.outstanding++
	} else {
		st.outstanding--
	}
}

// enqueue puts h among those that are to be resolved and fetched.
func (st *stream) enqueue(h *holder, urgent bool) {
	defer st.tidy()
	if urgent {
		st.urgent.push(h)
	} else {
		st.queue.push(h)
	}
	if h.entry.state == Requested {
		if urgent {
			st.unresolved.pushFront(h)
		} else {
			st.unresolved.push(h)
		}
	}
}

// hurry moves h to the front, if its entry is still to be fetched.
func (st *stream) hurry(h *holder) {
	if h.active {
		return
	}
	defer st.tidy()
	switch h.entry.state {
	case Requested:
		st.unresolved.pushFront(h)
		st.urgent.push(h)
	case Resolving, Waiting:
		st.urgent.push(h)
	default:
	}
}

// silent returns the holders of which nothing was heard for longer than limit, in
// the order in which they came. It is called every second: only those few are
// sorted.
func (st *stream) silent(now time.Time, limit time.Duration) (silent []*holder) {
	for _, h := range st.holders {
		if now.Sub(h.lastSign()) > limit {
			silent = append(silent, h)
		}
	}
	slices.SortFunc(silent, func(x, y *holder) int { return cmp.Compare(x.order, y.order) })
	return silent
}

// sorted returns the holders in the order in which they came.
func (st *stream) sorted() []*holder {
	all := make([]*holder, 0, len(st.holders))
	for _, h := range st.holders {
		all = append(all, h)
	}
	slices.SortFunc(all, func(x, y *holder) int { return cmp.Compare(x.order, y.order) })
	return all
}

// tidy drops from the queues what is gone, and what is there twice, when that is most of
// them: their heads may wait for long while others come and go behind them.
func (st *stream) tidy() {
	const slack = 64
	for _, q := range []*fifo{&st.urgent, &st.queue, &st.unresolved} {
		if len(q.items)-q.first > 2*len(st.holders)+slack {
			q.tidy()
		}
	}
}

// fifo is a queue of holders.
type fifo struct {
	items []*holder
	first int
}

func (q *fifo) push(h *holder) { q.items = append(q.items, h) }

func (q *fifo) pushFront(h *holder) {
	if q.first == 0 {
		q.items = slices.Insert(q.items, 0, h)
		return
	}
	q.first--
	q.items[q.first] = h
}

// head returns the first holder that keep wants, dropping those before it, or nil.
func (q *fifo) head(keep func(*holder) bool) *holder {
	for q.first < len(q.items) {
		h := q.items[q.first]
		if !h.gone && keep(h) {
			return h
		}
		q.pop()
	}
	q.items, q.first = q.items[:0], 0
	return nil
}

// tidy leaves of the queue every holder that is not gone, at its first place.
func (q *fifo) tidy() {
	seen := make(map[*holder]bool)
	items := q.items[:0]
	for _, h := range q.items[q.first:] {
		if !h.gone && !seen[h] {
			seen[h] = true
			items = append(items, h)
		}
	}
	q.items, q.first = slices.Clone(items), 0
}

func (q *fifo) pop() {
	q.items[q.first] = nil
	q.first++
	if q.first > 1024 && q.first > len(q.items)/2 {
		n := copy(q.items, q.items[q.first:])
		clear(q.items[n:])
		q.items, q.first = q.items[:n], 0
	}
}
