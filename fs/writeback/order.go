package writeback

import (
	"iter"
	"slices"
	"sort"
	"strings"
)

// overtakeWindow is how far apart the closes of two new small files, or two removals, may
// be for the later one to be published first, in nanoseconds.
const overtakeWindow = int64(1e9)

// maxRunning is how many operations run at once; the limiter of the object store decides
// what of that is in flight. A scan need not find more that may begin.
const maxRunning = 128

// opQueue has operations in the order in which they were wanted.
type opQueue struct {
	items []queued
	gone  int
}

type queued struct {
	order, id uint64
	op        *operation
}

func (q queued) less(order, id uint64) bool {
	return q.order < order || q.order == order && q.id < id
}

func (q *opQueue) find(op *operation) int {
	return sort.Search(len(q.items), func(i int) bool { return !q.items[i].less(op.Order, op.ID) })
}

func (q *opQueue) add(op *operation) {
	// New ones come last, but for those of a snapshot's making.
	q.items = slices.Insert(q.items, q.find(op), queued{op.Order, op.ID, op})
}

func (q *opQueue) remove(op *operation) {
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

func (q *opQueue) len() int { return len(q.items) - q.gone }

// all gives the operations in their order.
func (q *opQueue) all() iter.Seq[*operation] {
	return func(yield func(*operation) bool) {
		for _, x := range q.items {
			if x.op != nil && !yield(x.op) {
				return
			}
		}
	}
}

// standing is what the order has to know of an operation beside itself.
type standing struct {
	// failing: it cannot succeed as things are, and holds back only what is beside or
	// above it. refused: it fails until somebody does something, and so does what is behind it
	// in its directory.
	failing, refused bool
	// kept, of a removal, is the publication that must not come after it; see keptFor. held: it
	// must not begin as things are, and is absent.
	kept *operation
	held bool
	// absent: it holds back nothing.
	absent bool
	// small: it is a new small file or a directory, which may be overtaken by others
	// of its second.
	small bool
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
	op    *operation
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
func (x *stretched) meet(op *operation, failing bool) {
	switch {
	case op.Order >= x.op.After:
	case op.Barrier || x.waiting[op.Dir]:
		markAbove(x.waiting, op.Dir)
	case x.op.Barrier && !failing || within(op.Dir, x.op.Dir):
		x.blocked = true
	}
}

func markAbove(marks map[string]bool, dir string) {
	for ; ; dir = parent(dir) {
		marks[dir] = true
		if dir == "" {
			return
		}
	}
}

// within reports whether dir is above or below it.
func within(dir, above string) bool {
	return above == "" || dir == above || strings.HasPrefix(dir, above+"/")
}

// verdict is an operation, and whether the order lets it begin; failing as in its standing. A
// removal that is held waits for the publication kept.
type verdict struct {
	op, kept       *operation
	ready, failing bool
}

// scan says of each operation in order, until enough returns true, whether the order
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
func (q *opQueue) scan(of func(*operation) standing, enough func(*operation) bool) []verdict {
	s := scanning{of: of, marks: make(map[string]mark), removed: make(map[string]bool), stuck: make(map[string]bool)}
	for _, x := range q.items {
		if x.op == nil {
			continue
		}
		s.next(x.op)
		// What fails may hold up any number behind it, and what others can do comes after.
		if enough(x.op) && (s.able >= maxRunning || !s.failing && (s.able > 0 || s.reached())) {
			break
		}
	}
	for _, x := range s.stretched {
		s.verdicts[x.index].ready = !x.blocked && (s.last >= x.op.After || s.all(q))
	}
	return s.verdicts
}

// awaited returns the operations that are chosen, and all that the order lets them wait
// for, perhaps more.
func (q *opQueue) awaited(of func(*operation) standing, chosen func(*operation) bool) (found []*operation) {
	// Something waits for what is before a place in a directory or below it, or for all
	// before a place that is not failing.
	below, all := make(map[string]uint64), uint64(0)
	before := func(op *operation) bool {
		for dir := op.Dir; ; dir = parent(dir) {
			if op.Order < below[dir] {
				return true
			}
			if dir == "" {
				return false
			}
		}
	}
	waited := func(op *operation) bool {
		near := before(op)
		if !near && op.Order >= all {
			return false
		}
		st := of(op)
		return !st.absent && (near || !st.failing)
	}
	for again := true; again; {
		again, found = false, found[:0]
		for _, x := range slices.Backward(q.items) {
			op := x.op
			if op == nil || !chosen(op) && !waited(op) {
				continue
			}
			found = append(found, op)
			place := op.lasted()
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
	of      func(*operation) standing
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
	verdicts []verdict
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
	op       *operation
	standing standing
	// behind says that it is behind what is refused.
	behind bool
}

// all reports whether the scan has come to the end of q.
func (s *scanning) all(q *opQueue) bool { return len(s.verdicts) == q.len() }

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
func (s *scanning) next(op *operation) {
	if len(s.group) > 0 && s.group[0].op.Order != op.Order {
		s.pass()
	}
	st := s.of(op)
	m, behind := s.marks[op.Dir]
	stuck := m.refused || op.Kind == opDelete && above(s.stuck, op.Dir)
	st.failing, st.refused = st.failing || stuck, st.refused || stuck
	s.failing = s.failing || st.failing
	if st.kept != nil && s.fails(st.kept) {
		st.held, st.absent = true, true
	}
	ready := !op.Barrier || s.waiting == 0
	if behind && ready {
		ready = !m.strict && !op.Barrier && st.small && op.Again-m.oldest <= overtakeWindow
	}
	ready = (ready || op.Kind == opDelete && s.amongRemovals(op)) && !st.held && !stuck
	if !st.absent {
		for _, x := range s.stretched {
			x.meet(op, st.failing)
		}
	}
	if ready && op.After > op.Order {
		ready = false
		if s.stretches(st.failing) {
			x := &stretched{op: op, index: len(s.verdicts), failing: st.failing, waiting: make(map[string]bool)}
			markAbove(x.waiting, op.Dir)
			s.stretched = append(s.stretched, x)
		}
	}
	if ready && !st.failing && !st.absent {
		s.able++
	}
	s.last = op.Order
	s.group = append(s.group, member{op, st, stuck})
	v := verdict{op: op, ready: ready, failing: st.failing}
	if st.held {
		v.kept = st.kept
	}
	s.verdicts = append(s.verdicts, v)
}

// fails reports whether op was met, and cannot succeed as things are.
func (s *scanning) fails(op *operation) bool {
	i := sort.Search(len(s.verdicts), func(i int) bool {
		return !queued{s.verdicts[i].op.Order, s.verdicts[i].op.ID, nil}.less(op.Order, op.ID)
	})
	return i < len(s.verdicts) && s.verdicts[i].op == op && s.verdicts[i].failing
}

// amongRemovals reports whether all that op, a removal, would have to wait for are
// removals of the same second, and none of them in a directory above.
func (s *scanning) amongRemovals(op *operation) bool {
	if s.waiting != s.removing || op.At-s.oldestRemoval > overtakeWindow {
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
		if dir = parent(dir); dirs[dir] {
			return true
		}
	}
	return false
}

// pass lets what follows wait for the operations of one Order.
func (s *scanning) pass() {
	for _, m := range s.group {
		op, st := m.op, m.standing
		if st.absent {
			continue
		}
		if m.behind && op.Barrier {
			s.stuck[op.Dir] = true
		}
		removal := op.Kind == opDelete && !st.failing
		if !st.failing {
			s.waiting++
		}
		if removal {
			if s.removing++; s.removing == 1 || op.At < s.oldestRemoval {
				s.oldestRemoval = op.At
			}
			s.removed[op.Dir] = true
		}
		for dir := op.Dir; ; dir = parent(dir) {
			left, ok := s.marks[dir]
			if !ok {
				left.oldest, left.removals = op.At, true
			}
			left.removals = left.removals && removal
			left.refused = left.refused || st.refused
			left.strict = left.strict || !st.small || op.Barrier || st.failing
			left.oldest = min(left.oldest, op.At)
			s.marks[dir] = left
			if dir == "" {
				break
			}
		}
	}
	s.group = s.group[:0]
}

// parent returns the directory above dir, which is not the root.
func parent(dir string) string {
	return dir[:max(strings.LastIndexByte(dir, '/'), 0)]
}
