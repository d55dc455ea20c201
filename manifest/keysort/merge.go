package keysort

import (
	"bytes"
	"container/heap"
)

// cursor reads sorted entries. What it gives is valid until the next call.
type cursor interface {
	next(e *Entry) (bool, error)
}

// Entries are sorted entries, each once.
type Entries struct {
	heads mergeHeap
	// begun says that the head is the entry that was given last.
	begun      bool
	last       Entry
	any        bool
	duplicates int64
}

type mergeHead struct {
	Entry
	c cursor
	// age is greater for entries that were added later.
	age int
}

// mergeHeap is ordered by entry; the last added comes first among equals.
type mergeHeap []*mergeHead

func (h mergeHeap) Len() int { return len(h) }
func (h mergeHeap) Less(i, j int) bool {
	x, y := h[i], h[j]
	if c := bytes.Compare(x.Dir, y.Dir); c != 0 {
		return c < 0
	}
	if c := bytes.Compare(x.Item, y.Item); c != 0 {
		return c < 0
	}
	return x.age > y.age
}
func (h mergeHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }

// Push implements [heap.Interface].
func (h *mergeHeap) Push(x any) { *h = append(*h, x.(*mergeHead)) }

// Pop implements [heap.Interface].
func (h *mergeHeap) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}

// newEntries merges what cursors give; the later ones hold what was added later.
func newEntries(cursors []cursor) (*Entries, error) {
	m := &Entries{}
	for age, c := range cursors {
		h := &mergeHead{c: c, age: age}
		ok, err := c.next(&h.Entry)
		if err != nil {
			return nil, err
		}
		if ok {
			m.heads = append(m.heads, h)
		}
	}
	heap.Init(&m.heads)
	return m, nil
}

// Next returns the next entry, or nil after the last. It is valid until the next
// call.
func (m *Entries) Next() (*Entry, error) {
	for {
		if m.begun {
			h := m.heads[0]
			ok, err := h.c.next(&h.Entry)
			if err != nil {
				return nil, err
			}
			if ok {
				heap.Fix(&m.heads, 0)
			} else {
				heap.Pop(&m.heads)
			}
			m.begun = false
		}
		if len(m.heads) == 0 {
			return nil, nil
		}
		m.begun = true
		e := &m.heads[0].Entry
		if m.any && bytes.Equal(e.Item, m.last.Item) && bytes.Equal(e.Dir, m.last.Dir) {
			// Of directories there may be any number; they have no value.
			if len(e.Value) > 0 {
				m.duplicates++
			}
			continue
		}
		m.any = true
		m.last.Dir = append(m.last.Dir[:0], e.Dir...)
		m.last.Item = append(m.last.Item[:0], e.Item...)
		return e, nil
	}
}

// Duplicates returns how many entries with a value were passed over so far,
// because one that was added later has the same directory and item.
func (m *Entries) Duplicates() int64 { return m.duplicates }
