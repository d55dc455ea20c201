package writeback

import (
	"slices"
	"sort"
	"strings"
)

// overtakeWindow is how far apart the closes of two new small files may be for the
// later one to be published first, in nanoseconds.
const overtakeWindow = int64(1e9)

// opQueue has operations in the order of their last commits.
type opQueue struct {
	items []queued
	gone  int
	// held are those that keep an earlier place, by each directory in which something
	// waits for them; inside are the same by their own directory. In rewritten are, by "",
	// those for which barriers elsewhere wait as well.
	held, inside, rewritten byDir
}

type queued struct {
	pos, id uint64
	op      *operation
}

func (q queued) less(pos, id uint64) bool {
	return q.pos < pos || q.pos == pos && q.id < id
}

// pos is where op stands in the queue. One whose Order is before keeps that place for
// those that would wait for it there.
func (op *operation) pos() uint64 { return max(op.Order, op.After) }

// holds reports whether op keeps a place before its own.
func (op *operation) holds() bool { return op.Order < op.pos() }

func (q *opQueue) find(op *operation) int {
	return sort.Search(len(q.items), func(i int) bool { return !q.items[i].less(op.pos(), op.ID) })
}

func (q *opQueue) add(op *operation) {
	// New ones come last, but for those of a snapshot's making.
	q.items = slices.Insert(q.items, q.find(op), queued{op.pos(), op.ID, op})
	if !op.holds() {
		return
	}
	if q.held == nil {
		q.held, q.inside, q.rewritten = make(byDir), make(byDir), make(byDir)
	}
	q.inside.add(op.Dir, op.pos(), op)
	if op.beside() < op.pos() {
		q.rewritten.add("", op.beside(), op)
	}
	op.eachHeld(func(dir string, place uint64) { q.held.add(dir, place, op) })
}

func (q *opQueue) remove(op *operation) {
	i := q.find(op)
	if i == len(q.items) || q.items[i].op != op {
		return
	}
	if op.holds() {
		q.inside.drop(op.Dir, op.pos(), op)
		q.rewritten.drop("", op.beside(), op)
		op.eachHeld(func(dir string, place uint64) { q.held.drop(dir, place, op) })
	}
	q.items[i].op = nil
	q.gone++
	for n := len(q.items); n > 0 && q.items[n-1].op == nil; n-- {
		q.items = q.items[:n-1]
		q.gone--
	}
	if q.gone > 64 && q.gone > len(q.items)/2 {
		q.items = slices.DeleteFunc(q.items, func(x queued) bool { return x.op == nil })
		q.gone = 0
	}
}

// change lets do change what the place of op depends on.
func (q *opQueue) change(op *operation, do func()) {
	q.remove(op)
	do()
	q.add(op)
}

// isLast reports whether nothing comes after op.
func (q *opQueue) isLast(op *operation) bool { return q.items[len(q.items)-1].op == op }

// covered reports whether something keeps a place before pos although it comes after it.
func (q *opQueue) covered(pos uint64) bool {
	for _, x := range q.held[""] {
		if x.place >= pos {
			return false
		}
		if x.op.pos() > pos {
			return true
		}
	}
	return false
}

// beside is the place that op keeps in its own directory.
func (op *operation) beside() uint64 { return max(op.Order, op.own) }

// eachHeld calls do with the directories in which something waits for op from a place
// on that is before its own: its directory and those above.
func (op *operation) eachHeld(do func(dir string, place uint64)) {
	if op.beside() < op.pos() {
		do(op.Dir, op.beside())
	}
	for dir := op.Dir; dir != ""; {
		dir = parent(dir)
		do(dir, op.Order)
	}
}

// places are operations by the places that they keep.
type places []keeping

type keeping struct {
	place uint64
	op    *operation
}

// byDir has places by directory.
type byDir map[string]places

func (p places) find(place uint64, op *operation) int {
	return sort.Search(len(p), func(i int) bool { return p[i].place > place || p[i].place == place && p[i].op.ID >= op.ID })
}

func (d byDir) add(dir string, place uint64, op *operation) {
	p := d[dir]
	d[dir] = slices.Insert(p, p.find(place, op), keeping{place, op})
}

func (d byDir) drop(dir string, place uint64, op *operation) {
	p := d[dir]
	if i := p.find(place, op); i < len(p) && p[i].op == op {
		p = slices.Delete(p, i, i+1)
	}
	if d[dir] = p; len(p) == 0 {
		delete(d, dir)
	}
}

// standing is what the order has to know of an operation beside itself.
type standing struct {
	// failing: it cannot succeed as things are, and holds back only what is beside or
	// above it.
	failing bool
	// absent: it holds back nothing.
	absent bool
	// small: it is a new small file or a directory, which may be overtaken by others
	// of its second.
	small bool
}

// mark is what is unfinished in a directory or below it.
type mark struct {
	strict bool
	oldest int64
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

// verdict is an operation, and whether the order lets it begin.
type verdict struct {
	op    *operation
	ready bool
}

// scan says of each operation in order, until enough returns true, whether the order
// of publication (promise 4) lets it begin.
//
// An operation waits for those before it in its own directory or below, and if it
// is a barrier for all before it that are not failing. Those of one record do not
// wait for one another.
//
// One that was committed again, or whose key another file took, stands where that
// was, and keeps its first place: what came in between, in its directory or above,
// waits for it, and barriers do if it was committed again. It waits for everything before
// it but for what so waits behind a kept place, itself or through others: no two of them
// can wait for each other. A barrier elsewhere does not wait behind a kept place if what
// keeps one is above the barrier: that waits for it.
func (q *opQueue) scan(of func(*operation) standing, enough func(*operation) bool) []verdict {
	s := scanning{q: q, of: of, marks: make(map[string]mark), behind: make(map[string]bool)}
	for _, x := range q.items {
		if x.op == nil {
			continue
		}
		s.next(x.op)
		if enough(x.op) {
			break
		}
	}
	return s.verdicts
}

// scanning is the state of one scan.
type scanning struct {
	q        *opQueue
	of       func(*operation) standing
	marks    map[string]mark
	waiting  int
	group    []member
	verdicts []verdict
	// behind are the directories in or below which something waits behind a kept place,
	// held how many do that are not failing.
	behind map[string]bool
	held   int
	// fronts and rewritten say how many of q.held and q.rewritten the scan has passed.
	fronts, rewritten map[string]int
}

// member is an operation of the present record.
type member struct {
	op       *operation
	standing standing
	behind   bool
}

// next judges one more operation.
func (s *scanning) next(op *operation) {
	if len(s.group) > 0 && s.group[0].op.pos() != op.pos() {
		s.pass()
	}
	st := s.of(op)
	behind := s.waitsBehind(op)
	ready := !behind && (!op.Barrier || s.waiting == 0)
	if m, ok := s.marks[op.Dir]; ok && ready {
		ready = !m.strict && !op.Barrier && st.small && op.Again-m.oldest <= overtakeWindow
	}
	s.group = append(s.group, member{op, st, behind})
	s.verdicts = append(s.verdicts, verdict{op, ready})
}

// waitsBehind reports whether op waits for one that comes after it and keeps a place
// before it, itself or through others.
func (s *scanning) waitsBehind(op *operation) bool {
	if len(s.q.held) == 0 {
		return false
	}
	if s.fronts == nil {
		s.fronts, s.rewritten = make(map[string]int), make(map[string]int)
	}
	switch {
	case s.kept(s.q.held, s.fronts, op.Dir, op.pos(), true):
		return true
	case !op.holds() && s.behind[op.Dir]:
		return true
	case !op.Barrier || (op.holds() || s.held == 0) && !s.kept(s.q.rewritten, s.rewritten, "", op.pos(), false):
		return false
	}
	for dir := op.Dir; ; dir = parent(dir) {
		if s.comes(s.q.inside[dir], op.pos()) {
			return false
		}
		if dir == "" {
			return true
		}
	}
}

// kept reports whether one of those of dir comes after pos and keeps a place before it;
// failing, also one that fails. fronts remembers how many the scan has passed.
func (s *scanning) kept(of byDir, fronts map[string]int, dir string, pos uint64, failing bool) bool {
	p, i := of[dir], fronts[dir]
	for ; i < len(p) && p[i].place < pos; i++ {
		if p[i].op.pos() <= pos {
			continue
		}
		if st := s.of(p[i].op); !st.absent && (failing || !st.failing) {
			break
		}
	}
	if i > 0 {
		fronts[dir] = i
	}
	return i < len(p) && p[i].place < pos
}

// comes reports whether one of p comes after pos.
func (s *scanning) comes(p places, pos uint64) bool {
	for _, x := range slices.Backward(p) {
		if x.place <= pos {
			break
		}
		if !s.of(x.op).absent {
			return true
		}
	}
	return false
}

// pass lets what follows wait for the operations of one record.
func (s *scanning) pass() {
	for _, m := range s.group {
		op, st := m.op, m.standing
		if st.absent {
			continue
		}
		if m.behind {
			markAbove(s.behind, op.Dir)
			if !st.failing {
				s.held++
			}
			continue
		}
		if !st.failing {
			s.waiting++
		}
		for dir := op.Dir; ; dir = parent(dir) {
			left, ok := s.marks[dir]
			if !ok {
				left.oldest = op.At
			}
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
