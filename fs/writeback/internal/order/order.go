package order

import (
	"iter"
	"slices"
	"sort"
)

// OvertakeWindow is how far apart the closes of two new small files, or two removals, may
// be for the later one to be published first, in nanoseconds.
const OvertakeWindow = int64(1e9)

// MaxRunning is how many operations run at once; the limiter of the object store decides
// what of that is in flight. A scan need not find more that may begin.
const MaxRunning = 128

// Queue has operations in the order in which they were wanted.
type Queue struct {
	items []queued
	gone  int
}

type queued struct {
	order, id uint64
	op        *Operation
}

func (q queued) less(order, id uint64) bool {
	return q.order < order || q.order == order && q.id < id
}

func (q *Queue) find(op *Operation) int {
	return sort.Search(len(q.items), func(i int) bool { return !q.items[i].less(op.Order, op.ID) })
}

// Add puts op in its place.
func (q *Queue) Add(op *Operation) {
	// New ones come last, but for those of a snapshot's making.
	q.items = slices.Insert(q.items, q.find(op), queued{op.Order, op.ID, op})
}

// Remove takes op out, if it is there; its order must be what it was when it was added.
func (q *Queue) Remove(op *Operation) {
	i := q.find(op)
	if i == len(q.items) || q.items[i].op != op {
		return
	}
	q.items[i].op = nil
	if q.gone++; q.gone > 64 && q.gone > len(q.items)/2 {
		q.items = slices.DeleteFunc(q.items, func(x queued) bool { return x.op == nil })
		q.gone = 0
	}
}

func (q *Queue) len() int { return len(q.items) - q.gone }

// All gives the operations in their order.
func (q *Queue) All() iter.Seq[*Operation] {
	return func(yield func(*Operation) bool) {
		for _, x := range q.items {
			if x.op != nil && !yield(x.op) {
				return
			}
		}
	}
}

// Standing is what the order has to know of an operation beside itself.
type Standing struct {
	// Failing: it cannot succeed as things are, and holds back only what is beside or
	// above it. Refused: it fails until somebody does something, and so does what is behind it
	// in its directory.
	Failing, Refused bool
	// Kept, of a removal, is the publication that must not come after it; see KeptFor of
	// internal/state. Held: it must not begin as things are, and is absent.
	Kept *Operation
	Held bool
	// Absent: it holds back nothing.
	Absent bool
	// Small: it is a new small file or a directory, which may be overtaken by others
	// of its second.
	Small bool
}

// mark is what is unfinished in a directory or below it. refused says that something of it is,
// removals that it is nothing but removals that can succeed as things are.
type mark struct {
	strict, refused, removals bool
	oldest                    int64
}

// stretched is an operation whose content was committed again, while its scan goes
// on. It has to wait for what came between its place and its last commit, but for
// what waits for itself.
type stretched struct {
	op    *Operation
	index int
	// failing is what its standing says, blocked that it has to wait.
	failing, blocked bool
	// waiting are the directories in or below which something waits for op, op's own
	// and all above it included.
	waiting map[string]bool
}

// maxStretched is how many of them are looked at in one scan, of those that nothing is
// known to block, and as many of those that are failing; others wait.
const maxStretched = 64

// meet takes note of a later operation.
func (x *stretched) meet(op *Operation, failing bool) {
	switch {
	case op.Order >= x.op.After:
	case op.Barrier || x.waiting[op.Dir]:
		MarkAbove(x.waiting, op.Dir)
	case x.op.Barrier && !failing || Within(op.Dir, x.op.Dir):
		x.blocked = true
	}
}

// MarkAbove marks dir and all directories above it.
func MarkAbove(marks map[string]bool, dir string) {
	for ; ; dir = Parent(dir) {
		marks[dir] = true
		if dir == "" {
			return
		}
	}
}

// Verdict is an operation, and whether the order lets it begin; failing as in its standing. A
// removal that is held waits for the publication kept.
type Verdict struct {
	Op, Kept       *Operation
	Ready, failing bool
}

// Scan says of each operation in order, until enough returns true, whether the order
// of publication (promise 4) lets it begin.
//
// An operation waits for those before it in its own directory or below, and if it
// is a barrier for all before it that are not failing. Those with one Order do not
// wait for one another, nor do removals of one second, as of a whole tree, but what was
// removed in a directory goes before what was removed below it later. A removal waits
// for what replaces or removes something above it also where that is behind what is refused:
// an old latest must not lose its shards.
//
// It goes on beyond enough while nothing was found that may begin and succeed, and
// something waits for what is further on: what waits for that in turn may be more
// than enough.
func (q *Queue) Scan(of func(*Operation) Standing, enough func(*Operation) bool) []Verdict {
	s := scanning{of: of, marks: make(map[string]mark), removed: make(map[string]bool), stuck: make(map[string]bool)}
	for _, x := range q.items {
		if x.op == nil {
			continue
		}
		s.next(x.op)
		// What fails may hold up any number behind it, and what others can do comes after.
		if enough(x.op) && (s.able >= MaxRunning || !s.failing && (s.able > 0 || s.reached())) {
			break
		}
	}
	for _, x := range s.stretched {
		s.verdicts[x.index].Ready = !x.blocked && (s.last >= x.op.After || s.all(q))
	}
	return s.verdicts
}

// Awaited returns the operations that are chosen, and all that the order lets them wait
// for, perhaps more.
func (q *Queue) Awaited(of func(*Operation) Standing, chosen func(*Operation) bool) (found []*Operation) {
	// Something waits for what is before a place in a directory or below it, or for all
	// before a place that is not failing.
	below, all := make(map[string]uint64), uint64(0)
	before := func(op *Operation) bool {
		for dir := op.Dir; ; dir = Parent(dir) {
			if op.Order < below[dir] {
				return true
			}
			if dir == "" {
				return false
			}
		}
	}
	waited := func(op *Operation) bool {
		near := before(op)
		if !near && op.Order >= all {
			return false
		}
		st := of(op)
		return !st.Absent && (near || !st.Failing)
	}
	for again := true; again; {
		again, found = false, found[:0]
		for _, x := range slices.Backward(q.items) {
			op := x.op
			if op == nil || !chosen(op) && !waited(op) {
				continue
			}
			found = append(found, op)
			place := op.Lasted()
			// What is between its place and its last commit was passed already.
			if place > below[op.Dir] {
				below[op.Dir] = place
				again = again || place > op.Order
			}
			if op.Barrier && place > all {
				all = place
				again = again || place > op.Order
			}
		}
	}
	return found
}

// scanning is the state of one scan.
type scanning struct {
	of      func(*Operation) Standing
	marks   map[string]mark
	waiting int
	// removing counts those of waiting that are removals, the oldest of which is of
	// oldestRemoval; removed are their directories.
	removing      int
	oldestRemoval int64
	removed       map[string]bool
	// stuck are the directories of barriers that are behind what is refused.
	stuck    map[string]bool
	group    []member
	verdicts []Verdict
	// stretched are those that would be ready at their place.
	stretched []*stretched
	last      uint64
	// able counts those that may begin, and can succeed as things are.
	able int
	// failing says that something was met that cannot succeed as things are.
	failing bool
}

// member is an operation of the present Order.
type member struct {
	op       *Operation
	standing Standing
	// behind says that it is behind what is refused.
	behind bool
}

// all reports whether the scan has come to the end of q.
func (s *scanning) all(q *Queue) bool { return len(s.verdicts) == q.len() }

// reached reports whether the scan has seen all that one of stretched may have to wait
// for.
func (s *scanning) reached() bool {
	return !slices.ContainsFunc(s.stretched, func(x *stretched) bool { return !x.blocked && s.last < x.op.After })
}

// stretches reports whether one more is to be looked at: what blocks the others may be
// that one, and what fails takes nobody's room.
func (s *scanning) stretches(failing bool) bool {
	full := func() bool {
		n := 0
		for _, x := range s.stretched {
			if x.failing == failing {
				n++
			}
		}
		return n >= maxStretched
	}
	if full() {
		s.stretched = slices.DeleteFunc(s.stretched, func(x *stretched) bool { return x.blocked })
	}
	return !full()
}

// next judges one more operation.
func (s *scanning) next(op *Operation) {
	if len(s.group) > 0 && s.group[0].op.Order != op.Order {
		s.pass()
	}
	st := s.of(op)
	m, behind := s.marks[op.Dir]
	stuck := m.refused || op.Kind == Delete && above(s.stuck, op.Dir)
	st.Failing, st.Refused = st.Failing || stuck, st.Refused || stuck
	s.failing = s.failing || st.Failing
	if st.Kept != nil && s.fails(st.Kept) {
		st.Held, st.Absent = true, true
	}
	ready := !op.Barrier || s.waiting == 0
	if behind && ready {
		ready = !m.strict && !op.Barrier && st.Small && op.Again-m.oldest <= OvertakeWindow
	}
	ready = (ready || op.Kind == Delete && s.amongRemovals(op)) && !st.Held && !stuck
	if !st.Absent {
		for _, x := range s.stretched {
			x.meet(op, st.Failing)
		}
	}
	if ready && op.After > op.Order {
		ready = false
		if s.stretches(st.Failing) {
			x := &stretched{op: op, index: len(s.verdicts), failing: st.Failing, waiting: make(map[string]bool)}
			MarkAbove(x.waiting, op.Dir)
			s.stretched = append(s.stretched, x)
		}
	}
	if ready && !st.Failing && !st.Absent {
		s.able++
	}
	s.last = op.Order
	s.group = append(s.group, member{op, st, stuck})
	v := Verdict{Op: op, Ready: ready, failing: st.Failing}
	if st.Held {
		v.Kept = st.Kept
	}
	s.verdicts = append(s.verdicts, v)
}

// fails reports whether op was met, and cannot succeed as things are.
func (s *scanning) fails(op *Operation) bool {
	i := sort.Search(len(s.verdicts), func(i int) bool {
		return !queued{s.verdicts[i].Op.Order, s.verdicts[i].Op.ID, nil}.less(op.Order, op.ID)
	})
	return i < len(s.verdicts) && s.verdicts[i].Op == op && s.verdicts[i].failing
}

// amongRemovals reports whether all that op, a removal, would have to wait for are
// removals of the same second, and none of them in a directory above.
func (s *scanning) amongRemovals(op *Operation) bool {
	if s.waiting != s.removing || op.At-s.oldestRemoval > OvertakeWindow {
		return false
	}
	if m, ok := s.marks[op.Dir]; ok && !m.removals {
		return false
	}
	return !above(s.removed, op.Dir)
}

// above reports whether any directory above dir is among dirs.
func above(dirs map[string]bool, dir string) bool {
	for dir != "" && len(dirs) > 0 {
		if dir = Parent(dir); dirs[dir] {
			return true
		}
	}
	return false
}

// pass lets what follows wait for the operations of one Order.
func (s *scanning) pass() {
	for _, m := range s.group {
		op, st := m.op, m.standing
		if st.Absent {
			continue
		}
		if m.behind && op.Barrier {
			s.stuck[op.Dir] = true
		}
		removal := op.Kind == Delete && !st.Failing
		if !st.Failing {
			s.waiting++
		}
		if removal {
			if s.removing++; s.removing == 1 || op.At < s.oldestRemoval {
				s.oldestRemoval = op.At
			}
			s.removed[op.Dir] = true
		}
		for dir := op.Dir; ; dir = Parent(dir) {
			left, ok := s.marks[dir]
			if !ok {
				left.oldest, left.removals = op.At, true
			}
			left.removals = left.removals && removal
			left.refused = left.refused || st.Refused
			left.strict = left.strict || !st.Small || op.Barrier || st.Failing
			left.oldest = min(left.oldest, op.At)
			s.marks[dir] = left
			if dir == "" {
				break
			}
		}
	}
	s.group = s.group[:0]
}
